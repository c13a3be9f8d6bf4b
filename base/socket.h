// File descriptors and stream sockets with deadlines: what the rendezvous store, the machine's local channel
// and the launcher share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace farhop {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

struct HostPort {
  std::string host;  // name, IPv4 or IPv6 (without brackets)
  uint16_t port = 0;

  std::string text() const;  // "host:port", "[v6]:port"
};

// Listens on host:port (port 0: any). Empty host: all addresses, IPv6 and IPv4. SO_REUSEADDR is set, so that
// a restart need not wait for TIME_WAIT. AlreadyExists, naming host and port, when it is in use.
absl::StatusOr<FileDescriptor> listenTcp(const HostPort& address, int backlog);
absl::StatusOr<uint16_t> boundPort(int fd);
// Whether `fd` is an open socket that listens.
bool isListening(int fd);

// Resolves and connects, trying each address; retries refused connections until the deadline when `retry`
// is set (the listener may not be up yet). The socket is non-blocking, close-on-exec, TCP_NODELAY.
absl::StatusOr<FileDescriptor> connectTcp(const HostPort& address, Deadline deadline, bool retry);

// The numeric address that this host would use to reach `address` (a UDP connect; nothing is sent).
absl::StatusOr<std::string> localAddressTowards(const HostPort& address);

// Abstract-namespace stream sockets (Linux). `name` without the leading zero byte, at most 100 bytes.
absl::StatusOr<FileDescriptor> listenAbstract(const std::string& name, int backlog);
absl::StatusOr<FileDescriptor> connectAbstract(const std::string& name, Deadline deadline, bool retry);

// Whether the other end of an abstract socket, which has no permissions of its own, runs as the same user.
bool sameUser(int fd);

// Sends or receives exactly `bytes` bytes on a non-blocking socket. Unavailable on a closed connection,
// DeadlineExceeded at the deadline.
absl::Status sendAll(int fd, const void* data, size_t bytes, Deadline deadline);
absl::Status receiveAll(int fd, void* data, size_t bytes, Deadline deadline);

absl::Status setNonBlocking(int fd);
absl::Status setCloseOnExec(int fd, bool on);

}  // namespace farhop
