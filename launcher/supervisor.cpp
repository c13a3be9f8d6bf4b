#include "launcher/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_format.h"
#include "runtime/job_news.h"
#include "runtime/launch_contract.h"

namespace farhop::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int kTimeoutExitCode = 124;  // as timeout(1) does
constexpr milliseconds kPollInterval{1'000};
constexpr milliseconds kKillTime{5'000};  // SIGKILL takes effect at once unless the kernel itself is stuck
// For agents to kill what is left, pass on what pipes held and say so.
constexpr milliseconds kFinishTime{12'000};
constexpr milliseconds kFlushIdleTime{5'000};

std::string seconds(milliseconds duration) {
  return absl::StrFormat("%g s", static_cast<double>(duration.count()) / 1e3);
}

}  // namespace

absl::StatusOr<FileDescriptor> openSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction action {};
    // A blocked signal is delivered to a signalfd even when it is ignored.
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    ::sigaddset(&set, signal);
  }
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return errnoStatus("sigprocmask", errno);
  FileDescriptor fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd.valid()) return errnoStatus("signalfd", errno);
  return fd;
}

Supervisor::Supervisor(std::vector<JobMachine>& machines, const SupervisorOptions& options, Terminals& terminals,
                       FileDescriptor& signals)
    : machines_(machines), options_(options), terminals_(terminals), signals_(signals) {
  enter(Phase::kStarting, Deadline::after(options.startTimeout));
}

absl::StatusOr<int> Supervisor::run() {
  while (!allEnded() && !gaveUp_ && !cancelled_ && startError_.ok()) {
    step(deadline_);
    if (!allEnded() && deadline_.expired()) onDeadline();
  }
  finish();
  if (!startError_.ok()) return startError_;
  return exitCode_;
}

bool Supervisor::allEnded() const {
  return std::all_of(machines_.begin(), machines_.end(), [](const JobMachine& machine) {
    return std::all_of(machine.processes.begin(), machine.processes.end(),
                       [](const JobProcess& p) { return p.end.has_value(); });
  });
}

void Supervisor::say(const std::string& line) {
  terminals_.err->appendOwn(absl::StrCat("farhop: ", line, "\n"));
}

void Supervisor::sendAll(FrameKind kind, const std::string& payload) {
  for (JobMachine& machine : machines_) {
    if (machine.state() == JobMachine::State::kRunning) machine.stream().send(kind, payload);
  }
}

void Supervisor::signalAll(int signal) {
  sendAll(FrameKind::kSignal, encodeNumber(static_cast<uint32_t>(signal)));
}

void Supervisor::enter(Phase phase, Deadline deadline) {
  phase_ = phase;
  deadline_ = deadline;
}

void Supervisor::endAll(int signal) {
  signalAll(signal == SIGINT ? SIGINT : SIGTERM);
  enter(Phase::kTerminating, Deadline::after(options_.grace));
}

void Supervisor::step(Deadline deadline) {
  pollOnce(Deadline::earliest(deadline, Deadline::after(kPollInterval)));
  takeSignals();
  for (const Source& source : ready_) {
    if (source.kind == Source::kErrors) {
      for (const std::string& line : source.machine->receiveErrors()) {
        say(absl::StrCat(source.machine->name(), ": ", line));
      }
    } else {
      source.machine->receive();
      takeFrames(*source.machine);
    }
  }
  for (JobMachine& machine : machines_) {
    const bool wasOver = machine.over();
    machine.keepUp();
    if (!wasOver && machine.over()) takeLost(machine);
  }
  takeEnds();  // before output: a failure should be acted on while its peers' errors are still on the way
  for (JobMachine& machine : machines_) machine.passOn(false);
  terminals_.out->writeSome();
  terminals_.err->writeSome();
}

