// A long command's progress as one line of text, and where it can be drawn.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "partition/progress_meter.h"

namespace farhop::launcher {

// Whether a line on standard error can be written over: a terminal that is not a dumb one (TERM).
bool canRedraw();
// Columns of the terminal on standard error, 80 where it does not say.
size_t terminalColumns();

// At most `columns` characters of `text`, counting UTF-8 sequences as one; control characters become '?'.
std::string fitColumns(absl::string_view text, size_t columns);

// Columns that a text takes: UTF-8 sequences count as one.
size_t columnsOf(absl::string_view text);

// "45 s", "3:07", "2:05:00".
std::string durationText(double seconds);

// Step, share, rate and time left, `elapsedSeconds` after the step began; at most `columns` characters, of which a bar
// takes what the others leave. No rate where there is none yet.
std::string progressLine(const partition::ProgressMeter::Snapshot& snapshot, double elapsedSeconds, size_t columns);

// The same as a plain line: no bar, nothing cut.
std::string plainProgressLine(const partition::ProgressMeter::Snapshot& snapshot, double elapsedSeconds);

}  // namespace farhop::launcher
