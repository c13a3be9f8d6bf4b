#include "runtime/session.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <utility>

#include "base/executor.h"
#include "base/log.h"
#include "base/memory_info.h"
#include "base/socket.h"
#include "rpc/stages.h"
#include "runtime/start_gate.h"
#include "runtime/topology.h"

namespace farhop::runtime {
namespace {

// How long a process that has failed keeps its connections. A kill is known on the wire and on the machine
// within milliseconds; this is ample for every process to hear of it, and short for those who wait.
constexpr std::chrono::milliseconds kGrace{500};
constexpr std::chrono::milliseconds kVictimGrace{1'000};
// Who then still waits for a store waits for one that does not answer: a healthy one does within a second.
constexpr std::chrono::milliseconds kStoreGrace{2'000};

Deadline startDeadline(const LaunchContract& contract, const SessionOptions& options) {
  if (options.startTimeout.count() > 0) return Deadline::after(options.startTimeout);
  return Deadline::after(std::chrono::seconds(120) +
                         contract.procsPerMachine * (std::chrono::seconds(60) + contract.start.sleepStep));
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f s", value);
  return text;
}

std::string megabytes(uint64_t bytes) { return absl::StrCat(bytes / 1'000'000, " MB"); }

}  // namespace

Session::Session(const LaunchContract& contract, const SessionOptions& options)
    : contract_(contract), options_(options), uncaught_(std::uncaught_exceptions()), board_(contract) {
  times_.begin = begin_;
}

absl::StatusOr<std::unique_ptr<Session>> Session::start(const LaunchContract& contract, const SessionOptions& options) {
  FARHOP_RETURN_IF_ERROR(checkContract(contract));
  initLogging(absl::StrCat("m", contract.machine, " p", contract.proc));
  ignoreBrokenPipes();
  std::unique_ptr<Session> session(new Session(contract, options));
  const absl::Status status = session->run(startDeadline(contract, options));
  if (status.ok()) return session;
  // A failure of this process's own is news to the others; a recorded one they have heard of.
  session->abandon(status);
  return status;
}

absl::Status Session::run(Deadline deadline) {
  // First of the listeners: the others are to know before collectives close their connections.
  if (contract_.numMachines > 1 && wantsBulk(options_.fabric)) {
    // First: it sets what the library reads from the environment.
    const absl::Status loaded = rpc::loadFabric();
    if (insistsOnBulk(options_.fabric)) FARHOP_RETURN_IF_ERROR(loaded);
    mark(&StageTimes::fabricSeconds);
  }
  listenerId_ = monitor_.addListener([this](const absl::Status& failure) { onFailure(failure); });
  FARHOP_RETURN_IF_ERROR(keepMasterSocket());
  FARHOP_ASSIGN_OR_RETURN(launcher_, LauncherWatch::open(contract_, &monitor_));
  FARHOP_ASSIGN_OR_RETURN(step_, StepWatch::open(contract_, &monitor_));
  openStatus();
  if (options_.bind) bind();
  // For the threads of channel, agent and mesh.
  const ScopedThreadBinding service(serviceProcessors_);
  mark(&StageTimes::boundSeconds);
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<LocalChannel> channel, LocalChannel::open(contract_, &monitor_, deadline));
  {
    std::lock_guard lock(mutex_);
    channel_ = std::move(channel);
  }
  // One that was recorded before there was anybody to tell.
  if (const absl::Status failure = monitor_.status(); !failure.ok()) channel_->reportLost(failure);
  collectives_ = std::make_unique<Collectives>(contract_, &monitor_);
  WorkerGroupOptions groupOptions;
  groupOptions.peerTimeout = options_.peerTimeout;
  groupOptions.servingThreads = samplerThreads_;
  groupOptions.fabric = options_.fabric;
  auto group = std::make_unique<WorkerGroup>(contract_, groupOptions, &monitor_, channel_.get(), collectives_.get());
  {
    std::lock_guard lock(mutex_);
    group_ = std::move(group);
  }
  closer_ = std::thread([this] { closeAfterFailure(); });
  mark(&StageTimes::channelSeconds);

  board_.enter(ProcessState::kWaiting);
  // Before the gate, so that a process that dies behind it is missed by its group as well.
  FARHOP_RETURN_IF_ERROR(group_->meet(deadline));
  StartGateOptions gate;
  gate.memoryEstimateBytes = std::max(contract_.memoryEstimateBytes, options_.memoryEstimateBytes);
  FARHOP_RETURN_IF_ERROR(passStartGate(contract_, *channel_, monitor_, gate, deadline));
  mark(&StageTimes::gateSeconds);
  board_.enter(ProcessState::kConnecting);
  rpc::reachStage("gate/passed");
  FARHOP_RETURN_IF_ERROR(group_->join(deadline));
  mark(&StageTimes::readySeconds);
  board_.enter(ProcessState::kReady);
  channel_->announceReady();

  FARHOP_RETURN_IF_ERROR(channel_->waitAllReady(deadline));
  LocalChannel* const values = channel_.get();
  const MeshStore store{
      [values](const std::string& key, const std::string& value, Deadline) { return values->set(key, value); },
      [values](const std::string& key, Deadline until) { return values->get(key, until); }};
  FARHOP_RETURN_IF_ERROR(collectives_->connectMachine(store, deadline));
  FARHOP_RETURN_IF_ERROR(collectives_->barrierJob(deadline));
  if (launcher_) launcher_->noteAllReady();
  mark(&StageTimes::allReadySeconds);
  std::lock_guard lock(mutex_);
  times_.readyPeakBytes = peakResidentBytes();
  return absl::OkStatus();
}

// What the trainer starts is not to inherit a socket that a launcher handed over, and a job of one machine, which has
// no store, is not to listen on it. Another descriptor of that number is somebody else's; whoever needs the socket
// says then that it is none.
absl::Status Session::keepMasterSocket() {
  if (contract_.masterFd < 0 || !isListening(contract_.masterFd)) return absl::OkStatus();
  if (contract_.numMachines > 1) return setCloseOnExec(contract_.masterFd, true);
  FileDescriptor(contract_.masterFd).reset();
  return absl::OkStatus();
}

// Nothing here is worth failing for either: a job trains as well without being watched.
void Session::openStatus() {
  if (launcher_ != nullptr) {
    board_.setOnEnter([launcher = launcher_](const ProcessStatus& status) {
      launcher->tell({status.machine, status.proc, status.state, status.upSeconds, status.peakBytes});
    });
  }
  auto server = StatusServer::open(contract_, &board_);
  if (server.ok()) {
    statusServer_ = *std::move(server);
  } else {
    FARHOP_LOG(WARNING) << "`farhop ps` will not see this process: " << server.status().message();
  }
}

// A process runs unbound as well, only slower: nothing here is worth failing for.
void Session::bind() {
  const BindingChoice& choice = contract_.binding;
  absl::StatusOr<Topology> topology = Topology::ofThisMachine();
  absl::StatusOr<BindingPlan> plan =
      topology.ok() ? planBinding(*topology, contract_.procsPerMachine, contract_.proc, choice) : topology.status();
  if (!plan.ok()) {
    FARHOP_LOG(WARNING) << "not bound to any cores: " << plan.status().message();
    return;
  }
  if (plan->shared && contract_.proc == 0) {
    FARHOP_LOG(WARNING) << "this machine's " << contract_.procsPerMachine << " processes share " << plan->allowedCores
                        << " cores; fewer processes would run faster";
  }
  computeThreads_ = plan->computeThreads;
  samplerThreads_ = plan->samplerThreads;
  // A single process keeps what it was given: it has all of it.
  if (choice.to == BindTo::kNone || (contract_.procsPerMachine == 1 && !plan->split)) return;
  if (const absl::Status status = applyBinding(plan->computeProcessors); !status.ok()) {
    FARHOP_LOG(WARNING) << "not bound to any cores: " << status.message();
    return;
  }
  if (plan->split) serviceProcessors_ = plan->serviceProcessors;
}

// On whichever thread noticed: everyone else first, then those who wait in this process. (Collectives and the
// local channel listen to the monitor themselves.)
void Session::onFailure(const absl::Status& failure) {
  LocalChannel* channel;
  WorkerGroup* group;
  {
    std::lock_guard lock(mutex_);
    failed_ = true;
    channel = channel_.get();
    group = group_.get();
  }
  wake_.notify_all();
  if (channel != nullptr) channel->reportLost(failure);
  if (group != nullptr) group->tellPeers(failure);
}

void Session::closeAfterFailure() {
  setThreadName("farhop/closer");
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return failed_ || stopping_; });
    if (!failed_) return;
    wake_.wait_until(lock, monitor_.failedAt() + kGrace, [this] { return stopping_; });
    if (stopping_) return;
  }
  group_->close(monitor_.status());
  {
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, monitor_.failedAt() + kStoreGrace, [this] { return stopping_; });
    if (stopping_) return;
  }
  group_->leaveStore();
}

