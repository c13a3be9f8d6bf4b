#include "launcher/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_format.h"
#include "runtime/job_news.h"

namespace farhop::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int kTimeoutExitCode = 124;  // as timeout(1) does
constexpr milliseconds kForever{1'000L * 3'600 * 24 * 366};
constexpr milliseconds kOrphanInterval{1'000};
constexpr milliseconds kSettleTime{250};  // for helpers such as tee to pass on their last output
constexpr milliseconds kDrainTime{1'000};
constexpr milliseconds kKillTime{5'000};  // SIGKILL takes effect at once unless the kernel itself is stuck
constexpr milliseconds kFlushIdleTime{5'000};

std::string seconds(milliseconds duration) {
  return absl::StrFormat("%g s", static_cast<double>(duration.count()) / 1e3);
}

}  // namespace

absl::StatusOr<FileDescriptor> openSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
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

Supervisor::Supervisor(std::vector<JobProcess>& processes, const SupervisorOptions& options,
                       Terminals& terminals, FileDescriptor& signals)
    : processes_(processes), options_(options), terminals_(terminals), signals_(signals) {
  enter(Phase::kRunning, options.timeout.value_or(kForever));
}

int Supervisor::run() {
  while (!allEnded() && !gaveUp_) {
    step(deadline_);
    if (!allEnded() && deadline_.expired()) onDeadline();
  }
  finish();
  return exitCode_;
}

bool Supervisor::allEnded() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const JobProcess& p) { return p.end.has_value(); });
}

bool Supervisor::anyPipeOpen() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const JobProcess& p) { return p.output.anyOpen(); });
}

void Supervisor::say(const std::string& line) {
  terminals_.err->append(absl::StrCat("farhop: ", line, "\n"));
}

void Supervisor::signalAll(int signal) {
  for (const JobProcess& process : processes_) process.process.signalGroup(signal);
}

void Supervisor::enter(Phase phase, milliseconds duration) {
  phase_ = phase;
  deadline_ = Deadline::after(duration);
}

void Supervisor::step(Deadline deadline) {
  pollOnce(Deadline::earliest(deadline, Deadline::after(kOrphanInterval)));
  takeSignals();
  takeEnds();  // before output: a failure should be acted on while its peers' errors are still on the way
  for (const auto& [process, stream] : ready_) process->output.pump(stream);
  terminals_.out->writeSome();
  terminals_.err->writeSome();
  if (!nextOrphanCheck_.expired()) return;
  nextOrphanCheck_ = Deadline::after(kOrphanInterval);
  std::vector<pid_t> own;
  for (const JobProcess& process : processes_) own.push_back(process.process.pid());
  reapOrphans(own);
}

void Supervisor::pollOnce(Deadline deadline) {
  std::vector<pollfd> entries;
  entries.reserve(3 + processes_.size() * 3);
  entries.push_back({signals_.get(), POLLIN, 0});
  for (const Terminal* terminal : {terminals_.out.get(), terminals_.err.get()}) {
    if (terminal->pending()) entries.push_back({terminal->fd(), POLLOUT, 0});
  }
  for (const JobProcess& process : processes_) {
    if (!process.end) entries.push_back({process.process.pidFd(), POLLIN, 0});
  }
  const size_t firstPipe = entries.size();
  ready_.clear();
  for (JobProcess& process : processes_) {
    for (OutputPump::Stream stream : {OutputPump::kOut, OutputPump::kErr}) {
      const int fd = process.output.pollFd(stream);
      if (fd < 0) continue;
      entries.push_back({fd, POLLIN, 0});
      ready_.emplace_back(&process, stream);
    }
  }
  if (::poll(entries.data(), entries.size(), deadline.remainingMs()) <= 0) ready_.clear();
  size_t pipe = firstPipe;
  std::erase_if(ready_, [&](const auto&) { return entries[pipe++].revents == 0; });
}

void Supervisor::takeSignals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info))
    onSignal(static_cast<int>(info.ssi_signo));
}

void Supervisor::takeEnds() {
  std::vector<JobProcess*> failed;
  for (JobProcess& process : processes_) {
    if (process.end) continue;
    process.end = process.process.end();
    if (!process.end) continue;
    process.output.drain();
    if (process.end->failed()) {
      failed.push_back(&process);
    } else {
      tellOthers(process);
    }
  }
  if (phase_ != Phase::kRunning && phase_ != Phase::kReporting) return;
  // Of several seen at once, one that a signal killed is the cause: its peers end with exit codes.
  std::stable_partition(failed.begin(), failed.end(), [](const JobProcess* p) { return p->end->signaled; });
  for (JobProcess* process : failed) {
    if (phase_ == Phase::kRunning) {
      onFirstFailure(*process);
    } else if (firstFailure_ != nullptr) {
      laterFailures_.push_back(process);
    }
  }
}

