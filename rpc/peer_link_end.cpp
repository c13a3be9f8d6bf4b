// How a peer's calls end: with their reply, at their deadline, or with the link.
#include <algorithm>
#include <utility>

#include "rpc/peer_link.h"

namespace farhop::rpc {

void PeerLink::run(Finished finished) {
  for (Ended& ended : finished) ended.completion(std::move(ended.status));
}

void PeerLink::finishIfFree(const CallPointer& call, Finished* finished) {
  if (!call->outcome || call->completed || call->reading || (call->writing && call->borrowed)) return;
  call->completed = true;
  expiries_.erase({call->deadline.at(), call->id});
  finished->push_back({std::move(call->completion), *call->outcome, std::move(call->sink)});
}

void PeerLink::settle(const CallPointer& call, absl::Status outcome, Finished* finished) {
  if (call->outcome) return;
  call->outcome = std::move(outcome);
  finishIfFree(call, finished);
}

void PeerLink::forget(const CallPointer& call) {
  if (calls_.erase(call->id) == 0 || call->waiting) return;
  inflightBytes_ -= call->bytes;
  --inflightCalls_;
}

void PeerLink::armExpiry() {
  if (expiries_.empty() || expiries_.begin()->first >= armedFor_) return;
  const Clock::time_point first = expiries_.begin()->first;
  core_->timer.at(first, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->expireCalls();
  });
  armedFor_ = first;  // after what may throw: nobody would arm it again
}

// A call that ended while its request stood in line is never sent, so no reply to it will come.
void PeerLink::dropEndedFromQueue(std::deque<Outgoing>* dropped) {
  auto ended = std::stable_partition(queue_.begin(), queue_.end(), [](const Outgoing& item) {
    return item.call == nullptr || !item.call->completed;
  });
  for (auto item = ended; item != queue_.end(); ++item) {
    forget(item->call);
    dropped->push_back(std::move(*item));
  }
  queue_.erase(ended, queue_.end());
}

void PeerLink::expireCalls() {
  Finished finished;
  std::vector<CallPointer> ended;  // these two are destroyed outside the lock
  std::deque<Outgoing> dropped;
  {
    std::lock_guard lock(mutex_);
    armedFor_ = Clock::time_point::max();
    const auto now = Clock::now();
    while (!expiries_.empty() && expiries_.begin()->first <= now) {
      auto found = calls_.find(expiries_.begin()->second);
      expiries_.erase(expiries_.begin());
      if (found == calls_.end()) continue;
      CallPointer call = found->second;
      settle(call, absl::DeadlineExceededError(absl::StrCat("method ", call->method, " of ", describePeer(name_),
                                                            " was not answered in time")),
             &finished);
      if (call->waiting) {
        waiting_.erase(std::find(waiting_.begin(), waiting_.end(), call));
        forget(call);
      }
      ended.push_back(std::move(call));
    }
    dropEndedFromQueue(&dropped);
    armExpiry();
  }
  run(std::move(finished));
  pump();
  reportProgress();
}

void PeerLink::fail(absl::Status reason, bool lost) {
  Finished finished;
  std::deque<Outgoing> queue;
  std::deque<CallPointer> waiting;
  std::deque<HeldRequest> held;
  std::unordered_map<uint64_t, CallPointer> calls;
  std::shared_ptr<Pipe> pipe;
  absl::Status failure;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    if (lost && peerFarewell_) {
      left_ = true;
      failure_ = withPeer(absl::UnavailableError(absl::StrCat(describePeer(name_), " has left the group")), name_);
    } else if (lost) {
      failure_ = withPeer(absl::UnavailableError(
                              absl::StrCat(describePeer(name_), " was lost: ", reason.message())), name_);
    } else {
      failure_ = reason.ok() ? absl::CancelledError("the agent is closed") : std::move(reason);
    }
    failure = failure_;
    lost = lost && !left_;
    queue.swap(queue_);
    waiting.swap(waiting_);
    held.swap(held_);
    calls.swap(calls_);
    pipe = std::move(pipe_);
    for (auto& [id, call] : calls) settle(call, failure_, &finished);
    expiries_.clear();
    inflightBytes_ = inflightCalls_ = 0;
  }
  if (pipe != nullptr) pipe->close();
  run(std::move(finished));
  if (lost) {
    Agent::PeerLost callback;
    {
      std::lock_guard lock(core_->mutex);
      callback = core_->peerLost;
    }
    if (callback) callback(rank_, failure);
  }
  core_->notifyProgress();
}

}  // namespace farhop::rpc
