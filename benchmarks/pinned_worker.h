// A thread that stays on one core for the whole run, so that its allocator's memory, its caches and its workspace
// stay its own from one repetition to the next.
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "base/executor.h"
#include "base/status.h"

namespace farhop::benchmarks {

class PinnedWorker {
 public:
  static absl::StatusOr<std::unique_ptr<PinnedWorker>> start(int cpu);

  // Runs `work` on the thread; the future is ready when it has ended.
  std::future<void> post(std::function<void()> work);
  // post(), and waits.
  void run(std::function<void()> work) { post(std::move(work)).wait(); }

 private:
  explicit PinnedWorker(int cpu);

  Executor executor_;
};

}  // namespace farhop::benchmarks
