#include "benchmarks/pinned_worker.h"

#include <utility>

#include "benchmarks/machine.h"

namespace farhop::benchmarks {

PinnedWorker::PinnedWorker(int cpu) : executor_(absl::StrCat("bench cpu ", cpu), 1) {}

absl::StatusOr<std::unique_ptr<PinnedWorker>> PinnedWorker::start(int cpu) {
  std::unique_ptr<PinnedWorker> worker(new PinnedWorker(cpu));
  absl::Status status;
  worker->run([&] { status = pinThread(cpu); });
  if (!status.ok()) return status;
  return worker;
}

std::future<void> PinnedWorker::post(std::function<void()> work) {
  auto task = std::make_shared<std::packaged_task<void()>>(std::move(work));
  std::future<void> done = task->get_future();
  executor_.post([task] { (*task)(); });
  return done;
}

}  // namespace farhop::benchmarks
