// Chunks that are late, and the end of all.
#include "sampler/bulk_fetches.h"

namespace farhop::sampler {

void BulkFetches::schedule() {
  Clock::time_point at;
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || watched_.empty() || watched_.begin()->first >= nextTick_) return;
    at = nextTick_ = watched_.begin()->first;
  }
  timer_.at(at, [weak = weak_from_this()] {
    if (const std::shared_ptr<BulkFetches> self = weak.lock()) self->tick();
  });
}

void BulkFetches::tick() {
  std::vector<std::shared_ptr<BulkFetch>> late;
  {
    std::lock_guard lock(mutex_);
    nextTick_ = Clock::time_point::max();
    const auto now = Clock::now();
    for (auto& [at, fetch] : watched_) {
      if (at > now) break;
      late.push_back(fetch);
    }
  }
  for (const std::shared_ptr<BulkFetch>& fetch : late) expire(fetch);
  schedule();
}

void BulkFetches::expire(const std::shared_ptr<BulkFetch>& fetch) {
  const std::string owner = describePeer(options_.peers[static_cast<size_t>(fetch->machine)]);
  const absl::Status status =
      named(absl::DeadlineExceededError(absl::StrCat(owner, " had not sent all rows at the deadline")), fetch->machine);
  Done done;
  absl::Status reason = status;
  bool hopeless = false;
  {
    std::lock_guard lock(mutex_);
    if (!fetch->watched) return;
    if (fetch->state == State::kInLine) {
      std::erase(peers_[static_cast<size_t>(fetch->machine)].inLine, fetch);
      fetch->state = State::kSettled;
      unwatch(fetch.get());
      done = take(fetch.get());
    } else if (fetch->state == State::kUnderWay) {
      hopeless = fetch->memory.lands() || !fetch->done;
      if (!hopeless) {
        // Nobody waits for the staging buffer; it is used again when its owner has ended the chunk.
        done = take(fetch.get());
        watch(fetch, Clock::now() + options_.grace + kUntouchedTimeout);
      }
    } else {
      // The provider cannot tell: the transport keeps the destination, as does this.
      unwatch(fetch.get());
      reason = fetch->status;
      done = std::exchange(fetch->done, nullptr);
    }
  }
  if (hopeless) giveUp(fetch, status);
  if (done) done(reason);
}

void BulkFetches::stop() {
  std::vector<std::shared_ptr<BulkFetch>> left;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    for (auto& [at, fetch] : watched_) left.push_back(fetch);
  }
  for (const std::shared_ptr<BulkFetch>& fetch : left) {
    Done done;
    bool isOpen = false;
    {
      std::lock_guard lock(mutex_);
      isOpen = fetch->state == State::kUnderWay;
      fetch->state = State::kSettled;
      unwatch(fetch.get());
      done = take(fetch.get());
    }
    if (isOpen) {
      if (fetch->slot) options_.slots->retire(*fetch->slot);
      fetch->memory.leaveToTransport();
    }
    if (done) done(absl::CancelledError("nobody pulls features any more"));
  }
  timer_.stop();
  executor_.shutdown();
}

}  // namespace farhop::sampler
