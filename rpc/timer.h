// One thread that runs short functions at given times or as soon as it can, in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"

namespace farhop::rpc {

// Thread-safe.
class Timer {
 public:
  explicit Timer(const std::string& threadName);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Runs `work` soon, on the timer's thread; once stopped, at once on the caller's.
  void post(std::function<void()> work);
  // Runs `work` at `at`, or never when the timer is stopped before.
  void at(Clock::time_point at, std::function<void()> work);
  // Runs what was posted, drops what is not due, joins. Idempotent; not from the timer's own thread.
  void stop();

 private:
  struct Entry {
    Clock::time_point at;
    uint64_t order;
    std::function<void()> work;
    bool operator<(const Entry& other) const {  // the earliest on top of the heap
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  void run(const std::string& threadName);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> posted_;  // guarded by mutex_
  std::priority_queue<Entry> heap_;           // guarded by mutex_
  uint64_t order_ = 0;                        // guarded by mutex_
  bool stopping_ = false;                     // guarded by mutex_
  bool finished_ = false;                     // guarded by mutex_
  std::thread thread_;
};

}  // namespace farhop::rpc
