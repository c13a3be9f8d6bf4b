// A pull under way or over: what waits for it, who still wants it, and the memory that it fills.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"

namespace farhop::sampler {

// Memory for rows and what frees it.
struct PullMemory {
  std::byte* data = nullptr;
  std::shared_ptr<void> owner;
};

// Kept by the pull itself until nothing writes to the memory any more. Thread-safe.
class PendingPull {
 public:
  explicit PendingPull(std::vector<PullMemory> memory) : memory_(std::move(memory)) {}

  // One per feature, in the order of the request.
  const std::vector<PullMemory>& memory() const { return memory_; }

  // The pull's end: once.
  void finish(absl::Status status);
  // True once finish() was called; waits at most `limit`.
  bool waitFor(std::chrono::milliseconds limit) const;
  bool done() const { return waitFor(std::chrono::milliseconds(0)); }
  bool failed() const;
  // Of a pull that is done.
  absl::Status status() const;

  // Nobody wants it any more: nothing further is asked for.
  void cancel() { cancelled_->store(true, std::memory_order_relaxed); }
  const std::shared_ptr<std::atomic<bool>>& cancelled() const { return cancelled_; }

 private:
  const std::vector<PullMemory> memory_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  bool done_ = false;
  absl::Status status_;
};

// Whoever wants a pull's rows shares one of these: with the last the pull is cancelled, if it is still under way.
class PullHold {
 public:
  explicit PullHold(std::shared_ptr<PendingPull> pull) : pull_(std::move(pull)) {}
  ~PullHold() { pull_->cancel(); }
  PullHold(const PullHold&) = delete;
  PullHold& operator=(const PullHold&) = delete;
  PendingPull& pull() const { return *pull_; }

 private:
  const std::shared_ptr<PendingPull> pull_;
};

}  // namespace farhop::sampler
