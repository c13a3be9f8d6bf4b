// Awaits several callbacks at once in a coroutine.
#pragma once

#include <atomic>
#include <coroutine>
#include <mutex>
#include <new>

#include "base/executor.h"
#include "base/status.h"

namespace farhop::sampler {

// begin() for each operation, finish() once from each completion (any thread), then co_await: resumes on the executor
// when all have finished and yields the first error. Lives in the coroutine's frame. The executor must outlive it and
// still take work.
class ReplyGroup {
 public:
  explicit ReplyGroup(Executor* executor) : executor_(executor) {}
  ReplyGroup(const ReplyGroup&) = delete;
  ReplyGroup& operator=(const ReplyGroup&) = delete;

  // Counts the operation that `start` starts. A `start` that throws must have started nothing (rpc::Agent::call()): the
  // operation then ends here, or the waiter would never be resumed.
  template <typename Start>
  void begin(Start start) {
    outstanding_.fetch_add(1, std::memory_order_relaxed);
    try {
      start();
    } catch (const std::bad_alloc&) {
      finish(absl::ResourceExhaustedError("out of memory"));
    }
  }

  void finish(const absl::Status& status) {
    if (!status.ok()) {
      std::lock_guard lock(mutex_);
      if (status_.ok()) status_ = status;
    }
    release();
  }

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) noexcept {
    waiter_ = waiter;
    // The awaiter's own share: false resumes at once when all completions came before.
    return outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1;
  }
  absl::Status await_resume() {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  void release() {
    // After the last decrement the frame that holds this may be gone.
    Executor* const executor = executor_;
    if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    executor->post([waiter = waiter_] { waiter.resume(); });
  }

  Executor* executor_;
  std::atomic<int> outstanding_{1};
  std::coroutine_handle<> waiter_;
  std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
};

}  // namespace farhop::sampler
