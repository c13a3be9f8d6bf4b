#include "partition/parallel.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace farhop::partition {
namespace {

constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

template <typename Work>
absl::Status guarded(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory; give less with --memory, or use a machine with more");
  }
}

// Deals items to threads, and remembers the first failure.
class Dealer {
 public:
  explicit Dealer(uint64_t items) : items_(items) {}

  uint64_t take() {
    const std::lock_guard lock(mutex_);
    return failed_ == kNone && next_ < items_ ? next_++ : kNone;
  }

  void fail(uint64_t item, absl::Status status) {
    const std::lock_guard lock(mutex_);
    if (item < failed_) failed_ = item, status_ = std::move(status);
    turned_.notify_all();
  }

  // Until all items before this one are finished. False when one of them has failed.
  bool waitForTurn(uint64_t item) {
    std::unique_lock lock(mutex_);
    turned_.wait(lock, [&] { return turn_ == item || failed_ < item; });
    return failed_ > item;
  }

  void endTurn() {
    const std::lock_guard lock(mutex_);
    ++turn_;
    turned_.notify_all();
  }

  absl::Status status() const { return status_; }

 private:
  const uint64_t items_;
  std::mutex mutex_;
  std::condition_variable turned_;
  uint64_t next_ = 0;        // guarded by mutex_, as all below
  uint64_t turn_ = 0;
  uint64_t failed_ = kNone;  // lowest item that failed
  absl::Status status_;
};

template <typename Loop>
void runOnThreads(int threads, uint64_t items, const Loop& loop) {
  const int count = static_cast<int>(std::clamp<uint64_t>(items, 1, static_cast<uint64_t>(std::max(1, threads))));
  std::vector<std::thread> others;
  for (int thread = 1; thread < count; ++thread) {
    try {
      others.emplace_back([&loop, thread] { loop(thread); });
    } catch (const std::system_error&) {
      break;  // those that run do the work
    }
  }
  loop(0);
  for (std::thread& other : others) other.join();
}

}  // namespace

absl::Status runInParallel(int threads, uint64_t items,
                           const std::function<absl::Status(uint64_t item, int thread)>& work) {
  Dealer dealer(items);
  runOnThreads(threads, items, [&](int thread) {
    for (uint64_t item = dealer.take(); item != kNone; item = dealer.take()) {
      absl::Status status = guarded([&] { return work(item, thread); });
      if (!status.ok()) dealer.fail(item, std::move(status));
    }
  });
  return dealer.status();
}

absl::Status runInOrder(int threads, uint64_t items, const OrderedWork& work) {
  Dealer dealer(items);
  runOnThreads(threads, items, [&](int thread) {
    for (uint64_t item = dealer.take(); item != kNone; item = dealer.take()) {
      absl::Status status = guarded([&] { return work.prepare(item, thread); });
      if (status.ok() && dealer.waitForTurn(item)) status = guarded([&] { return work.finish(item, thread); });
      if (!status.ok()) {
        dealer.fail(item, std::move(status));
      } else {
        dealer.endTurn();
      }
    }
  });
  return dealer.status();
}

}  // namespace farhop::partition
