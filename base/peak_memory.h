// The most memory of its own that this process has at any time of a piece of work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace farhop {

// Looks every few milliseconds, on a thread of its own, at what this process has of anonymous and of shared memory:
// pages of mapped files, which the kernel takes back when it needs them, do not count.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  // Up to now.
  uint64_t bytes();

 private:
  void look();

  std::atomic<uint64_t> peak_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread watcher_;
};

}  // namespace farhop
