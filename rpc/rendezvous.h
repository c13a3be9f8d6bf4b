// The rendezvous store: a small key-value service of machine 0's process p on master_port + p, through which
// group p meets.
//
// Framed binary protocol of our own over TCP (docs/rendezvous-protocol.md). The first frame carries protocol
// version, job id, token and the client's machine; anything else gets the connection closed, so strangers'
// bytes, HTTP requests and port scans do no harm at any time. Connections, keys, values and unauthenticated
// time are bounded. A client whose connection ends without a farewell fails the store: every waiting and
// later operation of the others returns Unavailable naming that client.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"

namespace farhop::rpc {

struct StoreServerOptions {
  std::string jobId;
  std::string token;
  int proc = 0;                  // the group, for messages
  // Beyond it, new connections are closed at once. Those that have not said hello are at most an eighth of it
  // (at least 64); beyond that the oldest of them is closed.
  size_t maxConnections = 4096;
  size_t maxKeyBytes = 256;
  size_t maxValueBytes = size_t{1} << 20;
  size_t maxKeys = 1 << 20;
  size_t maxTotalBytes = size_t{256} << 20;  // of all keys and values
  std::chrono::milliseconds helloTimeout{5'000};
};

// Serves on a thread of its own until destroyed; then what waits at the clients fails with Unavailable.
class StoreServer {
 public:
  // `listener` is a listening TCP socket (listenTcp, or one handed over by the launcher).
  static absl::StatusOr<std::unique_ptr<StoreServer>> start(FileDescriptor listener, StoreServerOptions options);
  virtual ~StoreServer() = default;
  virtual uint16_t port() const = 0;
};

struct StoreClientOptions {
  HostPort master;
  std::string jobId;
  std::string token;
  PeerName self;
  bool wasUp = false;  // this process has reached the store before: refused connections mean that it has ended
  std::function<bool()> givenUp = nullptr;  // asked between attempts; true ends them with Cancelled
};

// One connection to the store. Thread-safe; operations of one client run one after the other. Destroyed without
// farewell(), it fails the store for the others. Errors that concern a lost process carry it: peerOf(status).
class StoreClient {
 public:
  // Retries while the master is not up, until the deadline; Unavailable, naming it, when it was up and has been
  // refusing connections for a second since. PermissionDenied for a wrong token or job,
  // FailedPrecondition for another protocol version, NotFound when the host does not resolve.
  static absl::StatusOr<std::unique_ptr<StoreClient>> connect(const StoreClientOptions& options, Deadline deadline);
  virtual ~StoreClient() = default;

  // InvalidArgument for a key or value longer than the server takes, ResourceExhausted when it is full.
  virtual absl::Status set(const std::string& key, const std::string& value, Deadline deadline) = 0;
  // Waits until the key is set.
  virtual absl::StatusOr<std::string> get(const std::string& key, Deadline deadline) = 0;
  // Adds to a counter (0 when absent) and returns the sum.
  virtual absl::StatusOr<int64_t> add(const std::string& key, int64_t delta, Deadline deadline) = 0;
  // Ends the connection without failing the store for the others.
  virtual void farewell() = 0;
  // Ends the operation under way, on whichever thread, and all later ones with an error: for a process that must end
  // while its store does not answer. The store sees a client without a farewell.
  virtual void interrupt() = 0;
  // The local numeric address of this connection: the interface that reaches the master.
  virtual std::string localAddress() const = 0;
};

}  // namespace farhop::rpc
