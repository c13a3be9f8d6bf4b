// One peer of an agent: its pipe, the calls and requests under way, and what is known of its health.
//
// Three independent flows meet here. Calls: wait for room (the in-flight bounds), are written, answered or
// expired. Requests from the peer: are read, run on the serving executor, answered. Writing: one message at a
// time; whatever gathers meanwhile goes out as the next one.
//
// Memory rule: a call's completion runs only when the transport does not touch the call's memory any more,
// neither borrowed request arrays that are being written nor sink memory that a reply is being read into.
//
// Thread-safe. The mutex is never held across a call to the pipe, a sink, a completion or a handler.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "rpc/agent_core.h"
#include "rpc/transport.h"

namespace farhop::rpc {

class PeerLink : public std::enable_shared_from_this<PeerLink> {
 public:
  PeerLink(std::shared_ptr<AgentCore> core, int rank, PeerName name);

  const PeerName& name() const { return name_; }

  // Takes over a pipe whose hellos are done, and starts reading. `hello` is the peer's.
  void start(std::shared_ptr<Pipe> pipe, const Hello& hello);

  void call(uint16_t method, std::vector<OutArray> arrays, Deadline deadline, std::shared_ptr<ReplySink> sink,
            Agent::Completion completion);
  // A responder's answer: arrays, or a failure. Dropped when the peer is gone.
  void answer(uint64_t id, size_t requestBytes, absl::StatusOr<std::vector<OutArray>> result);

  // Heartbeat and silence check, called a few times per peerTimeout. `forgive`: this process was not running
  // for a while itself, so silence counts from now.
  void tick(Clock::time_point now, bool forgive);

  void beginFarewell();
  // OK when both sides have said farewell and know it; Unavailable when the peer was lost; else empty.
  std::optional<absl::Status> farewellResult();

  // Ends the link; `lost` tells whether that is the peer's doing (and onPeerLost is to be called).
  void fail(absl::Status reason, bool lost);

  PeerTraffic traffic() const;

 private:
  // A call, from call() to its completion, and beyond: an expired one stays known until its reply has come, for
  // until then it takes up the peer's memory.
  struct Call {
    uint64_t id = 0;
    uint16_t method = 0;
    std::vector<OutArray> arrays;  // until written
    size_t bytes = 0;
    bool borrowed = false;  // some array is kept alive by the caller only
    Deadline deadline;
    std::shared_ptr<ReplySink> sink;
    Agent::Completion completion;
    bool waiting = true;   // for room
    bool writing = false;
    bool sent = false;      // writing has begun, so a reply may come
    bool reading = false;
    std::optional<absl::Status> outcome;
    bool completed = false;
  };
  using CallPointer = std::shared_ptr<Call>;

  struct Outgoing {
    Frame frame;
    std::vector<OutArray> arrays;
    size_t bytes = 0;
    CallPointer call;          // of a request
    size_t requestBytes = 0;   // of a reply: what answering gives back
  };
  struct Batch {
    OutMessage message;
    std::vector<Outgoing> items;
  };
  // A frame whose arrays are being read.
  struct Incoming {
    Frame frame;
    std::vector<Bytes> arrays;  // of a request; scratch of a dropped reply
    size_t bytes = 0;
    CallPointer call;                    // of a reply
    absl::Status status;                 // what the call ends with
  };
  struct HeldRequest {
    uint64_t id = 0;
    size_t bytes = 0;
    Request request;
  };
  struct Ended {
    Agent::Completion completion;
    absl::Status status;
    std::shared_ptr<ReplySink> sink;  // let go after the completion
  };
  using Finished = std::vector<Ended>;

  // Writing (peer_link.cpp).
  void pump();
  void collectBatch(Batch* batch);                      // under mutex_
  void addToBatch(Outgoing item, Batch* batch);         // under mutex_
  void onWritten(const std::shared_ptr<Batch>& batch, const absl::Status& status);
  void admitCalls();                                    // under mutex_
  void enqueueControl(FrameKind kind, uint8_t flags);   // under mutex_
  absl::Status admissionError(size_t bytes, size_t arrays) const;  // under mutex_

  // Ending calls (peer_link_end.cpp).
  void settle(const CallPointer& call, absl::Status outcome, Finished* finished);  // under mutex_
  void finishIfFree(const CallPointer& call, Finished* finished);                  // under mutex_
  void forget(const CallPointer& call);                                            // under mutex_
  static void run(Finished finished);
  void armExpiry();                                     // under mutex_
  void expireCalls();
  void dropEndedFromQueue(std::deque<Outgoing>* dropped);  // under mutex_

  void reportProgress();

  // Reading (peer_link_read.cpp).
  void readNext();
  void onDescriptor(absl::StatusOr<MessageDescriptor> descriptor);
  absl::Status prepare(Frame frame, std::span<const size_t> sizes, Incoming* incoming, std::vector<void*>* into);
  absl::Status prepareRequest(std::span<const size_t> sizes, Incoming* incoming, std::vector<void*>* into);
  absl::Status prepareReply(std::span<const size_t> sizes, Incoming* incoming, std::vector<void*>* into);
  void onRead(std::vector<Incoming> incoming, const absl::Status& status);
  void serve(Incoming incoming);
  void runRequest(HeldRequest held);

  const std::shared_ptr<AgentCore> core_;
  const int rank_;
  const PeerName name_;

  mutable std::mutex mutex_;
  // All below: guarded by mutex_.
  std::shared_ptr<Pipe> pipe_;
  absl::Status failure_;  // not OK once the link has ended
  bool left_ = false;     // ended after the peer's farewell
  Hello peerLimits_;

  uint64_t nextId_ = 1;
  std::unordered_map<uint64_t, CallPointer> calls_;
  std::set<std::pair<Clock::time_point, uint64_t>> expiries_;
  Clock::time_point armedFor_ = Clock::time_point::max();
  std::deque<CallPointer> waiting_;
  size_t inflightBytes_ = 0;  // of calls that do not wait and are not answered
  size_t inflightCalls_ = 0;

  std::deque<Outgoing> queue_;
  bool writing_ = false;
  Clock::time_point lastWrite_;
  std::chrono::milliseconds heartbeatEvery_{0};  // set by start()

  size_t requestsBytes_ = 0;  // of the peer's requests that are not answered yet
  size_t requests_ = 0;
  size_t replyBytes_ = 0;     // queued or being written
  std::deque<HeldRequest> held_;

  Clock::time_point lastHeard_;
  size_t readingBytes_ = 0;

  bool farewellBegun_ = false, farewellSent_ = false, farewellAcknowledged_ = false;
  bool peerFarewell_ = false;
  PeerTraffic traffic_;
};

// Turns an agent's Responder into an answer on the link its request came from.
struct Responder::Impl {
  std::weak_ptr<PeerLink> link;
  uint64_t id = 0;
  size_t requestBytes = 0;
  std::atomic<bool> answered{false};

  void answer(absl::StatusOr<std::vector<OutArray>> result) {
    if (answered.exchange(true)) return;
    if (auto target = link.lock()) target->answer(id, requestBytes, std::move(result));
  }
};

}  // namespace farhop::rpc