absl::Status Session::leave(Deadline deadline) {
  if (closed_) return absl::FailedPreconditionError("the session has been left before");
  mark(&StageTimes::leavingSeconds);
  board_.enter(ProcessState::kLeaving);
  absl::Status status = monitor_.failed() ? monitor_.status() : farewell(deadline);
  // Whoever waits here may see a loss before the monitor has heard of it; the others are to hear of it in any case.
  // That somebody is late is no loss.
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) monitor_.record(status);
  // What has failed meanwhile explains the rest.
  if (const absl::Status failure = monitor_.status(); !failure.ok()) status = failure;
  close(status.ok() ? absl::CancelledError("this process has left") : status);
  logSummary();
  return status;
}

absl::Status Session::farewell(Deadline deadline) {
  // Everyone is done first: a process that still trains may ask anybody anything.
  FARHOP_RETURN_IF_ERROR(collectives_->barrierJob(deadline));
  rpc::reachStage("leave/barrier");
  FARHOP_RETURN_IF_ERROR(group_->farewell(deadline));
  rpc::reachStage("leave/group");
  return channel_->leave(deadline);
}

void Session::abandon(const absl::Status& reason) {
  if (closed_) return;
  const PeerName self{contract_.machine, contract_.proc, ""};
  // A status that names a peer is about that peer: this process is only its victim.
  const std::optional<PeerName> peer = peerOf(reason);
  if (peer && (peer->machine != self.machine || peer->proc != self.proc)) {
    monitor_.record(reason);
  } else {
    monitor_.record(withPeer(
        absl::Status(reason.code(), absl::StrCat(describePeer(self), " ended: ", std::string(reason.message()))), self));
  }
  close(reason);
  logSummary();
}

