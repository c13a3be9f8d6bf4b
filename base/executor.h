// A named pool of threads that runs posted work in order of arrival.
//
// TensorPipe and socket callbacks only decode and post; whatever samples, gathers or waits runs on one of
// these. Thread names show up in top -H and perf.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace farhop {

class Executor {
 public:
  // Starts `threads` threads (at least 1) named "name/0", "name/1", ... (cut to 15 characters).
  Executor(std::string name, int threads);
  // shutdown(). May also run on one of its own threads, when the work there drops the last reference to
  // whatever owns this: that thread then ends by itself after its work.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs `work` on some thread, in order of posting per thread pool. Never blocks. Returns false, without
  // running `work`, once shutdown() has begun. `work` should not throw: who waits for it would not hear why. What it
  // throws all the same (most likely for want of memory) is logged as an ERROR and ends that work only.
  bool post(std::function<void()> work);

  // Runs what was posted before, then joins all threads but the calling one. Idempotent.
  void shutdown();

  int threads() const { return static_cast<int>(threads_.size()); }
  size_t backlog() const;

 private:
  // Shared with the threads, one of which may outlive the executor for a moment.
  struct State {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> queue;  // guarded by mutex
    bool stopping = false;                    // guarded by mutex
  };
  static void run(const std::shared_ptr<State>& state, const std::string& threadName);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<std::thread> threads_;
};

// Names the calling thread (cut to 15 characters).
void setThreadName(const std::string& name);

}  // namespace farhop
