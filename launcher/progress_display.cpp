#include "launcher/progress_display.h"

#include <pthread.h>
#include <signal.h>

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/progress_line.h"

namespace farhop::launcher {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};
constexpr double kPlainPeriodSeconds = 1;

double secondsSince(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point now) {
  return std::chrono::duration<double>(now - begin).count();
}

}  // namespace

bool PlainLinePace::due(const partition::ProgressMeter::Snapshot& snapshot, double seconds) {
  if (snapshot.number != step_) {
    step_ = snapshot.number;
    tenth_ = 0;
    printed_ = seconds;
  }
  if (snapshot.total == 0 || snapshot.done >= snapshot.total || seconds - printed_ < kPlainPeriodSeconds) return false;
  const auto tenth =
      static_cast<uint64_t>(10 * static_cast<double>(snapshot.done) / static_cast<double>(snapshot.total));
  if (tenth <= tenth_) return false;
  tenth_ = tenth;
  printed_ = seconds;
  return true;
}

ProgressStyle progressStyleOfStderr() { return canRedraw() ? ProgressStyle::kBar : ProgressStyle::kPlainLines; }

ProgressDisplay::ProgressDisplay(std::string command, ProgressStyle style)
    : command_(std::move(command)), style_(style), stepBegin_(Clock::now()) {
  if (style_ == ProgressStyle::kNone) return;
  // A signal must come to the thread that guards itself against it (partition/termination_guard.h), never to this one.
  sigset_t all, previous;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &previous);
  watcher_ = std::thread([this] { watch(); });
  ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

ProgressDisplay::~ProgressDisplay() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ended_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  const std::lock_guard lock(mutex_);
  eraseBar();
}

void ProgressDisplay::line(const std::string& text) {
  if (style_ == ProgressStyle::kNone) return;
  const std::lock_guard lock(mutex_);
  eraseBar();
  std::cerr << absl::StrCat(command_, ": ", text, "\n") << std::flush;
}

void ProgressDisplay::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kPeriod, [this] { return stop_; })) {
    show(meter_.snapshot(), Clock::now());
  }
}

void ProgressDisplay::show(const partition::ProgressMeter::Snapshot& snapshot, Clock::time_point now) {
  if (snapshot.number != step_) {
    step_ = snapshot.number;
    stepBegin_ = now;
  }
  const double elapsed = secondsSince(stepBegin_, now);
  if (style_ == ProgressStyle::kPlainLines) {
    if (!pace_.due(snapshot, secondsSince(Clock::time_point(), now))) return;
    std::cerr << absl::StrCat(command_, ": ", plainProgressLine(snapshot, elapsed), "\n") << std::flush;
    return;
  }
  // What has ended says nothing about the work without a meter that may follow it.
  if (snapshot.total == 0 || snapshot.done >= snapshot.total) return eraseBar();
  // The last column stays free: terminals differ in whether it wraps.
  const std::string bar = progressLine(snapshot, elapsed, terminalColumns() - 1);
  const size_t columns = columnsOf(bar);
  const std::string blanks(barColumns_ > columns ? barColumns_ - columns : 0, ' ');
  std::cerr << absl::StrCat("\r", bar, blanks) << std::flush;
  barColumns_ = columns;
}

void ProgressDisplay::eraseBar() {
  if (barColumns_ == 0) return;
  std::cerr << absl::StrCat("\r", std::string(barColumns_, ' '), "\r") << std::flush;
  barColumns_ = 0;
}

}  // namespace farhop::launcher
