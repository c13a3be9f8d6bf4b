// The transport's thread.
#include <algorithm>
#include <utility>

#include "base/executor.h"
#include "rpc/bulk_engine.h"

namespace farhop::rpc {

using std::chrono::milliseconds;

void BulkEngine::run() {
  setThreadName("farhop-bulk");
  for (;;) {
    wakePending_ = false;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    bool busy = takeSubmitted();
    dropRequestedPeers();
    stopListeningIfAsked();
    busy |= handleCompletions();
    const auto now = Clock::now();
    if (now >= nextDeadline_) expire(now);
    busy |= postWaiting();
    if (busy) {
      retryDelay_ = kFirstRetry;
    } else {
      nextDeadline_ = std::min(nextDeadline_, regions_->expireDrains(now));
      device_->wait(sleepMs(now));
      retryDelay_ = std::min(2 * retryDelay_, kLastRetry);
    }
  }
  absl::Status reason;
  {
    std::lock_guard lock(mutex_);
    reason = closeReason_;
  }
  device_->close();
  failEverything(reason);
  regions_->closeAll();
}

int BulkEngine::sleepMs(Clock::time_point now) const {
  auto until = nextDeadline_;
  if (retry_) until = std::min(until, now + retryDelay_);
  if (until == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

bool BulkEngine::takeSubmitted() {
  std::lock_guard lock(mutex_);
  if (!connected_) return false;
  bool any = false;
  for (Peer& peer : peers_) {
    for (Transfer& transfer : peer.submitted) {
      nextDeadline_ = std::min(nextDeadline_, transfer.what.deadline.at());
      peer.waiting.push_back(std::move(transfer));
      any = true;
    }
    peer.submitted.clear();
  }
  return any;
}

bool BulkEngine::handleCompletions() {
  completions_.clear();
  device_->poll(&completions_);
  if (completions_.empty()) return false;
  Arrival arrival;
  {
    std::lock_guard lock(mutex_);
    arrival = arrival_;
    for (const DeviceCompletion& completion : completions_) traffic_.arrivals += completion.isArrival ? 1 : 0;
  }
  for (DeviceCompletion& completion : completions_) {
    if (completion.isArrival) {
      if (arrival) arrival(completion.data);
      continue;
    }
    auto posted = posted_.find(completion.id);
    if (posted == posted_.end()) continue;
    const int peer = posted->second.peer;
    finishPosted(posted, completion.status);
    // The connection broke. What waits for it need not wait for its deadline; what comes later gets a new one.
    if (!completion.status.ok()) failWaiting(peer, completion.status);
  }
  return true;
}

bool BulkEngine::postWaiting() {
  retry_ = false;
  bool any = false;
  for (size_t i = 0; i < peers_.size(); ++i) {
    while (postOne(peers_[i], static_cast<int>(i))) any = true;
  }
  return any;
}

// Posts, or ends, the first transfer in line; false when none can be posted now.
bool BulkEngine::postOne(Peer& peer, int number) {
  if (peer.waiting.empty() || peer.dropped || peer.inFlight >= maxPerPeer_) return false;
  Transfer& first = peer.waiting.front();
  if (peer.inFlight > 0 && peer.inFlightBytes + first.what.bytes > options_.maxInFlightBytesPerPeer) return false;
  DeviceTransfer transfer{.id = nextId_,
                          .isRead = first.isRead,
                          .peer = number,
                          .local = nullptr,
                          .bytes = first.what.bytes,
                          .regionHandle = nullptr,
                          .remoteAddress = first.what.remote.address + first.what.remoteOffset,
                          .remoteKey = first.what.remote.key,
                          .data = first.what.data};
  if (first.registration != nullptr && first.what.bytes > 0) {
    transfer.local = first.registration->memory.data() + first.what.localOffset;
    transfer.regionHandle = first.registration->device.handle;
  }
  const absl::StatusOr<bool> started = device_->post(transfer);
  if (started.ok() && !*started) {
    retry_ = true;
    return false;
  }
  Transfer taken = std::move(first);
  peer.waiting.pop_front();
  {
    std::lock_guard lock(mutex_);
    --peer.inLine;
  }
  if (!started.ok()) {
    const absl::Status status = named(started.status(), number, taken);
    end(std::move(taken), status);
    return true;
  }
  ++peer.inFlight;
  peer.inFlightBytes += taken.what.bytes;
  posted_.emplace(nextId_++, Posted{std::move(taken), number});
  return true;
}

void BulkEngine::finishPosted(std::unordered_map<uint64_t, Posted>::iterator posted, absl::Status status) {
  Posted finished = std::move(posted->second);
  posted_.erase(posted);
  Peer& peer = peers_[static_cast<size_t>(finished.peer)];
  --peer.inFlight;
  peer.inFlightBytes -= finished.transfer.what.bytes;
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    (finished.transfer.isRead ? traffic_.bytesRead : traffic_.bytesWritten) += finished.transfer.what.bytes;
    ++(finished.transfer.isRead ? traffic_.reads : traffic_.writes);
  } else {
    // A lost peer's reason says more than the fabric's.
    absl::Status lost;
    {
      std::lock_guard lock(mutex_);
      lost = peer.lost;
    }
    status = named(lost.ok() ? status : lost, finished.peer, finished.transfer);
  }
  end(std::move(finished.transfer), std::move(status));
}

void BulkEngine::end(Transfer transfer, absl::Status status) {
  if (transfer.registration != nullptr) regions_->endTransfer(transfer.registration);
  // The region may go before its user is told.
  transfer.what.local = nullptr;
  if (transfer.done) transfer.done(std::move(status));
}

void BulkEngine::dropRequestedPeers() {
  std::vector<std::pair<int, absl::Status>> requested;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (!std::exchange(peers_[i].dropRequested, false)) continue;
      requested.emplace_back(static_cast<int>(i), peers_[i].lost);
    }
  }
  for (const auto& [number, reason] : requested) dropPeer(number, reason);
}

