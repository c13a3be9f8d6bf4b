// What the agent needs of a transport: message pipes between processes. Implementations: TensorPipe over TCP
// (uv) or shared memory (shm), and queues within one process.
//
// Every callback given to a pipe or transport runs exactly once, also when the pipe is closed, on a thread of
// the transport's or inside a call to it from any thread; so no lock may be held across such calls, and
// callbacks may only decode and post. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "rpc/agent.h"
#include "rpc/bytes.h"

namespace farhop::rpc {

struct OutMessage {
  std::string metadata;
  std::vector<OutArray> arrays;  // borrowed (and owners kept) until the write's callback
};

struct MessageDescriptor {
  std::string metadata;
  std::vector<size_t> arraySizes;
};

class Pipe {
 public:
  using Done = std::function<void(absl::Status)>;
  virtual ~Pipe() = default;

  // Messages arrive in the order of writing. The callback says that the memory is free again, not that the
  // other side has read.
  virtual void write(OutMessage message, Done done) = 0;
  // The next message's description. After an OK one, read() must follow before the next readDescriptor().
  virtual void readDescriptor(std::function<void(absl::StatusOr<MessageDescriptor>)> done) = 0;
  // Receives the described arrays into `into`, one address per array (any for empty ones). The memory belongs
  // to the pipe until the callback, whether it succeeds or not.
  virtual void read(std::vector<void*> into, Done done) = 0;
  // Fails what is under way and to come. Idempotent. Messages written but not yet read by the other side may
  // be lost (over shm they are).
  virtual void close() = 0;
};

class Transport {
 public:
  using Accepted = std::function<void(absl::StatusOr<std::shared_ptr<Pipe>>)>;
  virtual ~Transport() = default;

  // Opens the listener and returns its address. Once.
  virtual absl::StatusOr<std::string> listen(const std::string& bindAddress) = 0;
  // The next incoming pipe.
  virtual void accept(Accepted done) = 0;
  // Returns when the listener is really gone: new connections are refused. Pipes live on. Idempotent.
  virtual absl::Status closeListener(Deadline deadline) = 0;
  // A pipe to a listener elsewhere; failures to connect show on its first operations. InvalidArgument when
  // `address` is none of this transport's.
  virtual absl::StatusOr<std::shared_ptr<Pipe>> connect(const std::string& address) = 0;
  // Closes listener and pipes and joins all threads; every callback has run when it returns. Idempotent. Not
  // callable from a callback.
  virtual void shutdown() = 0;
};

// Unavailable where the transport does not work here.
absl::StatusOr<std::unique_ptr<Transport>> makeTransport(TransportKind kind);

}  // namespace farhop::rpc
