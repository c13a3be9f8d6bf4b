// What makes one job: its id, its token, its ports, its log directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"

namespace farhop::launcher {

// Readable and unique: "20240601-093015-5f3a9c12" (UTC).
absl::StatusOr<std::string> makeJobId();
// 128 random bits in hex. It goes into the trainers' environment and nowhere else.
absl::StatusOr<std::string> makeToken();

// `count` listening sockets on consecutive ports of one address.
struct PortReservation {
  uint16_t base = 0;
  std::vector<FileDescriptor> listeners;  // [p] listens on base + p
};
// With `base` that base: AlreadyExists, naming the port, when one is in use. Without, a random base between
// 20,000 and 32,767 (below the ports that Linux gives to outgoing connections), with the port after the last
// one, torch's MASTER_PORT, free too at that moment.
absl::StatusOr<PortReservation> reservePorts(const std::string& host, int count,
                                             std::optional<uint16_t> base);

// Where the processes' output is kept.
class LogDirectory {
 public:
  // `requested` (created where missing) or, when empty, a new directory of the job under the system's
  // temporary one.
  static absl::StatusOr<LogDirectory> create(const std::string& requested, const std::string& jobId);

  const std::string& path() const { return path_; }
  // Attempt 0 is the job's first start.
  std::string fileFor(int machine, int proc, int attempt = 0) const;
  bool temporary() const { return temporary_; }
  // Removes a temporary one with all the job's files; does nothing to a requested one.
  void removeTemporary();

 private:
  std::string path_;
  bool temporary_ = false;
};

}  // namespace farhop::launcher
