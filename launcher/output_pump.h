// A trainer's output: from its two pipes, line by line, to the launcher's streams and to one log file.
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

// Not thread-safe. Bounds: one piece per stream, kTailLines lines of kTailLineBytes, and what Terminal holds.
class OutputPump {
 public:
  static constexpr size_t kTailLines = 20;
  static constexpr size_t kTailLineBytes = 1'000;
  enum Stream { kOut = 0, kErr = 1 };

  // `label` is "m1 p0"; `colorIndex` chooses the prefix's color where a terminal is `colored()`. Truncates
  // the log.
  static absl::StatusOr<OutputPump> open(const std::string& label, int colorIndex, const std::string& logPath,
                                         const Terminals& terminals);

  // Takes the read ends of the trainer's pipes, non-blocking.
  void attach(FileDescriptor out, FileDescriptor err);

  // Descriptor to poll for POLLIN, or -1: at the end of the stream, or while its terminal is full.
  int pollFd(Stream stream) const;
  bool open(Stream stream) const { return streams_[stream].pipe.valid(); }
  bool anyOpen() const { return open(kOut) || open(kErr); }

  // Reads once, at most 64 KiB, and passes it on.
  void pump(Stream stream);
  // Reads what is in the pipes now, however full the terminal is: what a trainer that ended left behind,
  // which is at most the pipes' capacity.
  void drain();
  // Passes on unfinished last lines and closes pipes and log.
  void finish();

  const std::string& logPath() const { return logPath_; }
  const std::deque<std::string>& tail() const { return tail_; }

 private:
  struct Input {
    FileDescriptor pipe;
    LineCutter cutter;
    std::shared_ptr<Terminal> terminal;
    std::string prefix;
    bool inLine = false;  // the last piece did not end its line
  };

  // Returns the bytes read; 0 when there is nothing now or no more.
  size_t readOnce(Stream stream);
  void emit(Stream stream, absl::string_view piece, bool endsLine);
  void remember(absl::string_view piece);
  void writeLog();

  std::string label_;
  std::string logPath_;
  FileDescriptor log_;
  std::string logBuffer_;  // of one read
  bool logFailed_ = false;
  int logMiddleOf_ = -1;  // the stream whose unfinished line ends the log
  Input streams_[2];
  std::deque<std::string> tail_;
};

}  // namespace farhop::launcher
