// Where the time of a batch goes, for whoever measures. Normally there is no clock: then each stage costs one
// branch on a null pointer.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace farhop::sampler {

enum class Stage {
  kBucket,     // numbering the seeds, sorting the frontier by partition
  kSerialize,  // building requests and handing them to the agent
  kOwnDraw,    // drawing from the own partitions
  kWait,       // from there to the resumption with all replies; the only one in wall-clock time
  kCheck,      // checking the replies and finding each relation's slices
  kRelabel,    // bringing rows in order, numbering, CSR
  kServeDecode,
  kServeDraw,
  kServeReply,  // handing the reply to the agent
  kCount
};

inline constexpr std::array<const char*, static_cast<size_t>(Stage::kCount)> kStageNames = {
    "bucket", "serialize", "own draw", "wait", "check replies", "relabel",
    "serve: decode", "serve: draw", "serve: reply"};

// Sums per stage, over all threads. Thread-safe.
class StageClock {
 public:
  using Sums = std::array<std::chrono::nanoseconds, static_cast<size_t>(Stage::kCount)>;

  void add(Stage stage, std::chrono::nanoseconds time) {
    nanoseconds_[static_cast<size_t>(stage)].fetch_add(time.count(), std::memory_order_relaxed);
  }
  Sums sums() const {
    Sums sums{};
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = std::chrono::nanoseconds(nanoseconds_[i].load(std::memory_order_relaxed));
    }
    return sums;
  }

 private:
  std::array<std::atomic<int64_t>, static_cast<size_t>(Stage::kCount)> nanoseconds_{};
};

// Splits what one thread does into stages that follow each other. By the thread's processor time, so that other
// threads on its core do not count. `clock` may be null; otherwise it must outlive this.
class StageTimer {
 public:
  explicit StageTimer(StageClock* clock) : clock_(clock) {
    if (clock_ != nullptr) [[unlikely]] restart();
  }
  // What was done since the last call belongs to `stage`.
  void end(Stage stage) {
    if (clock_ != nullptr) [[unlikely]] {
      const auto before = threadTime_;
      restart();
      clock_->add(stage, threadTime_ - before);
    }
  }
  // Likewise, of a wait that may have ended on another thread.
  void endWait(Stage stage) {
    if (clock_ != nullptr) [[unlikely]] {
      const auto before = wallTime_;
      restart();
      clock_->add(stage, wallTime_ - before);
    }
  }

 private:
  void restart() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    threadTime_ = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    wallTime_ = std::chrono::steady_clock::now();
  }

  StageClock* clock_;
  std::chrono::nanoseconds threadTime_{0};
  std::chrono::steady_clock::time_point wallTime_;
};

}  // namespace farhop::sampler