void Supervisor::onFirstFailure(JobProcess& failed) {
  tellOthers(failed);
  firstFailure_ = &failed;
  exitCode_ = failed.end->exitCode();
  say(absl::StrCat(failed.name(), " failed: ", failed.end->text()));
  const auto& tail = failed.output.tail();
  if (tail.empty()) {
    say("it wrote nothing");
  } else {
    say(tail.size() == 1 ? "its last line:" : absl::StrCat("its last ", tail.size(), " lines:"));
    for (const std::string& line : tail) terminals_.err->append(absl::StrCat("    ", line, "\n"));
  }
  say(absl::StrCat("its log: ", failed.output.logPath()));
  enter(Phase::kReporting, kReportTime);
}

// Of failures the first is told only: the later ones are its consequences. Who does not read, or reads too slowly, is
// ended with the rest when its time is over.
void Supervisor::tellOthers(const JobProcess& ended) {
  const std::string message =
      runtime::encodeJobNews({{ended.machine, ended.proc, absl::StrCat(ended.host, " pid ", ended.process.pid())},
                              !ended.end->failed(), ended.end->text()});
  for (const JobProcess& other : processes_) {
    if (other.end || !other.news.valid()) continue;
    (void)!::send(other.news.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void Supervisor::onSignal(int signal) {
  if (flushing_) {
    interrupted_ = true;
    return;
  }
  if (allEnded()) return;
  if (phase_ == Phase::kRunning) {
    exitCode_ = 128 + signal;
    say(absl::StrCat("received ", signalName(signal), ": ending the job; again to kill it at once"));
    signalAll(signal == SIGINT ? SIGINT : SIGTERM);
    enter(Phase::kTerminating, options_.grace);
    return;
  }
  if (phase_ == Phase::kKilling) return;
  say(absl::StrCat("received ", signalName(signal), ": killing the job"));
  signalAll(SIGKILL);
  enter(Phase::kKilling, kKillTime);
}

void Supervisor::onDeadline() {
  switch (phase_) {
    case Phase::kRunning:
      if (!options_.timeout) return enter(Phase::kRunning, kForever);
      exitCode_ = kTimeoutExitCode;
      say(absl::StrCat("the time limit of ", seconds(*options_.timeout),
                       " (--timeout) is reached: ending the job"));
      signalAll(SIGTERM);
      enter(Phase::kTerminating, options_.grace);
      return;
    case Phase::kReporting:
      signalAll(SIGTERM);
      enter(Phase::kTerminating, kTerminateTime);
      return;
    case Phase::kTerminating:
      signalAll(SIGKILL);
      enter(Phase::kKilling, kKillTime);
      return;
    case Phase::kKilling:
      for (const JobProcess& process : processes_) {
        if (!process.end)
          say(absl::StrCat(process.name(), " (pid ", process.process.pid(), ") cannot be killed"));
      }
      gaveUp_ = true;
      return;
  }
}

void Supervisor::finish() {
  pumpUntilClosed(Deadline::after(kSettleTime));
  // Leaders that ended may have left others in their groups.
  signalAll(SIGKILL);
  for (JobProcess& process : processes_)
    process.process.reap(Deadline::after(gaveUp_ ? milliseconds(0) : kKillTime));
  if (!gaveUp_ && !killChildren(Deadline::after(kKillTime)))
    say("some processes of the job cannot be killed");
  pumpUntilClosed(Deadline::after(kDrainTime));
  for (JobProcess& process : processes_) {
    process.output.drain();
    process.output.finish();
  }
  reportOthers();
  flush();
}

void Supervisor::pumpUntilClosed(Deadline deadline) {
  while (anyPipeOpen() && !deadline.expired()) step(deadline);
}

void Supervisor::reportOthers() {
  for (const JobProcess* process : laterFailures_) {
    say(absl::StrCat(process->name(), " ended after that: ", process->end->text(),
                     ", log: ", process->output.logPath()));
  }
}

void Supervisor::flush() {
  flushing_ = true;
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
