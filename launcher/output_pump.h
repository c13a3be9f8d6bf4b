// A trainer's output: as it comes, line by line, to the launcher's streams and to one log file.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "launcher/terminal.h"

namespace farhop::launcher {

// Cuts a byte stream into lines. Longer lines come in pieces of kMaxPieceBytes, so that a trainer that never
// ends a line costs bounded memory. Bytes are passed on as they are; they need not be UTF-8.
class LineCutter {
 public:
  static constexpr size_t kMaxPieceBytes = size_t{64} << 10;

  // Calls emit(piece, endsLine) for every piece that is complete; pieces come without their newline.
  template <typename Emit>
  void feed(absl::string_view bytes, Emit emit) {
    while (!bytes.empty()) {
      const size_t room = kMaxPieceBytes - held_.size();
      const size_t newline = bytes.substr(0, room + 1).find('\n');
      const bool endsLine = newline != absl::string_view::npos;
      if (!endsLine && bytes.size() <= room) {
        held_.append(bytes.data(), bytes.size());
        return;
      }
      const size_t taken = endsLine ? newline : room;
      if (held_.empty()) {
        emit(bytes.substr(0, taken), endsLine);
      } else {
        held_.append(bytes.data(), taken);
        emit(absl::string_view(held_), endsLine);
        held_.clear();
      }
      bytes.remove_prefix(taken + (endsLine ? 1 : 0));
    }
  }
  // The last line, when it had no newline.
  template <typename Emit>
  void finish(Emit emit) {
    if (!held_.empty()) emit(absl::string_view(held_), false);
    held_.clear();
  }

 private:
  std::string held_;
};

// Which of a process's streams the terminal shows besides the log.
struct OutputShown {
  bool out = true, err = true;
};

// Not thread-safe. Bounds: one piece per stream, kTailLines lines of kTailLineBytes, and what Terminal holds.
class OutputPump {
 public:
  static constexpr size_t kTailLines = 20;
  static constexpr size_t kTailLineBytes = 1'000;
  enum Stream { kOut = 0, kErr = 1 };

  // `label` is "m1 p0"; `colorIndex` chooses the prefix's color where a terminal is `colored()`. Truncates
  // the log. Streams that are not `shown` go into the log only.
  static absl::StatusOr<OutputPump> open(const std::string& label, int colorIndex, const std::string& logPath,
                                         const Terminals& terminals, OutputShown shown = {});

  // Whether the stream's terminal takes more; one that is not shown always does.
  bool full(Stream stream) const { return streams_[stream].shown && streams_[stream].terminal->full(); }

  // Passes on bytes of the stream, however full the terminal is.
  void feed(Stream stream, absl::string_view bytes);
  // Passes on the unfinished last line of a stream that ended.
  void end(Stream stream);
  // Ends both and closes the log.
  void finish();

  const std::string& logPath() const { return logPath_; }
  const std::deque<std::string>& tail() const { return tail_; }

 private:
  struct Input {
    LineCutter cutter;
    std::shared_ptr<Terminal> terminal;
    std::string prefix;
    bool shown = true;
    bool inLine = false;  // the last piece did not end its line
  };

  void emit(Stream stream, absl::string_view piece, bool endsLine);
  void remember(absl::string_view piece);
  void writeLog();

  std::string label_;
  std::string logPath_;
  FileDescriptor log_;
  std::string logBuffer_;  // of one feed
  bool logFailed_ = false;
  int logMiddleOf_ = -1;  // the stream whose unfinished line ends the log
  Input streams_[2];
  std::deque<std::string> tail_;
};

}  // namespace farhop::launcher
