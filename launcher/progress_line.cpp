#include "launcher/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

constexpr size_t kMaxBarColumns = 30, kMinBarColumns = 8;
// Earlier a rate says more about the clock than about the step.
constexpr double kRateAfterSeconds = 0.2;
// Further off nobody plans; also keeps a rate near zero from overflowing.
constexpr double kMaxSecondsLeft = 99 * 3600.0;

bool continuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

double shareOf(const partition::ProgressMeter::Snapshot& snapshot) {
  if (snapshot.total == 0) return 0;
  return std::min(1.0, static_cast<double>(snapshot.done) / static_cast<double>(snapshot.total));
}

// " 43 %  1,234,567 edges/s  1:05 left"
std::string figuresText(const partition::ProgressMeter::Snapshot& snapshot, double elapsedSeconds) {
  std::array<char, 16> percent;
  // Not 100 % before all is done.
  std::snprintf(percent.data(), percent.size(), "%3d %%", static_cast<int>(std::floor(100 * shareOf(snapshot))));
  std::string text = percent.data();
  if (snapshot.done == 0 || elapsedSeconds < kRateAfterSeconds) return text;
  const double rate = static_cast<double>(snapshot.done) / elapsedSeconds;
  absl::StrAppend(&text, "  ", rate < 10 ? formatFixed(rate, 1) : formatCount(static_cast<uint64_t>(rate)), " ",
                  snapshot.unit, "/s");
  if (snapshot.done < snapshot.total) {
    absl::StrAppend(&text, "  ", durationText(static_cast<double>(snapshot.total - snapshot.done) / rate), " left");
  }
  return text;
}

}  // namespace

bool canRedraw() {
  if (::isatty(STDERR_FILENO) != 1) return false;
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && absl::string_view(kind) != "dumb";
}

size_t terminalColumns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

size_t columnsOf(absl::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continuesCharacter(c); }));
}

std::string fitColumns(absl::string_view text, size_t columns) {
  std::string fitted;
  size_t used = 0;
  for (const char c : text) {
    if (!continuesCharacter(c) && ++used > columns) break;
    const auto byte = static_cast<unsigned char>(c);
    fitted += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return fitted;
}

std::string durationText(double seconds) {
  if (!(seconds < kMaxSecondsLeft)) return "more than 99 h";
  const int whole = static_cast<int>(std::ceil(std::max(0.0, seconds)));
  if (whole < 60) return absl::StrCat(whole, " s");
  std::array<char, 32> text;
  if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%d:%02d", whole / 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return text.data();
}

std::string progressLine(const partition::ProgressMeter::Snapshot& snapshot, double elapsedSeconds, size_t columns) {
  const std::string figures = figuresText(snapshot, elapsedSeconds);
  const size_t stepColumns = columnsOf(snapshot.step);
  const size_t taken = stepColumns + 2 + columnsOf(figures);
  // Two blanks and two brackets go with a bar.
  if (taken + 4 + kMinBarColumns <= columns) {
    const size_t bar = std::min(kMaxBarColumns, columns - taken - 4);
    const auto filled = static_cast<size_t>(shareOf(snapshot) * static_cast<double>(bar));
    return fitColumns(absl::StrCat(snapshot.step, "  [", std::string(filled, '#'), std::string(bar - filled, '.'), "]  ",
                                   figures), columns);
  }
  // The figures matter most: a long name is cut for them.
  const size_t room = columns > columnsOf(figures) + 2 ? columns - columnsOf(figures) - 2 : 0;
  if (room == 0) return fitColumns(figures, columns);
  return absl::StrCat(fitColumns(snapshot.step, room), "  ", figures);
}

std::string plainProgressLine(const partition::ProgressMeter::Snapshot& snapshot, double elapsedSeconds) {
  const std::string text = absl::StrCat(snapshot.step, ": ", figuresText(snapshot, elapsedSeconds));
  return fitColumns(text, text.size());
}

}  // namespace farhop::launcher
