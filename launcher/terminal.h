// Standard output or standard error of the launcher, written without ever blocking it.
//
// The launcher must go on watching its trainers while a terminal is stopped (Ctrl-S) or a pager waits. It may
// not set O_NONBLOCK on a descriptor that it shares with its shell, so it opens terminals and pipes a second
// time; where that is not allowed it writes only what poll(2) says fits. What does not fit waits in a bounded
// buffer.
#pragma once

#include <cstddef>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/deadline.h"
#include "base/socket.h"

namespace farhop::launcher {

class Terminal {
 public:
  // A reader that takes nothing for this long no longer holds the trainers up: what does not fit is left out here (the logs
  // have it), and a line says how much when it reads again.
  static constexpr std::chrono::milliseconds kPatience{10'000};

  explicit Terminal(int fd, std::chrono::milliseconds patience = kPatience);

  // Queues text. Never blocks and never refuses: readers of trainers' output ask full() first.
  void append(absl::string_view text);
  // The launcher's own words, which are never left out.
  void appendOwn(absl::string_view text);
  bool full() const { return pendingBytes() >= kHighWaterBytes && !leavesOut(); }
  size_t pendingBytes() const { return buffer_.size() - written_; }
  bool pending() const { return pendingBytes() > 0; }

  // Writes what fits now. A reader that went away (EPIPE) closes the terminal: later text is dropped.
  void writeSome();
  // Descriptor to poll for POLLOUT while pending().
  int fd() const { return own_.valid() ? own_.get() : shared_; }

  bool colored() const { return colored_; }

  // Whether both are the same file, so that one buffer must serve both to keep lines whole.
  static bool same(int a, int b);

 private:
  static constexpr size_t kHighWaterBytes = size_t{256} << 10;

  bool leavesOut() const { return stuckSince_ && Clock::now() - *stuckSince_ >= patience_; }

  const std::chrono::milliseconds patience_;
  int shared_;
  FileDescriptor own_;  // the same terminal or pipe, opened non-blocking
  bool socket_ = false;
  bool colored_ = false;
  bool closed_ = false;
  std::optional<Clock::time_point> stuckSince_;  // nothing could be written since
  size_t leftOutLines_ = 0;
  std::string buffer_;
  size_t written_ = 0;
};

// The launcher's two streams; one Terminal when both are the same file.
struct Terminals {
  Terminals();
  std::shared_ptr<Terminal> out, err;
};

}  // namespace farhop::launcher
