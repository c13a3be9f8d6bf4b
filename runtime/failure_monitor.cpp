#include "runtime/failure_monitor.h"

#include <utility>

#include "base/log.h"

namespace farhop::runtime {

bool FailureMonitor::record(const absl::Status& failure) {
  if (failure.ok()) return false;
  {
    std::lock_guard lock(mutex_);
    if (ignoring_ || !failure_.ok()) return false;
    failure_ = failure;
    failedAt_ = Clock::now();
    runner_ = std::this_thread::get_id();
  }
  changed_.notify_all();
  FARHOP_LOG(ERROR) << failure.message();
  // One listener at a time, the lock released while it runs: it may itself call back into this monitor.
  for (;;) {
    Listener listener;
    {
      std::lock_guard lock(mutex_);
      running_ = -1;
      if (!listeners_.empty()) {
        auto first = listeners_.begin();
        running_ = first->first;
        listener = std::move(first->second);
        listeners_.erase(first);
      }
    }
    changed_.notify_all();
    if (!listener) return true;
    listener(failure);
  }
}

void FailureMonitor::ignoreFurther() {
  std::lock_guard lock(mutex_);
  ignoring_ = true;
}

absl::Status FailureMonitor::status() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

bool FailureMonitor::failed() const {
  std::lock_guard lock(mutex_);
  return !failure_.ok();
}

Clock::time_point FailureMonitor::failedAt() const {
  std::lock_guard lock(mutex_);
  return failedAt_;
}

bool FailureMonitor::waitFor(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), [&] { return !failure_.ok(); });
}

int FailureMonitor::addListener(Listener listener) {
  absl::Status failure;
  {
    std::lock_guard lock(mutex_);
    if (failure_.ok()) {
      listeners_[nextListener_] = std::move(listener);
      return nextListener_++;
    }
    failure = failure_;
  }
  listener(failure);
  return -1;
}

void FailureMonitor::removeListener(int id) {
  if (id < 0) return;
  std::unique_lock lock(mutex_);
  listeners_.erase(id);
  if (runner_ == std::this_thread::get_id()) return;
  changed_.wait(lock, [&] { return running_ != id; });
}

}  // namespace farhop::runtime
