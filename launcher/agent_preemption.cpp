// Signals to an agent's trainers, and to the agent itself: a node that is taken away tells all processes on it to end,
// SIGTERM first. The trainers then get the same time for a checkpoint as when the launcher is told, and the launcher ends
// the rest of the job meanwhile.
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "launcher/agent.h"

namespace farhop::launcher {

absl::Status Agent::takeOwnSignals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    // Slurm signals every process of a step: a request to stop is for the trainers.
    if (signal == SIGUSR1) continue;
    FARHOP_RETURN_IF_ERROR(takePreemption(signal));
  }
  return absl::OkStatus();
}

// A hangup is the end of the connection. A signal that is repeated does not shorten the grace, which is bounded anyway.
absl::Status Agent::takePreemption(int signal) {
  if (finishing_ || preempted_) return absl::OkStatus();
  if (signal == SIGHUP || !trainersRun()) return absl::CancelledError(absl::StrCat("received ", signalName(signal)));
  preempted_ = true;
  killDeadline_ = Deadline::after(std::chrono::milliseconds(orders_.graceMs));
  stream_.send(FrameKind::kPreempted, encodeNumber(static_cast<uint32_t>(signal)));
  if (!askedToEnd_) signalTrainers(signal);
  return absl::OkStatus();
}

// The connection of a node that is taken away may end before its grace does, or with the same signal.
absl::Status Agent::takeCut(absl::Status reason) {
  if (!preempted_) FARHOP_RETURN_IF_ERROR(takeOwnSignals());
  if (!preempted_) return reason;
  stream_.abandon();
  credit_ = std::numeric_limits<size_t>::max();  // what trainers write goes nowhere, but must not hold them up
  silentAt_ = nextAlive_ = Deadline::never();
  return absl::OkStatus();
}

absl::Status Agent::endPreempted() {
  if (!preempted_) return absl::OkStatus();
  if (killDeadline_.expired()) {
    killDeadline_ = Deadline::never();
    signalTrainers(SIGKILL);
  }
  // With a launcher it is for that to finish.
  if (stream_.abandoned() && !trainersRun()) return absl::CancelledError("told to end, without a launcher");
  return absl::OkStatus();
}

bool Agent::trainersRun() const {
  return std::any_of(trainers_.begin(), trainers_.end(), [](const Trainer& t) { return t.process && !t.ended; });
}

absl::Status Agent::takeSignal(const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(const uint32_t signal, decodeNumber(payload));
  if (signal == 0 || signal >= static_cast<uint32_t>(NSIG)) return absl::InvalidArgumentError("no such signal");
  // The trainers of a preempted machine know.
  const bool knownAlready = preempted_ && (signal == SIGTERM || signal == SIGINT);
  if (!knownAlready) signalTrainers(static_cast<int>(signal));
  return absl::OkStatus();
}

void Agent::signalTrainers(int signal) {
  for (const Trainer& trainer : trainers_) {
    if (trainer.process) trainer.process->signalGroup(signal);
  }
  // Of SIGINT, SIGTERM and SIGKILL nothing is started any more.
  if (signal != SIGINT && signal != SIGTERM && signal != SIGKILL) return;
  askedToEnd_ = true;
  for (; starting_ && nextTrainer_ < trainers_.size(); ++nextTrainer_) {
    Trainer& never = trainers_[nextTrainer_];
    never.ended = true;
    stream_.send(FrameKind::kEnded, encode(TrainerEnded{static_cast<uint32_t>(never.proc), true, static_cast<uint32_t>(signal)}));
  }
}

}  // namespace farhop::launcher
