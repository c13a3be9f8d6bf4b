#include "launcher/host_commands.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <optional>

#include "absl/strings/str_join.h"
#include "launcher/output_pump.h"

namespace farhop::launcher {
namespace {

constexpr int kTickMs = 100;

std::vector<std::string> ownEnvironment() {
  std::vector<std::string> result;
  for (char** entry = ::environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

// One command that runs.
class Running {
 public:
  static absl::StatusOr<Running> start(size_t index, const HostCommand& command, std::chrono::milliseconds timeout) {
    SpawnRequest request;
    request.program = command.argv.front();
    request.arguments = command.argv;
    request.environment = ownEnvironment();
    request.workingDirectory = "/";
    request.openInput = command.input != nullptr;
    FARHOP_ASSIGN_OR_RETURN(Process process, Process::spawn(request));
    return Running(index, std::move(process), command.input, Deadline::after(timeout));
  }

  size_t index() const { return index_; }

  void addEntries(std::vector<pollfd>& entries) const {
    for (const int fd : {out_.get(), err_.get()}) {
      if (fd >= 0) entries.push_back({fd, POLLIN, 0});
    }
    if (in_.valid()) entries.push_back({in_.get(), POLLOUT, 0});
    if (!out_.valid() && !err_.valid()) entries.push_back({process_.pidFd(), POLLIN, 0});
  }

  // Moves what can be moved; the answer once the command has ended.
  std::optional<absl::StatusOr<HostAnswer>> work() {
    writeInput();
    read(out_, [&](absl::string_view bytes) { answer_.out.append(bytes.data(), bytes.size()); });
    read(err_, [&](absl::string_view bytes) { cutter_.feed(bytes, [&](absl::string_view line, bool) { keep(line); }); });
    if (answer_.out.size() > kMaxAnswerBytes) return absl::ResourceExhaustedError("its answer is too long");
    if (deadline_.expired()) return absl::DeadlineExceededError("it took too long");
    if (out_.valid() || err_.valid()) return std::nullopt;
    const std::optional<ProcessEnd> end = process_.end();
    if (!end) return std::nullopt;
    cutter_.finish([&](absl::string_view line, bool) { keep(line); });
    answer_.end = *end;
    answer_.errors = absl::StrJoin(errorLines_, "; ");
    return std::move(answer_);
  }

 private:
  Running(size_t index, Process process, const std::string* input, Deadline deadline)
      : index_(index), process_(std::move(process)), input_(input), deadline_(deadline) {
    in_ = process_.takeIn();
    out_ = process_.takeOut();
    err_ = process_.takeErr();
  }

  void writeInput() {
    while (in_.valid()) {
      if (written_ == input_->size()) return in_.reset();
      const ssize_t n = ::write(in_.get(), input_->data() + written_, input_->size() - written_);
      if (n > 0) written_ += static_cast<size_t>(n);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0 && errno != EINTR) return in_.reset();  // it ended; it says why
    }
  }

  template <typename Take>
  void read(FileDescriptor& fd, Take take) {
    char bytes[size_t{64} << 10];
    if (!fd.valid()) return;
    const ssize_t n = ::read(fd.get(), bytes, sizeof(bytes));
    if (n > 0) return take(absl::string_view(bytes, static_cast<size_t>(n)));
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) fd.reset();
  }

  void keep(absl::string_view line) {
    if (errorLines_.size() == OutputPump::kTailLines) errorLines_.pop_front();
    errorLines_.emplace_back(line.substr(0, OutputPump::kTailLineBytes));
  }

  size_t index_;
  Process process_;
  const std::string* input_;
  size_t written_ = 0;
  Deadline deadline_;
  FileDescriptor in_, out_, err_;
  LineCutter cutter_;
  std::deque<std::string> errorLines_;
  HostAnswer answer_;
};

}  // namespace

absl::StatusOr<std::vector<absl::StatusOr<HostAnswer>>> runOnHosts(
    const std::vector<HostCommand>& commands, const HostCommandsOptions& options,
    const std::function<void(size_t, const absl::StatusOr<HostAnswer>&)>& onEnd) {
  std::vector<absl::StatusOr<HostAnswer>> answers(commands.size(), absl::UnknownError("not run"));
  std::deque<Running> running;
  size_t next = 0;
  const auto end = [&](size_t index, absl::StatusOr<HostAnswer> answer) {
    answers[index] = std::move(answer);
    if (onEnd) onEnd(index, answers[index]);
  };
  while (next < commands.size() || !running.empty()) {
    for (; next < commands.size() && running.size() < kCommandsAtOnce; ++next) {
      auto started = Running::start(next, commands[next], options.timeout);
      if (started.ok()) {
        running.push_back(*std::move(started));
      } else {
        end(next, started.status());
      }
    }
    std::vector<pollfd> entries;
    for (const Running& each : running) each.addEntries(entries);
    if (options.signals != nullptr) entries.push_back({options.signals->get(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), kTickMs);
    if (options.signals != nullptr && (entries.back().revents & POLLIN) != 0) {
      return absl::CancelledError("interrupted by a signal");  // what runs ends with its Process
    }
    std::deque<Running> left;
    for (Running& each : running) {
      auto answer = each.work();
      if (answer) {
        end(each.index(), *std::move(answer));
      } else {
        left.push_back(std::move(each));
      }
    }
    running = std::move(left);
  }
  return answers;
}

}  // namespace farhop::launcher
