#include "launcher/job_machine.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_join.h"
#include "launcher/ssh_command.h"

namespace farhop::launcher {
namespace {

using std::chrono::milliseconds;

// Between the end of a connection's stream and that of its program.
constexpr milliseconds kCloseTime{1'000};
// Credit is given in pieces of at least this much, so that a line costs no frame of its own.
constexpr uint32_t kCreditBytes = 16u << 10;

}  // namespace

JobMachine::JobMachine(const AgentCommand& command, int machine)
    : command_(command),
      machine_(machine),
      closedDeadline_(Deadline::never()),
      silentAt_(Deadline::never()),
      nextAlive_(Deadline::after(kSilence / 3)) {}

absl::StatusOr<JobMachine> JobMachine::connect(const AgentCommand& command, int machine,
                                               const std::vector<std::string>& environment,
                                               const std::optional<rlimit>& openFiles) {
  JobMachine result(command, machine);
  SpawnRequest request;
  request.program = command.argv.front();
  request.arguments = command.argv;
  request.environment = environment;
  request.workingDirectory.assign(1, '/');  // GCC 12 warns of "/"
  request.openInput = true;
  request.openFiles = openFiles;
  // A local agent is to end its trainers itself when it finds the launcher gone; ssh hangs up.
  request.deathSignal = command.remote ? 9 : 0;
  auto process = Process::begin(request);
  if (!process.ok()) return annotate(process.status(), result.name());
  result.stream_.emplace(process->takeOut(), process->takeIn(), FrameStream::Opening::kExpectMagic);
  result.errors_ = process->takeErr();
  result.process_.emplace(*std::move(process));
  return result;
}

std::string JobMachine::name() const {
  return command_.host.empty() ? absl::StrCat("machine ", machine_)
                               : absl::StrCat("machine ", machine_, " (", command_.host, ")");
}

void JobMachine::receive() {
  if (closed_) return;
  if (!stream_->readSome().ok()) {
    closed_ = true;
    closedDeadline_ = Deadline::after(kCloseTime);
    return;
  }
  if (state_ != State::kConnecting && command_.remote) silentAt_ = Deadline::after(kSilence);
}

std::vector<std::string> JobMachine::receiveErrors() {
  std::vector<std::string> lines;
  const auto keep = [&](absl::string_view piece, bool) {
    std::string line(piece.substr(0, OutputPump::kTailLineBytes));
    while (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) return;
    if (errorLines_.size() == kErrorLines) errorLines_.pop_front();
    errorLines_.push_back(line);
    if (state_ != State::kConnecting) lines.push_back(std::move(line));
  };
  char bytes[4'096];
  ssize_t n = 0;
  while (errors_.valid() && (n = ::read(errors_.get(), bytes, sizeof(bytes))) > 0) {
    errorCutter_.feed(absl::string_view(bytes, static_cast<size_t>(n)), keep);
    if (lines.size() >= kErrorLines) return lines;  // the rest with the next poll
  }
  if (errors_.valid() && (n == 0 || (errno != EAGAIN && errno != EINTR))) {
    errorCutter_.finish(keep);
    errors_.reset();
  }
  return lines;
}

void JobMachine::keepUp() {
  if (over()) return;
  if (process_->execFd() >= 0) {
    const std::optional<absl::Status> executed = process_->execResult();
    if (executed && !executed->ok()) return lose(*executed);
  }
  if (closed_) {
    if (process_->end() || closedDeadline_.expired()) lose(explainClosed());
    return;
  }
  if (silentAt_.expired()) {
    return lose(absl::UnavailableError(absl::StrCat("nothing came from it for ", kSilence.count() / 1'000,
                                                    " s: is it up, and the network between?")));
  }
  if (nextAlive_.expired()) {
    nextAlive_ = Deadline::after(kSilence / 3);
    if (state_ >= State::kPreparing && command_.remote && !stream_->pending()) stream_->send(FrameKind::kAlive);
  }
  if (!stream_->writeSome().ok()) {
    closed_ = true;
    closedDeadline_ = Deadline::after(kCloseTime);
  }
}

Deadline JobMachine::nextDeadline() const {
  if (closed_) return Deadline::after(milliseconds(10));  // its program is ending
  return command_.remote ? Deadline::earliest(silentAt_, nextAlive_) : Deadline::never();
}

absl::Status JobMachine::explainClosed() {
  receiveErrors();
  const std::optional<ProcessEnd> end = process_->end();
  const std::string said = absl::StrJoin(errorLines_, "; ");
  if (command_.ssh) return explainSshEnd(end, said, state_ == State::kConnecting);
  const std::string how = end ? absl::StrCat("ended with ", end->text()) : "closed its connection";
  return absl::UnavailableError(absl::StrCat("its agent ", how, said.empty() ? "" : ": ", said));
}

void JobMachine::lose(absl::Status reason) {
  if (over()) return;
  state_ = State::kLost;
  lost_ = std::move(reason);
}

void JobMachine::hold(TrainerOutput output) {
  held_.push_back(std::move(output));
}

void JobMachine::passOn(bool everything) {
  std::deque<TrainerOutput> kept;
  for (TrainerOutput& output : held_) {
    JobProcess& process = processes[output.proc];
    const auto stream = output.stream == 0 ? OutputPump::kOut : OutputPump::kErr;
    if (!everything && process.output.full(stream)) {
      kept.push_back(std::move(output));
    } else if (output.bytes.empty()) {
      process.output.end(stream);
    } else {
      process.output.feed(stream, output.bytes);
      owedCredit_ += static_cast<uint32_t>(output.bytes.size());
    }
  }
  held_ = std::move(kept);
  if (owedCredit_ < std::min<size_t>(kCreditBytes, windowBytes / 2) || over()) return;
  stream_->send(FrameKind::kCredit, encodeNumber(owedCredit_));
  owedCredit_ = 0;
}

void JobMachine::close(Deadline deadline) {
  process_->reap(deadline);
}

}  // namespace farhop::launcher
