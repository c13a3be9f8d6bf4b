#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "launcher/progress_display.h"
#include "launcher/progress_line.h"

namespace farhop::launcher {
namespace {

using ::testing::HasSubstr;

partition::ProgressMeter::Snapshot stepAt(uint64_t done, uint64_t number = 1) {
  return {"a:b:c: sorting", "edges", number, done, 1000000};
}

TEST(ProgressLine, ShowsStepShareRateAndTimeLeft_WithinTheWidth) {
  EXPECT_EQ(progressLine(stepAt(250000), 2, 80),
            "a:b:c: sorting  [#######.....................]   25 %  125,000 edges/s  6 s left");
  EXPECT_EQ(progressLine(stepAt(250000), 2, 44), "a:b:c: sor   25 %  125,000 edges/s  6 s left");
  EXPECT_EQ(progressLine(stepAt(999999), 1000, 200).substr(47), "]   99 %  999 edges/s  1 s left");
  for (size_t columns = 0; columns < 120; ++columns) {
    for (const uint64_t done : {uint64_t{0}, uint64_t{1}, uint64_t{999999}, uint64_t{1000000}, uint64_t{2000000}}) {
      EXPECT_LE(columnsOf(progressLine(stepAt(done), 1e6, columns)), columns);
      EXPECT_LE(columnsOf(progressLine(stepAt(done), 0, columns)), columns);
    }
  }
  EXPECT_THAT(progressLine(stepAt(0), 10, 80), ::testing::EndsWith("  0 %")) << "no rate from nothing";
  EXPECT_EQ(plainProgressLine(stepAt(500000), 100), "a:b:c: sorting:  50 %  5,000 edges/s  1:40 left");
}

TEST(ProgressLine, CutsNamesBetweenCharacters_AndKeepsControlCharactersOut) {
  EXPECT_EQ(fitColumns("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(fitColumns("a\x1b[2Jb\n", 99), "a?[2Jb?");
  EXPECT_EQ(columnsOf("\xe2\x82\xac 1"), 3u);
  EXPECT_EQ(durationText(0.2), "1 s");
  EXPECT_EQ(durationText(61), "1:01");
  EXPECT_EQ(durationText(7500), "2:05:00");
  EXPECT_EQ(durationText(1e300), "more than 99 h");
}

TEST(PlainLinePace, PrintsAtTenths_AtMostOnceASecond_AndNothingOfShortSteps) {
  PlainLinePace pace;
  EXPECT_FALSE(pace.due(stepAt(0), 100));
  EXPECT_FALSE(pace.due(stepAt(900000), 100.5)) << "within a second of the step's begin";
  EXPECT_TRUE(pace.due(stepAt(910000), 101.1));
  EXPECT_FALSE(pace.due(stepAt(990000), 109)) << "no further tenth";
  EXPECT_FALSE(pace.due(stepAt(1000000), 120)) << "it has ended";
  EXPECT_FALSE(pace.due(stepAt(500000, 2), 121)) << "another step";
  EXPECT_TRUE(pace.due(stepAt(500001, 2), 122.5));
  EXPECT_FALSE(pace.due({"x", "rows", 3, 0, 0}, 200));
}

// Of a captured standard error, which is a file: whether `text` comes within some time.
bool saidOnStderr(const std::string& text) {
  for (const Deadline soon = Deadline::after(std::chrono::seconds(20)); !soon.expired();) {
    std::string said(4'096, '\0');
    const ssize_t n = ::pread(STDERR_FILENO, said.data(), said.size(), 0);
    said.resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (said.find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(ProgressDisplay, PrintsPlainLinesAndBars_AsItsStyleSays) {
  const auto output = [](ProgressStyle style) {
    ::testing::internal::CaptureStderr();
    {
      ProgressDisplay display("farhop test", style);
      display.line("one");
      display.meter()->begin("step", "rows", 100);
      display.meter()->advance(50);
      if (style == ProgressStyle::kBar) {
        EXPECT_TRUE(saidOnStderr("50 %"));
      }
      display.line("two");
    }
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(output(ProgressStyle::kNone), "");
  EXPECT_EQ(output(ProgressStyle::kPlainLines), "farhop test: one\nfarhop test: two\n");
  const std::string bar = output(ProgressStyle::kBar);
  EXPECT_THAT(bar, HasSubstr("\rstep  ["));
  EXPECT_THAT(bar, HasSubstr("]   50 %"));
  EXPECT_THAT(bar, HasSubstr(" \rfarhop test: two\n")) << "lines come above the bar, which is drawn again";
}

// Standard error is a terminal of 33 columns while this lives.
class TerminalOnStderr {
 public:
  TerminalOnStderr() : before_(::dup(STDERR_FILENO)) {
    winsize size{};
    size.ws_col = 33;
    size.ws_row = 10;
    opened_ = ::openpty(&controller_, &terminal_, nullptr, nullptr, &size) == 0;
    if (opened_) ::dup2(terminal_, STDERR_FILENO);
  }
  ~TerminalOnStderr() {
    ::dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, controller_, terminal_}) ::close(fd);
  }
  bool opened() const { return opened_; }

 private:
  int before_;
  int controller_ = -1, terminal_ = -1;
  bool opened_ = false;
};

TEST(ProgressDisplay, DrawsBarsOnlyWhereALineCanBeWrittenOver) {
  const char* kind = std::getenv("TERM");
  const std::string before = kind == nullptr ? "" : kind;
  {
    const TerminalOnStderr terminal;
    ASSERT_TRUE(terminal.opened());
    EXPECT_EQ(terminalColumns(), 33u);
    ::setenv("TERM", "xterm", 1);
    EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kBar);
    ::setenv("TERM", "dumb", 1);
    EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kPlainLines);
    ::unsetenv("TERM");
    EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kPlainLines);
  }
  ::setenv("TERM", "xterm", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kPlainLines) << "a file";
  EXPECT_EQ(terminalColumns(), 80u);
  ::testing::internal::GetCapturedStderr();
  if (kind == nullptr) ::unsetenv("TERM"); else ::setenv("TERM", before.c_str(), 1);
}

}  // namespace
}  // namespace farhop::launcher