void Supervisor::pollOnce(Deadline deadline) {
  std::vector<pollfd> entries;
  entries.reserve(3 + machines_.size() * 3);
  entries.push_back({signals_.get(), POLLIN, 0});
  for (const Terminal* terminal : {terminals_.out.get(), terminals_.err.get()}) {
    if (terminal->pending()) entries.push_back({terminal->fd(), POLLOUT, 0});
  }
  for (JobMachine& machine : machines_) {
    if (machine.over()) continue;
    deadline = Deadline::earliest(deadline, machine.nextDeadline());
    if (machine.stream().pending()) entries.push_back({machine.stream().outFd(), POLLOUT, 0});
  }
  const size_t first = entries.size();
  ready_.clear();
  for (JobMachine& machine : machines_) {
    if (!machine.over() && machine.inFd() >= 0) {
      entries.push_back({machine.inFd(), POLLIN, 0});
      ready_.push_back({Source::kStream, &machine});
    }
    if (machine.errorFd() >= 0) {
      entries.push_back({machine.errorFd(), POLLIN, 0});
      ready_.push_back({Source::kErrors, &machine});
    }
  }
  if (::poll(entries.data(), entries.size(), deadline.remainingMs()) <= 0) ready_.clear();
  size_t entry = first;
  std::erase_if(ready_, [&](const Source&) { return entries[entry++].revents == 0; });
}

void Supervisor::takeSignals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info))
    onSignal(static_cast<int>(info.ssi_signo));
}

void Supervisor::takeEnds() {
  std::vector<JobProcess*> failed;
  for (JobProcess* process : ended_) {
    if (process->end->failed()) {
      failed.push_back(process);
    } else {
      tellOthers(*process);
    }
  }
  ended_.clear();
  if (phase_ != Phase::kRunning && phase_ != Phase::kReporting) return;
  // Of several seen at once, one that a signal killed is the cause: its peers end with exit codes.
  std::stable_partition(failed.begin(), failed.end(), [](const JobProcess* p) { return p->end->signaled; });
  for (JobProcess* process : failed) {
    if (phase_ == Phase::kRunning) {
      onFirstFailure(*process);
    } else if (firstFailure_ != nullptr) {
      if (process->end->lost) tellOthers(*process);
      laterFailures_.push_back(process);
    }
  }
}

void Supervisor::onFirstFailure(JobProcess& failed) {
  tellOthers(failed);
  firstFailure_ = &failed;
  exitCode_ = failed.end->exitCode();
  stopped_ = !failed.end->signaled && failed.end->code == runtime::kStoppedExitCode;
  if (stopped_) {
    say(absl::StrCat(failed.name(), " has stopped, as it was asked to, with ", failed.end->text()));
    return enter(Phase::kReporting, Deadline::after(kReportTime));
  }
  say(absl::StrCat(failed.name(), " failed: ", failed.end->text()));
  const auto& tail = failed.output.tail();
  if (tail.empty()) {
    say("it wrote nothing");
  } else {
    say(tail.size() == 1 ? "its last line:" : absl::StrCat("its last ", tail.size(), " lines:"));
    for (const std::string& line : tail) terminals_.err->appendOwn(absl::StrCat("    ", line, "\n"));
  }
  say(absl::StrCat("its log: ", failed.output.logPath()));
  enter(Phase::kReporting, Deadline::after(kReportTime));
}

// Of failures the first is told only: the later ones are its consequences; of processes that were lost together, all.
void Supervisor::tellOthers(const JobProcess& ended) {
  sendAll(FrameKind::kNews,
          runtime::encodeJobNews({{ended.machine, ended.proc, absl::StrCat(ended.host, " pid ", ended.pid)},
                                  !ended.end->failed(), ended.end->text()}));
}

void Supervisor::onSignal(int signal) {
  if (signal == SIGUSR1) {
    if (phase_ != Phase::kRunning || allEnded()) return;
    say("received SIGUSR1: asking the trainers to stop");
    return signalAll(SIGUSR1);
  }
  if (finishing_) {
    interrupted_ = true;
    return;
  }
  if (phase_ == Phase::kStarting) {
    exitCode_ = 128 + signal;
    say(absl::StrCat("received ", signalName(signal), ": nothing was started"));
    cancelled_ = true;
    return;
  }
  if (allEnded()) return;
  if (phase_ == Phase::kRunning) {
    exitCode_ = 128 + signal;
    say(absl::StrCat("received ", signalName(signal), ": ending the job; again to kill it at once"));
    return endAll(signal);
  }
  if (phase_ == Phase::kKilling) return;
  say(absl::StrCat("received ", signalName(signal), ": killing the job"));
  signalAll(SIGKILL);
  enter(Phase::kKilling, Deadline::after(kKillTime));
}

