// Progress of a long command on standard error: one line that is written over on a terminal, plain lines elsewhere
// (and on dumb terminals).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace farhop::launcher {

// Not thread-safe.
class StepProgress {
 public:
  // `command` begins each line.
  explicit StepProgress(std::string command);
  ~StepProgress();
  StepProgress(const StepProgress&) = delete;
  StepProgress& operator=(const StepProgress&) = delete;

  // `done` of `total` bytes of a step; another name begins another step. Cheap to call often: writes ten times a second on a
  // terminal, else when a step begins, every ten seconds, and when it ends. `total` 0: not known.
  void report(const std::string& step, uint64_t done, uint64_t total);
  // Ends the step under way.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void print(bool last);

  const std::string command_;
  const bool terminal_;
  std::string step_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  Clock::time_point begin_;
  Clock::time_point printed_;
  size_t width_ = 0;  // of the line that stands on the terminal
};

}  // namespace farhop::launcher
