#include "launcher/step_progress.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/progress_line.h"
#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

constexpr std::chrono::milliseconds kTerminalPeriod{100};
constexpr std::chrono::seconds kLinePeriod{10};

}  // namespace

StepProgress::StepProgress(std::string command)
    : command_(std::move(command)), terminal_(canRedraw()) {}

StepProgress::~StepProgress() { finish(); }

void StepProgress::report(const std::string& step, uint64_t done, uint64_t total) {
  const auto now = Clock::now();
  const bool begins = step != step_;
  if (begins) {
    finish();
    step_ = step;
    begin_ = now;
  }
  done_ = done;
  total_ = total;
  if (!begins && now - printed_ < (terminal_ ? Clock::duration(kTerminalPeriod) : Clock::duration(kLinePeriod))) return;
  printed_ = now;
  print(false);
}

void StepProgress::finish() {
  if (step_.empty()) return;
  print(true);
  step_.clear();
}

void StepProgress::print(bool last) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin_).count();
  std::string line = absl::StrCat(command_, ": ", step_);
  if (total_ > 0) absl::StrAppend(&line, ": ", formatBytes(done_), " of ", formatBytes(total_));
  if (elapsed > 0.1 && done_ > 0) {
    const double rate = static_cast<double>(done_) / elapsed;
    absl::StrAppend(&line, ", ", formatBytes(static_cast<uint64_t>(rate)), "/s");
    if (!last && total_ > done_) {
      absl::StrAppend(&line, ", ", formatFixed(static_cast<double>(total_ - done_) / rate, 0), " s left");
    }
  }
  if (last) absl::StrAppend(&line, ", took ", formatFixed(elapsed, 1), " s");
  if (!terminal_) {
    std::cerr << line << std::endl;
    return;
  }
  // A line that wraps could not be written over. The last of a step may: it stays.
  if (!last) line = fitColumns(line, terminalColumns() - 1);
  const size_t columns = columnsOf(line);
  const size_t shorter = width_ > columns ? width_ - columns : 0;
  std::cerr << '\r' << line << std::string(shorter, ' ') << (last ? "\n" : "") << std::flush;
  width_ = last ? 0 : columns;
}

}  // namespace farhop::launcher
