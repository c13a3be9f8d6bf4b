// A named pool of threads that runs posted work in order of arrival.
//
// TensorPipe and socket callbacks only decode and post; whatever samples, gathers or waits runs on one of
// these. Thread names show up in top -H and perf.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace farhop {

class Executor {
 public:
  // Starts `threads` threads (at least 1) named "name/0", "name/1", ... (cut to 15 characters).
  Executor(std::string name, int threads);
  // shutdown().
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs `work` on some thread, in order of posting per thread pool. Never blocks. Returns false, without
  // running `work`, once shutdown() has begun. `work` must not throw.
  bool post(std::function<void()> work);

  // Runs what was posted before, then joins. Idempotent; not callable from one of its own threads.
  void shutdown();

  int threads() const { return static_cast<int>(threads_.size()); }
  size_t backlog() const;

 private:
  void run(int index);

  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::vector<std::thread> threads_;
};

// Names the calling thread (cut to 15 characters).
void setThreadName(const std::string& name);

}  // namespace farhop