void Supervisor::onDeadline() {
  switch (phase_) {
    case Phase::kStarting:
      for (const JobMachine& machine : machines_) {
        if (machine.state() >= JobMachine::State::kPrepared) continue;
        return cannotStart(absl::DeadlineExceededError(
            absl::StrCat(machine.name(), " was not ready to start within ", seconds(options_.startTimeout),
                         ": is it up, and are its file systems reachable?")));
      }
      return;
    case Phase::kRunning:
      if (!options_.timeout) return enter(Phase::kRunning, Deadline::never());
      exitCode_ = kTimeoutExitCode;
      say(absl::StrCat("the time limit of ", seconds(*options_.timeout),
                       " (--timeout) is reached: ending the job"));
      return endAll(SIGTERM);
    case Phase::kReporting:
      signalAll(SIGTERM);
      enter(Phase::kTerminating, Deadline::after(kTerminateTime));
      return;
    case Phase::kTerminating:
      signalAll(SIGKILL);
      enter(Phase::kKilling, Deadline::after(kKillTime));
      return;
    case Phase::kKilling:
      for (const JobMachine& machine : machines_) {
        for (const JobProcess& process : machine.processes) {
          if (!process.end) say(absl::StrCat(process.name(), " (pid ", process.pid, ") cannot be killed"));
        }
      }
      gaveUp_ = true;
      return;
  }
}

// Asked to by whom it may: that what they leave can be gone on from counts for more.
bool Supervisor::allStopped() const {
  return std::all_of(machines_.begin(), machines_.end(), [](const JobMachine& machine) {
    return std::all_of(machine.processes.begin(), machine.processes.end(), [](const JobProcess& p) {
      return p.end && !p.end->signaled && !p.end->lost && p.end->code == runtime::kStoppedExitCode;
    });
  });
}

void Supervisor::finish() {
  if (allStopped()) exitCode_ = runtime::kStoppedExitCode;
  finishing_ = true;
  finishAgents();
  for (JobMachine& machine : machines_) {
    machine.passOn(true);
    machine.close(Deadline::after(kKillTime));
  }
  // What an agent leaves that was killed itself comes to this process, where both are on one machine.
  if (!killChildren(Deadline::after(gaveUp_ ? milliseconds(0) : kKillTime)) && !gaveUp_) {
    say("some processes of the job cannot be killed");
  }
  for (JobMachine& machine : machines_) {
    for (JobProcess& process : machine.processes) process.output.finish();
  }
  reportOthers();
  flush();
}

void Supervisor::finishAgents() {
  for (JobMachine& machine : machines_) {
    if (machine.over()) continue;
    if (machine.state() == JobMachine::State::kConnecting) {
      machine.lose(absl::CancelledError("the start was given up"));
      continue;
    }
    machine.setState(JobMachine::State::kFinishing);
    machine.stream().send(FrameKind::kFinish);
  }
  const Deadline deadline = Deadline::after(gaveUp_ || cancelled_ ? kKillTime / 2 : kFinishTime);
  const auto allOver = [&] {
    return std::all_of(machines_.begin(), machines_.end(), [](const JobMachine& machine) { return machine.over(); });
  };
  while (!allOver() && !deadline.expired() && !interrupted_) step(deadline);
}

void Supervisor::reportOthers() {
  for (const JobProcess* process : laterFailures_) {
    if (stopped_ && process->end->code == runtime::kStoppedExitCode && !process->end->signaled) continue;
    say(absl::StrCat(process->name(), " ended after that: ", process->end->text(),
                     ", log: ", process->output.logPath()));
  }
}

void Supervisor::flush() {
  Deadline idle = Deadline::after(kFlushIdleTime);
  const auto pendingBytes = [&] {
    return terminals_.out->pendingBytes() +
           (terminals_.err != terminals_.out ? terminals_.err->pendingBytes() : 0);
  };
  while (size_t before = pendingBytes()) {
    pollOnce(idle);
    takeSignals();
    terminals_.out->writeSome();
    terminals_.err->writeSome();
    if (pendingBytes() < before) idle = Deadline::after(kFlushIdleTime);
    if (interrupted_ || idle.expired()) break;
  }
  outputLost_ = pendingBytes() > 0;
}

}  // namespace farhop::launcher
