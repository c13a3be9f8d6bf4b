#include "launcher/agent.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "launcher/machine_checks.h"
#include "launcher/run_options.h"
#include "launcher/trainer_environment.h"
#include "runtime/job_news.h"

namespace farhop::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOrphanInterval{1'000};
constexpr milliseconds kSettleTime{250};  // for helpers such as tee to pass on their last output
// Frames of this many bytes that the connection does not take stop the reading of output.
constexpr size_t kHighWaterBytes = size_t{256} << 10;

std::string hostName() {
  char name[256] = "";
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

}  // namespace

Agent::Agent(FrameStream stream, FileDescriptor signals, AgentWatcher watcher, std::string version)
    : stream_(std::move(stream)),
      signals_(std::move(signals)),
      watcher_(std::move(watcher)),
      version_(std::move(version)),
      ordersDeadline_(Deadline::after(kOrdersTimeout)),
      settleDeadline_(Deadline::never()),
      silentAt_(Deadline::never()),
      nextAlive_(Deadline::never()),
      nextOrphanCheck_(Deadline::after(kOrphanInterval)),
      killDeadline_(Deadline::never()) {}

int Agent::run() {
  becomeSubreaper();
  openFiles_ = raiseOpenFiles();
  stream_.sendMagic();
  stream_.send(FrameKind::kHello, encode(AgentHello{kAgentProtocol, version_, hostName(), static_cast<uint32_t>(::getpid())}));
  while (!finishing_ || (pipesOpen() && !settleDeadline_.expired())) {
    const absl::Status status = step();
    if (status.ok()) continue;
    std::fprintf(stderr, "farhop agent: %s: ending what was started here\n", std::string(status.message()).c_str());
    killAll();
    return 1;
  }
  finish();
  return 0;
}

absl::Status Agent::step() {
  std::vector<pollfd> entries;
  std::vector<Source> sources;
  addEntries(entries, sources);
  const int ready = ::poll(entries.data(), entries.size(), nextDeadline().remainingMs());
  for (size_t i = 0; ready > 0 && i < sources.size(); ++i) {
    if (entries[i].revents != 0) FARHOP_RETURN_IF_ERROR(takeEvent(sources[i]));
  }
  // After what came: a process that was suspended finds frames waiting.
  if (silentAt_.expired()) {
    FARHOP_RETURN_IF_ERROR(
        takeCut(absl::UnavailableError(absl::StrCat("nothing came from the launcher for ", orders_.silenceMs / 1'000, " s"))));
  }
  FARHOP_RETURN_IF_ERROR(endPreempted());
  if (!haveOrders_ && ordersDeadline_.expired()) return absl::DeadlineExceededError("no orders came");
  if (nextAlive_.expired()) {
    if (!stream_.pending()) stream_.send(FrameKind::kAlive);
    nextAlive_ = Deadline::after(milliseconds(orders_.silenceMs / 3));
  }
  if (starting_ && nextTrainer_ > 0 && !trainers_[nextTrainer_ - 1].executed) takeExec(trainers_[nextTrainer_ - 1]);
  if (nextOrphanCheck_.expired()) {
    nextOrphanCheck_ = Deadline::after(kOrphanInterval);
    std::vector<pid_t> own;
    for (const Trainer& trainer : trainers_) {
      if (trainer.process) own.push_back(trainer.process->pid());
    }
    reapOrphans(own);
  }
  const absl::Status written = stream_.writeSome();
  return written.ok() ? written : takeCut(annotate(written, "the launcher is gone"));
}

Deadline Agent::nextDeadline() const {
  Deadline deadline = Deadline::earliest(Deadline::after(kOrphanInterval), settleDeadline_);
  if (!haveOrders_) deadline = Deadline::earliest(deadline, ordersDeadline_);
  deadline = Deadline::earliest(deadline, killDeadline_);
  return Deadline::earliest(deadline, Deadline::earliest(silentAt_, nextAlive_));
}

void Agent::addEntries(std::vector<pollfd>& entries, std::vector<Source>& sources) const {
  const auto add = [&](int fd, Source source) {
    entries.push_back({fd, POLLIN, 0});
    sources.push_back(source);
  };
  add(stream_.inFd(), {Source::kStream});
  add(signals_.get(), {Source::kSignals});
  const bool mayRead = credit_ > 0 && stream_.pendingBytes() < kHighWaterBytes;
  for (size_t i = 0; i < trainers_.size(); ++i) {
    const Trainer& trainer = trainers_[i];
    if (!trainer.process) continue;
    if (!trainer.executed) add(trainer.process->execFd(), {Source::kExec, i});
    if (trainer.executed && !trainer.ended) add(trainer.process->pidFd(), {Source::kEnd, i});
    if (trainer.news.valid()) add(trainer.news.get(), {Source::kNews, i});
    for (int stream = 0; stream < 2; ++stream) {
      if (mayRead && trainer.pipes[stream].valid()) add(trainer.pipes[stream].get(), {Source::kPipe, i, stream});
    }
  }
  // Last, and without a source: to write is tried after every poll.
  if (stream_.pending()) entries.push_back({stream_.outFd(), POLLOUT, 0});
}

absl::Status Agent::takeEvent(const Source& source) {
  Trainer* const trainer = source.trainer < trainers_.size() ? &trainers_[source.trainer] : nullptr;
  switch (source.kind) {
    case Source::kStream:
      return takeFrames();
    case Source::kSignals:
      return takeOwnSignals();
    case Source::kExec:
      if (!trainer->executed) takeExec(*trainer);
      break;
    case Source::kEnd:
      if (!trainer->ended) takeEnd(*trainer);
      break;
    case Source::kPipe:
      if (credit_ > 0) credit_ -= pump(*trainer, source.stream, credit_);
      break;
    case Source::kNews:
      takeSaid(*trainer);
      break;
  }
  return absl::OkStatus();
}

absl::Status Agent::takeFrames() {
  absl::Status read = stream_.readSome();
  if (!read.ok()) return takeCut(annotate(read, "the launcher is gone"));
  if (haveOrders_ && orders_.silenceMs > 0) silentAt_ = Deadline::after(milliseconds(orders_.silenceMs));
  for (;;) {
    FARHOP_ASSIGN_OR_RETURN(const std::optional<Frame> frame, stream_.next());
    if (!frame) return absl::OkStatus();
    FARHOP_RETURN_IF_ERROR(takeFrame(*frame));
  }
}

absl::Status Agent::takeFrame(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kAlive:
      return absl::OkStatus();
    case FrameKind::kOrders:
      return takeOrders(frame.payload);
    case FrameKind::kStart:
      return start(frame.payload);
    case FrameKind::kSignal:
      return takeSignal(frame.payload);
    case FrameKind::kCredit: {
      FARHOP_ASSIGN_OR_RETURN(const uint32_t bytes, decodeNumber(frame.payload));
      credit_ = std::min<size_t>(credit_ + bytes, orders_.windowBytes);
      return absl::OkStatus();
    }
    case FrameKind::kNews:
      if (frame.payload.size() > runtime::kMaxJobNewsBytes) return absl::InvalidArgumentError("news that are too long");
      // Who does not read, or reads too slowly, is ended with the rest when its time is over.
      for (const Trainer& trainer : trainers_) {
        if (trainer.ended || !trainer.news.valid()) continue;
        (void)!::send(trainer.news.get(), frame.payload.data(), frame.payload.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      }
      return absl::OkStatus();
    case FrameKind::kFinish:
      finishing_ = true;
      starting_ = false;
      settleDeadline_ = Deadline::after(kSettleTime);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("a frame came that only agents send");
  }
}

absl::Status Agent::takeOrders(const std::string& payload) {
  if (haveOrders_) return absl::InvalidArgumentError("orders came twice");
  FARHOP_ASSIGN_OR_RETURN(orders_, decodeOrders(payload));
  haveOrders_ = true;
  watcher_.tellJob(orders_.jobId, orders_.token, static_cast<int>(orders_.machine));
  credit_ = orders_.windowBytes;
  if (orders_.silenceMs > 0) {
    silentAt_ = Deadline::after(milliseconds(orders_.silenceMs));
    nextAlive_ = Deadline::after(milliseconds(orders_.silenceMs / 3));
  }
  if (const absl::Status prepared = prepare(); !prepared.ok()) {
    refuse(prepared);
    return absl::OkStatus();
  }
  AgentPrepared prepared;
  if (orders_.machine == 0) prepared = {orders_.masterAddr, orders_.masterPort};
  stream_.send(FrameKind::kPrepared, encode(prepared));
  return absl::OkStatus();
}

absl::Status Agent::prepare() {
  RunOptions files;
  files.workingDirectory = orders_.workingDirectory;
  files.graph = orders_.graph;
  files.environment = orders_.environment;
  files.command = orders_.command;
  FARHOP_ASSIGN_OR_RETURN(program_, checkFiles(files));
  FARHOP_RETURN_IF_ERROR(runtime::parseStartMode(orders_.start).status());
  FARHOP_RETURN_IF_ERROR(checkMachine());
  if (orders_.machine != 0) return absl::OkStatus();
  if (orders_.masterAddr.empty()) {
    FARHOP_ASSIGN_OR_RETURN(orders_.masterAddr, findOwnAddress(orders_.interface));
  }
  const std::optional<uint16_t> base = orders_.masterPort != 0 ? std::optional(orders_.masterPort) : std::nullopt;
  FARHOP_ASSIGN_OR_RETURN(ports_, reservePorts(orders_.masterAddr, static_cast<int>(orders_.procs), base));
  orders_.masterPort = ports_.base;
  return absl::OkStatus();
}

// The quick part of `farhop doctor`. What the launcher passes on to its terminal is written to standard error.
absl::Status Agent::checkMachine() const {
  MachineShape shape;
  shape.machines = static_cast<int>(orders_.machines);
  shape.machine = static_cast<int>(orders_.machine);
  shape.procs = static_cast<int>(orders_.procs);
  for (const CheckResult& check : quickChecks(shape, openFiles_)) {
    const std::string text = absl::StrCat(check.name, ": ", check.what, "; ", check.todo);
    if (check.state == CheckState::kRed) return absl::FailedPreconditionError(text);
    std::fprintf(stderr, "farhop: warning: machine %d: %s\n", shape.machine, text.c_str());
  }
  return absl::OkStatus();
}

absl::Status Agent::start(const std::string& payload) {
  if (program_.empty() || !trainers_.empty()) return absl::InvalidArgumentError("a start came without orders, or twice");
  FARHOP_ASSIGN_OR_RETURN(const AgentPrepared master, decodePrepared(payload));
  orders_.masterAddr = master.masterAddr;
  orders_.masterPort = master.masterPort;
  trainers_.resize(orders_.procs);
  for (size_t i = 0; i < trainers_.size(); ++i) trainers_[i].proc = static_cast<int>(i);
  starting_ = true;
  startNext();
  return absl::OkStatus();
}

}  // namespace farhop::launcher
