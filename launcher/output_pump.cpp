#include "launcher/output_pump.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace farhop::launcher {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// Linux lets an unprivileged process have pipes of at most 1 MiB.
constexpr size_t kMaxDrainBytes = size_t{1} << 20;

std::string makePrefix(const std::string& label, int colorIndex, bool colored) {
  if (!colored) return absl::StrCat("[", label, "] ");
  // The six colors that are readable on black and on white alike.
  return absl::StrCat("\x1b[", 31 + colorIndex % 6, "m[", label, "]\x1b[0m ");
}

}  // namespace

absl::StatusOr<OutputPump> OutputPump::open(const std::string& label, int colorIndex,
                                            const std::string& logPath, const Terminals& terminals) {
  OutputPump pump;
  pump.label_ = label;
  pump.logPath_ = logPath;
  pump.log_ = FileDescriptor(::open(logPath.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!pump.log_.valid()) return errnoStatus(absl::StrCat("creating the log file ", logPath), errno);
  pump.streams_[kOut].terminal = terminals.out;
  pump.streams_[kErr].terminal = terminals.err;
  for (Input& input : pump.streams_) input.prefix = makePrefix(label, colorIndex, input.terminal->colored());
  return pump;
}

void OutputPump::attach(FileDescriptor out, FileDescriptor err) {
  streams_[kOut].pipe = std::move(out);
  streams_[kErr].pipe = std::move(err);
}

int OutputPump::pollFd(Stream stream) const {
  const Input& input = streams_[stream];
  return input.pipe.valid() && !input.terminal->full() ? input.pipe.get() : -1;
}

void OutputPump::pump(Stream stream) {
  readOnce(stream);
  writeLog();
}

void OutputPump::drain() {
  for (Stream stream : {kOut, kErr}) {
    size_t total = 0;
    while (open(stream) && total < kMaxDrainBytes) {
      const size_t bytes = readOnce(stream);
      writeLog();
      if (bytes == 0) break;
      total += bytes;
    }
  }
}

void OutputPump::finish() {
  for (Stream stream : {kOut, kErr}) {
    streams_[stream].cutter.finish(
        [&](absl::string_view piece, bool endsLine) { emit(stream, piece, endsLine); });
    streams_[stream].pipe.reset();
  }
  writeLog();
  log_.reset();
}

size_t OutputPump::readOnce(Stream stream) {
  Input& input = streams_[stream];
  if (!input.pipe.valid()) return 0;
  char bytes[kReadBytes];
  ssize_t n = 0;
  do {
    n = ::read(input.pipe.get(), bytes, sizeof(bytes));
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  const auto pass = [&](absl::string_view piece, bool endsLine) { emit(stream, piece, endsLine); };
  if (n <= 0) {
    input.cutter.finish(pass);
    input.pipe.reset();
    return 0;
  }
  input.cutter.feed(absl::string_view(bytes, static_cast<size_t>(n)), pass);
  return static_cast<size_t>(n);
}

void OutputPump::emit(Stream stream, absl::string_view piece, bool endsLine) {
  Input& input = streams_[stream];
  // A newline that follows a full piece directly is that piece's own; an empty line of its own would be
  // untrue.
  const bool onlyNewline = input.inLine && endsLine && piece.empty();
  if (!onlyNewline) {
    input.terminal->append(input.prefix);
    input.terminal->append(piece);
    input.terminal->append("\n");
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
