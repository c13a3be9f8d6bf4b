// The RPC agent: one per process, one pipe per peer of its worker group, requests and replies over it.
//
// A message is one or more fixed little-endian headers (wire.h) and arrays that travel as TensorPipe
// payloads, received straight into the memory that the receiver names. Transport callbacks decode a header
// and post; handlers run on the agent's serving executor. Every call has an absolute deadline and exactly
// one completion. Requests to a peer that wait while another write is under way leave together as one
// message. Bytes under way to one peer are bounded; what exceeds the bound waits in line.
//
// Thread-safe unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "rpc/bytes.h"

namespace farhop::rpc {

enum class TransportKind { kInProcess, kUv, kShm };

// Of a request or reply, unless options say otherwise.
inline constexpr size_t kMaxMessageBytes = size_t{256} << 20;

struct AgentOptions {
  TransportKind transport = TransportKind::kUv;
  // Numeric address to listen on (the group's interface); unused in process and over shm.
  std::string bindAddress = "127.0.0.1";
  // This process's rank in its group (its machine index) and the group's size.
  int rank = 0;
  int size = 1;
  // Who the peers are, for messages; address is filled in at connect(). Same length as `size`.
  std::vector<PeerName> peers;
  std::string jobId;
  std::string token;
  int servingThreads = 1;
  // Limits, checked before anything is allocated.
  size_t maxMessageBytes = kMaxMessageBytes;
  size_t maxArraysPerMessage = 64;
  // Of requests to one peer whose reply has not come (one longer request may go alone; the rest waits in line),
  // and of replies to one peer that are not written yet (beyond it, its requests wait to be run).
  size_t maxInflightBytesPerPeer = size_t{64} << 20;
  // Calls to one peer that wait or are not answered; one more is ResourceExhausted.
  size_t maxQueuedCallsPerPeer = 4096;
  // Peers tell each other their limits, and keep to the smaller.
  // A peer that sends nothing for this long is lost. Heartbeats go out every quarter of it, or of the peer's.
  std::chrono::milliseconds peerTimeout{10'000};
  int maxConnectsUnderWay = 16;
};

// A request as its handler sees it. Owned by the handler.
struct Request {
  int peer = -1;
  uint16_t method = 0;
  std::vector<Bytes> arrays;
  Deadline deadline;
};

// Answers one request, once, from any thread; destroyed unanswered, it answers Internal.
class Responder {
 public:
  struct Impl;
  explicit Responder(std::shared_ptr<Impl> impl);
  Responder(Responder&&) noexcept;
  Responder& operator=(Responder&&) noexcept;
  ~Responder();
  void reply(std::vector<OutArray> arrays);
  void fail(absl::Status status);

 private:
  std::shared_ptr<Impl> impl_;
};

using Handler = std::function<void(Request, Responder)>;

// Where a reply's arrays go. allocate() runs on a transport thread, once per reply, and must only hand out
// memory. The memory must stay valid until the call's completion has run.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // One address per size; an error refuses the reply and becomes the call's status.
  virtual absl::StatusOr<std::vector<void*>> allocate(std::span<const size_t> sizes) = 0;
};

// The usual sink: arrays that the sink owns.
class BytesSink : public ReplySink {
 public:
  absl::StatusOr<std::vector<void*>> allocate(std::span<const size_t> sizes) override;
  std::vector<Bytes> arrays;
};

struct PeerTraffic {
  uint64_t bytesSent = 0;        // headers and payloads
  uint64_t bytesReceived = 0;
  uint64_t messagesSent = 0;     // TensorPipe messages, each with one or more requests or replies
  uint64_t callsSent = 0;
};

class Agent {
 public:
  // Completion of a call: OK, or what went wrong (peer losses carry the peer: peerOf(status)). Runs once, on any
  // thread, also inside a call into the agent that is about something else; so it must only post, and nobody may
  // hold a lock across calls into the agent that a completion takes. Any arrays are complete in the sink's
  // memory on OK. Whatever the status, the transport no longer touches the sink's memory, nor request arrays
  // that have no owner.
  using Completion = std::function<void(absl::Status)>;
  using PeerLost = std::function<void(int peer, absl::Status)>;

  // Opens the listener. Fails cleanly on a bad address.
  static absl::StatusOr<std::unique_ptr<Agent>> create(AgentOptions options);
  virtual ~Agent() = default;

  // Registers a method; at any time. Requests for a method that is not registered are answered Unimplemented.
  virtual void handle(uint16_t method, Handler handler) = 0;
  // Called once for each peer that is lost (not for one that has said farewell), on a thread of the agent's;
  // must only post. Set it before connect().
  virtual void onPeerLost(PeerLost callback) = 0;

  // What the others need to reach this agent ("uv://10.0.0.1:4321").
  virtual std::string address() const = 0;

  // Connects to every peer: this agent dials the lower ranks and is dialled by the higher ones. `addresses`
  // in rank order (the own one is ignored). Exchanges protocol version, job id and token as each pipe's first
  // message. A mismatch is an error that says which, PermissionDenied (job, token) or FailedPrecondition (version,
  // group size), on the side that dials; the other fails for a group size, but for another version, job or token
  // it only says so in its log and waits on, since any stranger can dial. InvalidArgument for a bad address,
  // DeadlineExceeded naming who is missing. Returns when all pipes are up and the listener is closed: its port refuses. Call once; after an
  // error only close() is left.
  virtual absl::Status connect(const std::vector<std::string>& addresses, Deadline deadline) = 0;

  // Sends a request. `sink` may be null when the reply carries no arrays. peer == rank is a caller's mistake.
  // Completes with the handler's failure; DeadlineExceeded; Unavailable (lost peer); Unimplemented (no handler);
  // InvalidArgument (longer than the limits); ResourceExhausted (too many under way, or too long a reply);
  // FailedPrecondition (before connect() or after farewell()); what the sink refused with; close()'s reason.
  // Throws std::bad_alloc only where nothing was begun: the completion then never runs.
  virtual void call(int peer, uint16_t method, std::vector<OutArray> arrays, Deadline deadline,
                    std::shared_ptr<ReplySink> sink, Completion completion) = 0;

  // Says that this process will ask nothing more, then waits until every peer has said so and all their
  // requests are answered. Own calls are awaited first. OK, or DeadlineExceeded naming who is missing, or the lost
  // peer. Peers that leave after their own farewell are not lost.
  virtual absl::Status farewell(Deadline deadline) = 0;

  // Fails everything under way with `reason`, closes the pipes, waits for running handlers and joins all threads;
  // a connect() or farewell() under way returns `reason`. Idempotent; the destructor does it too. Not from a
  // handler or callback.
  virtual void close(absl::Status reason) = 0;

  virtual PeerTraffic traffic() const = 0;  // sum over peers
};

}  // namespace farhop::rpc