void Session::close(const absl::Status& reason) {
  closed_ = true;
  const Clock::time_point failedAt = monitor_.failedAt();
  monitor_.ignoreFurther();
  if (failedAt != Clock::time_point::max() && contract_.worldSize() > 1) {
    // The closer may be on it already; closing twice does no harm. A process that failed by itself ends before
    // those that end because of it, so that whoever watches them all sees the culprit's exit first.
    const std::optional<PeerName> culprit = peerOf(monitor_.status());
    const bool isCulprit = culprit && culprit->machine == contract_.machine && culprit->proc == contract_.proc;
    std::this_thread::sleep_until(failedAt + (isCulprit ? kGrace : kVictimGrace));
  }
  monitor_.removeListener(listenerId_);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (closer_.joinable()) closer_.join();
  statusServer_.reset();
  board_.setOnEnter({});
  launcher_.reset();
  step_.reset();
  if (group_) group_->close(reason);
  if (collectives_) collectives_->interrupt();
  // Last: what it had to tell is told, and the machine's others see this process end.
  if (channel_) (void)channel_->leave(Deadline());
  mark(&StageTimes::leftSeconds);
  std::lock_guard lock(mutex_);
  times_.peakBytes = peakResidentBytes();
}

Session::~Session() {
  if (!closed_) {
    if (std::uncaught_exceptions() > uncaught_) {
      abandon(absl::AbortedError("an exception ended the trainer; its log says which"));
    } else if (const absl::Status status = leave(Deadline::after(options_.leaveTimeout)); !status.ok()) {
      FARHOP_LOG(WARNING) << "left without a complete farewell: " << status.message();
    }
  }
}

StageTimes Session::times() const {
  std::lock_guard lock(mutex_);
  return times_;
}

double Session::sinceStart() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

void Session::mark(double StageTimes::*stage) {
  std::lock_guard lock(mutex_);
  times_.*stage = sinceStart();
}

void Session::logSummary() const {
  const StageTimes times = this->times();
  std::string line;
  double last = 0;
  const auto stage = [&](const char* name, double end) {
    if (end < 0) return;
    absl::StrAppend(&line, line.empty() ? "" : ", ", name, " ", seconds(end - last));
    last = end;
  };
  stage("libfabric", times.fabricSeconds);
  stage("bind", times.boundSeconds);
  stage("local channel", times.channelSeconds);
  stage("start gate", times.gateSeconds);
  stage("worker group", times.readySeconds);
  stage("other groups", times.allReadySeconds);
  stage("work", times.leavingSeconds);
  stage("leave", times.leftSeconds);
  const GroupBulk* const bulk = group_ == nullptr ? nullptr : group_->bulk();
  FARHOP_LOG(INFO) << "stages: " << line << "; peak memory " << megabytes(times.readyPeakBytes) << " when ready, "
                   << megabytes(times.peakBytes) << " at the end"
                   << (bulk == nullptr ? "" : "; features over " + bulk->transport()->provider());
}

}  // namespace farhop::runtime
