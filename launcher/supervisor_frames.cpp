// The supervisor's part of the conversation with the agents (agent_protocol.h).
#include <signal.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "launcher/supervisor.h"

namespace farhop::launcher {
namespace {

using std::chrono::milliseconds;
using State = JobMachine::State;

absl::Status unexpected(const char* frame) {
  return absl::InvalidArgumentError(absl::StrCat("its agent sent a ", frame, " frame at the wrong time"));
}

}  // namespace

void Supervisor::takeFrames(JobMachine& machine) {
  while (!machine.over()) {
    auto frame = machine.stream().next();
    if (frame.ok() && !frame->has_value()) return;
    const absl::Status taken = frame.ok() ? takeFrame(machine, **frame) : frame.status();
    if (taken.ok()) continue;
    const std::string banner = machine.stream().banner();
    machine.lose(banner.empty() ? taken : annotate(taken, absl::StrCat("'", banner.substr(0, 200), "'")));
    takeLost(machine);
  }
}

absl::Status Supervisor::takeFrame(JobMachine& machine, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kAlive:
      return absl::OkStatus();
    case FrameKind::kHello:
      return takeHello(machine, frame.payload);
    case FrameKind::kPrepared:
      return takePrepared(machine, frame.payload);
    case FrameKind::kRefused: {
      const absl::Status refusal = decodeRefusal(frame.payload);
      // Where this machine plays all, its number says nothing.
      cannotStart(machine.command().host.empty() ? refusal : annotate(refusal, machine.name()));
      return absl::OkStatus();
    }
    case FrameKind::kStarted:
      return takeStarted(machine, frame.payload);
    case FrameKind::kOutput:
      return takeOutput(machine, frame.payload);
    case FrameKind::kEnded:
      return takeEnded(machine, frame.payload);
    case FrameKind::kPreempted:
      return takePreempted(machine, frame.payload);
    case FrameKind::kSaid: {
      FARHOP_ASSIGN_OR_RETURN(const TrainerSaid said, decodeSaid(frame.payload));
      if (said.proc >= machine.processes.size()) return unexpected("said");
      if (options_.onSaid) options_.onSaid(machine.processes[said.proc], said.message);
      return absl::OkStatus();
    }
    case FrameKind::kDone: {
      if (machine.state() != State::kFinishing) return unexpected("done");
      FARHOP_ASSIGN_OR_RETURN(const uint32_t left, decodeNumber(frame.payload));
      if (left != 0) say(absl::StrCat("some processes on ", machine.name(), " cannot be killed"));
      machine.setState(State::kDone);
      return absl::OkStatus();
    }
    default:
      return unexpected("launcher's");
  }
}

absl::Status Supervisor::takeHello(JobMachine& machine, const std::string& payload) {
  if (machine.state() != State::kConnecting) return unexpected("hello");
  FARHOP_ASSIGN_OR_RETURN(const AgentHello hello, decodeHello(payload));
  if (hello.protocol != kAgentProtocol || hello.version != options_.version) {
    return absl::FailedPreconditionError(
        absl::StrCat("farhop ", hello.version, " with protocol ", hello.protocol, " is installed there, but this is farhop ",
                     options_.version, " with protocol ", kAgentProtocol,
                     "; install the same version on all machines, or name another with --farhop"));
  }
  AgentOrders orders = options_.orders;
  orders.machine = static_cast<uint32_t>(machine.index());
  orders.silenceMs = machine.command().remote ? static_cast<uint32_t>(JobMachine::kSilence.count()) : 0;
  orders.graceMs = static_cast<uint32_t>(std::clamp<int64_t>(options_.grace.count(), 0, UINT32_MAX));
  orders.windowBytes = static_cast<uint32_t>(machine.windowBytes);
  const std::string bytes = encode(orders);
  if (bytes.size() > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the trainer's arguments and --env are ", bytes.size(),
                                                   " bytes; at most ", kMaxFrameBytes, " are possible"));
  }
  machine.stream().send(FrameKind::kOrders, bytes);
  machine.setState(State::kPreparing);
  return absl::OkStatus();
}

