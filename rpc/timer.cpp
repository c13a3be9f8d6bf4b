#include "rpc/timer.h"

#include <exception>
#include <utility>

#include "base/executor.h"
#include "base/log.h"

namespace farhop::rpc {

Timer::Timer(const std::string& threadName) : thread_([this, threadName] { run(threadName); }) {}

Timer::~Timer() { stop(); }

void Timer::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (!finished_) {
      posted_.push_back(std::move(work));
      wake_.notify_one();
      return;
    }
  }
  work();
}

void Timer::at(Clock::time_point at, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  const bool earliest = heap_.empty() || at < heap_.top().at;
  heap_.push({at, order_++, std::move(work)});
  if (earliest) wake_.notify_one();
}

void Timer::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Timer::run(const std::string& threadName) {
  setThreadName(threadName);
  std::unique_lock lock(mutex_);
  for (;;) {
    std::function<void()> work;
    if (!posted_.empty()) {
      work = std::move(posted_.front());
      posted_.pop_front();
    } else if (stopping_) {
      finished_ = true;
      break;
    } else if (!heap_.empty() && heap_.top().at <= Clock::now()) {
      work = std::move(const_cast<Entry&>(heap_.top()).work);
      heap_.pop();
    } else if (heap_.empty()) {
      wake_.wait(lock);
      continue;
    } else {
      wake_.wait_until(lock, Clock::time_point(heap_.top().at));
      continue;
    }
    lock.unlock();
    try {
      work();
    } catch (const std::exception& error) {
      FARHOP_LOG(ERROR) << "a piece of work on " << threadName << " failed: " << error.what();
    }
    work = nullptr;
    lock.lock();
  }
  std::priority_queue<Entry> dropped;
  dropped.swap(heap_);
  lock.unlock();
}

}  // namespace farhop::rpc
