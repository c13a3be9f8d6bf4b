#include "launcher/output_pump.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace farhop::launcher {
namespace {

std::string makePrefix(const std::string& label, int colorIndex, bool colored) {
  if (!colored) return absl::StrCat("[", label, "] ");
  // The six colors that are readable on black and on white alike.
  return absl::StrCat("\x1b[", 31 + colorIndex % 6, "m[", label, "]\x1b[0m ");
}

}  // namespace

absl::StatusOr<OutputPump> OutputPump::open(const std::string& label, int colorIndex,
                                            const std::string& logPath, const Terminals& terminals,
                                            OutputShown shown) {
  OutputPump pump;
  pump.label_ = label;
  pump.logPath_ = logPath;
  pump.log_ = FileDescriptor(::open(logPath.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!pump.log_.valid()) return errnoStatus(absl::StrCat("creating the log file ", logPath), errno);
  pump.streams_[kOut].terminal = terminals.out;
  pump.streams_[kErr].terminal = terminals.err;
  pump.streams_[kOut].shown = shown.out;
  pump.streams_[kErr].shown = shown.err;
  for (Input& input : pump.streams_) input.prefix = makePrefix(label, colorIndex, input.terminal->colored());
  return pump;
}

void OutputPump::feed(Stream stream, absl::string_view bytes) {
  streams_[stream].cutter.feed(bytes,
                               [&](absl::string_view piece, bool endsLine) { emit(stream, piece, endsLine); });
  writeLog();
}

void OutputPump::end(Stream stream) {
  streams_[stream].cutter.finish([&](absl::string_view piece, bool endsLine) { emit(stream, piece, endsLine); });
  writeLog();
}

void OutputPump::finish() {
  end(kOut);
  end(kErr);
  log_.reset();
}

void OutputPump::emit(Stream stream, absl::string_view piece, bool endsLine) {
  Input& input = streams_[stream];
  // A newline that follows a full piece directly is that piece's own; an empty line of its own would be
  // untrue.
  const bool onlyNewline = input.inLine && endsLine && piece.empty();
  if (!onlyNewline) {
    if (input.shown) input.terminal->append(absl::StrCat(input.prefix, piece, "\n"));
    remember(piece);
  }
  // The log has the bytes as they came, except that the other stream's line never goes into the middle of
  // one.
  if (logMiddleOf_ >= 0 && logMiddleOf_ != stream) logBuffer_.push_back('\n');
  logBuffer_.append(piece.data(), piece.size());
  if (endsLine && !(onlyNewline && logMiddleOf_ != stream)) logBuffer_.push_back('\n');
  logMiddleOf_ = endsLine ? -1 : stream;
  input.inLine = !endsLine;
}

void OutputPump::remember(absl::string_view piece) {
  if (tail_.size() == kTailLines) tail_.pop_front();
  tail_.emplace_back(piece.substr(0, kTailLineBytes));
}

void OutputPump::writeLog() {
  absl::string_view left = logBuffer_;
  while (!left.empty() && log_.valid() && !logFailed_) {
    const ssize_t n = ::write(log_.get(), left.data(), left.size());
    if (n >= 0) {
      left.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      // A full disk must not end the training; it is said once.
      logFailed_ = true;
      streams_[kErr].terminal->append(
          absl::StrCat("farhop: ", errnoStatus(absl::StrCat("writing ", logPath_), errno).message(),
                       "; the rest of the output of ", label_, " is only shown here\n"));
    }
  }
  logBuffer_.clear();
}

}  // namespace farhop::launcher