void BulkEngine::stopListeningIfAsked() {
  std::vector<Done> asked;
  {
    std::lock_guard lock(mutex_);
    asked.swap(listeningEnds_);
  }
  if (asked.empty()) return;
  const absl::Status status = device_->stopListening();
  for (Done& done : asked) done(status);
}

void BulkEngine::failWaiting(int number, const absl::Status& reason) {
  Peer& peer = peers_[static_cast<size_t>(number)];
  Queue unsent = std::exchange(peer.waiting, {});
  {
    std::lock_guard lock(mutex_);
    for (Transfer& transfer : peer.submitted) unsent.push_back(std::move(transfer));
    peer.submitted.clear();
    peer.inLine = 0;
  }
  for (Transfer& transfer : unsent) {
    const absl::Status status = named(reason, number, transfer);
    end(std::move(transfer), status);
  }
}

void BulkEngine::dropPeer(int number, const absl::Status& reason) {
  Peer& peer = peers_[static_cast<size_t>(number)];
  const bool untouched = device_->dropPeer(number);
  peer.dropped = true;
  failWaiting(number, reason);
  handleCompletions();  // the fabric's own errors for what was under way
  if (untouched) {
    for (auto posted = posted_.begin(); posted != posted_.end();) {
      auto next = std::next(posted);
      if (posted->second.peer == number) finishPosted(posted, reason);
      posted = next;
    }
  } else {
    for (auto& [id, posted] : posted_) {
      if (posted.peer != number || !posted.transfer.done) continue;
      std::exchange(posted.transfer.done, nullptr)(named(reason, number, posted.transfer));
    }
  }
  if (untouched || device_->unregisteringIsFinal()) regions_->revokeAll(number);
}

// Ends what is late. What the device has begun cannot be called back: its user is told, its region stays in use.
void BulkEngine::expire(Clock::time_point now) {
  auto next = Clock::time_point::max();
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    Queue kept, late;
    for (Transfer& transfer : peer.waiting) {
      const bool isLate = transfer.what.deadline.at() <= now;
      if (!isLate) next = std::min(next, transfer.what.deadline.at());
      (isLate ? late : kept).push_back(std::move(transfer));
    }
    peer.waiting = std::move(kept);
    if (late.empty()) continue;
    {
      std::lock_guard lock(mutex_);
      peer.inLine -= late.size();
    }
    for (Transfer& transfer : late) {
      const absl::Status status = named(
          absl::DeadlineExceededError(peer.inFlight > 0 ? "still waiting behind other transfers at the deadline"
                                                        : "no connection could be made before the deadline"),
          static_cast<int>(i), transfer);
      end(std::move(transfer), status);
    }
  }
  for (auto& [id, posted] : posted_) {
    if (!posted.transfer.done) continue;
    if (posted.transfer.what.deadline.at() > now) {
      next = std::min(next, posted.transfer.what.deadline.at());
      continue;
    }
    std::exchange(posted.transfer.done, nullptr)(
        named(absl::DeadlineExceededError("not complete at the deadline"), posted.peer, posted.transfer));
  }
  nextDeadline_ = std::min(next, regions_->expireDrains(now));
}

void BulkEngine::failEverything(const absl::Status& reason) {
  std::vector<Transfer> all;
  std::vector<Done> asked;
  {
    std::lock_guard lock(mutex_);
    asked.swap(listeningEnds_);
    for (Peer& peer : peers_) {
      for (Queue* queue : {&peer.waiting, &peer.submitted}) {
        for (Transfer& transfer : *queue) all.push_back(std::move(transfer));
        queue->clear();
      }
      peer.inLine = peer.inFlight = peer.inFlightBytes = 0;
    }
  }
  for (auto& [id, posted] : posted_) all.push_back(std::move(posted.transfer));
  posted_.clear();
  for (Transfer& transfer : all) end(std::move(transfer), reason);
  for (Done& done : asked) done(reason);
}

}  // namespace farhop::rpc
