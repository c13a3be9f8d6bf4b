// Shows on standard error how far `farhop partition` has come, from a thread that watches a ProgressMeter.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "partition/progress_meter.h"

namespace farhop::launcher {

// When a step that is under way deserves a plain line: at every tenth of it, at most one a second.
class PlainLinePace {
 public:
  // `seconds` on any clock that does not go back.
  bool due(const partition::ProgressMeter::Snapshot& snapshot, double seconds);

 private:
  uint64_t step_ = 0;
  uint64_t tenth_ = 0;
  double printed_ = 0;
};

enum class ProgressStyle { kNone, kPlainLines, kBar };

// A bar where a line can be written over, else plain lines.
ProgressStyle progressStyleOfStderr();

// Thread-safe. The thread takes no signals.
class ProgressDisplay {
 public:
  // `command` begins each line.
  ProgressDisplay(std::string command, ProgressStyle style);
  // Ends the thread and removes the bar.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // What the steps under way advance.
  partition::ProgressMeter* meter() { return &meter_; }
  // A line that stays, above the bar.
  void line(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  void watch();
  void show(const partition::ProgressMeter::Snapshot& snapshot, Clock::time_point now);
  void eraseBar();  // needs mutex_

  const std::string command_;
  const ProgressStyle style_;
  partition::ProgressMeter meter_;
  // Held while a line is written, which is what it guards: two at once would run into each other.
  std::mutex mutex_;
  std::condition_variable ended_;
  bool stop_ = false;
  size_t barColumns_ = 0;  // of the bar that stands there
  // Of the watching thread alone.
  uint64_t step_ = 0;
  Clock::time_point stepBegin_;
  PlainLinePace pace_;
  std::thread watcher_;
};

}  // namespace farhop::launcher