absl::Status Supervisor::takePrepared(JobMachine& machine, const std::string& payload) {
  if (machine.state() != State::kPreparing) return machine.state() == State::kFinishing ? absl::OkStatus() : unexpected("prepared");
  FARHOP_ASSIGN_OR_RETURN(AgentPrepared prepared, decodePrepared(payload));
  machine.setState(State::kPrepared);
  if (machine.index() == 0) master_ = std::move(prepared);
  const bool all = std::all_of(machines_.begin(), machines_.end(),
                               [](const JobMachine& m) { return m.state() == State::kPrepared; });
  if (!all) return absl::OkStatus();
  if (options_.onPrepared) options_.onPrepared(master_);
  for (JobMachine& each : machines_) {
    each.stream().send(FrameKind::kStart, encode(master_));
    each.setState(State::kRunning);
  }
  enter(Phase::kRunning, options_.timeout ? Deadline::after(*options_.timeout) : Deadline::never());
  return absl::OkStatus();
}

absl::Status Supervisor::takeStarted(JobMachine& machine, const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(const TrainerStarted started, decodeStarted(payload));
  if (started.proc >= machine.processes.size()) return unexpected("started");
  machine.processes[started.proc].pid = static_cast<pid_t>(started.pid);
  return absl::OkStatus();
}

absl::Status Supervisor::takeOutput(JobMachine& machine, const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(TrainerOutput output, decodeOutput(payload));
  if (output.proc >= machine.processes.size()) return unexpected("output");
  machine.hold(std::move(output));
  return absl::OkStatus();
}

absl::Status Supervisor::takeEnded(JobMachine& machine, const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(const TrainerEnded ended, decodeEnded(payload));
  if (ended.proc >= machine.processes.size() || machine.processes[ended.proc].end) return unexpected("ended");
  JobProcess& process = machine.processes[ended.proc];
  // Its last lines are part of the report, however full the terminal is.
  machine.passOn(true);
  process.end = ProcessEnd{ended.signaled, static_cast<int>(ended.code)};
  ended_.push_back(&process);
  return absl::OkStatus();
}

// Its agent has passed the signal on. All others end with it, in the same time, so that they can save the same step.
absl::Status Supervisor::takePreempted(JobMachine& machine, const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(const uint32_t signal, decodeNumber(payload));
  if (signal == 0 || signal >= static_cast<uint32_t>(NSIG)) return absl::InvalidArgumentError("its agent sent no signal's number");
  if (machine.state() == State::kFinishing) return absl::OkStatus();
  if (machine.state() != State::kRunning) return unexpected("preempted");
  const bool goesOn = phase_ == Phase::kRunning || phase_ == Phase::kReporting;
  if (!goesOn && !preempted_) return absl::OkStatus();  // who ends the whole job may tell the agents, too
  preempted_ = true;
  say(absl::StrCat(machine.name(), " is taken away (its agent received ", signalName(static_cast<int>(signal)),
                   "): ending the job; trainers have ", absl::StrFormat("%g s", static_cast<double>(options_.grace.count()) / 1e3), " (--grace) for what they save"));
  // A trainer that the same signal ended first is the job's first failure, but not a reason to give others less time.
  if (phase_ == Phase::kRunning) exitCode_ = 128 + static_cast<int>(signal);
  if (goesOn) endAll(static_cast<int>(signal));
  return absl::OkStatus();
}

void Supervisor::takeLost(JobMachine& machine) {
  if (finishing_) {
    if (!cancelled_ && startError_.ok()) {
      say(absl::StrCat(machine.name(), " is lost: ", machine.lostReason().message(),
                       "; what runs there ends by itself within ", JobMachine::kSilence.count() / 1'000, " s"));
    }
    return;
  }
  if (phase_ == Phase::kStarting) return cannotStart(annotate(machine.lostReason(), machine.name()));
  say(absl::StrCat(machine.name(), " is lost: ", machine.lostReason().message()));
  machine.passOn(true);
  for (JobProcess& process : machine.processes) {
    if (process.end) continue;
    process.end = ProcessEnd{};
    process.end->lost = true;
    ended_.push_back(&process);
  }
}

void Supervisor::cannotStart(absl::Status reason) {
  if (startError_.ok()) startError_ = std::move(reason);
}

}  // namespace farhop::launcher
