// How far a long step has come, for who shows it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace farhop::partition {

// Thread-safe. Steps follow each other; several threads advance one.
class ProgressMeter {
 public:
  struct Snapshot {
    std::string step;
    std::string unit;  // what is counted: "edges", "rows"
    uint64_t number = 0;  // of the step, from 1
    uint64_t done = 0, total = 0;
  };

  void begin(std::string step, std::string unit, uint64_t total) {
    const std::lock_guard lock(mutex_);
    current_ = {std::move(step), std::move(unit), current_.number + 1, 0, total};
    done_.store(0, std::memory_order_relaxed);
  }
  void advance(uint64_t units) { done_.fetch_add(units, std::memory_order_relaxed); }

  Snapshot snapshot() const {
    const std::lock_guard lock(mutex_);
    Snapshot snapshot = current_;
    snapshot.done = done_.load(std::memory_order_relaxed);
    return snapshot;
  }

 private:
  mutable std::mutex mutex_;
  Snapshot current_;  // guarded by mutex_, except for done, which is done_
  std::atomic<uint64_t> done_{0};
};

}  // namespace farhop::partition
