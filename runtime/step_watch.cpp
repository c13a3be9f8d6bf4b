#include "runtime/step_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "base/executor.h"

namespace farhop::runtime {
namespace {

constexpr int kMaxAncestors = 64;

struct ParentOf {
  std::string name;
  pid_t parent = 0;
};

// /proc/PID/stat: "pid (name) state parent ...", where a name may contain anything.
std::optional<ParentOf> readProcess(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  const size_t open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open || close + 4 >= line.size()) return std::nullopt;
  return ParentOf{line.substr(open + 1, close - open - 1), static_cast<pid_t>(std::atoi(line.c_str() + close + 4))};
}

}  // namespace

std::optional<pid_t> findAncestor(const std::string& name) {
  pid_t pid = ::getppid();
  for (int i = 0; i < kMaxAncestors && pid > 0; ++i) {
    const std::optional<ParentOf> process = readProcess(pid);
    if (!process) return std::nullopt;
    if (process->name == name) return pid;
    pid = process->parent;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<StepWatch>> StepWatch::open(const LaunchContract& contract, FailureMonitor* monitor,
                                                           const std::string& ancestor) {
  if (contract.launcherFd >= 0 || contract.worldSize() == 1) return std::unique_ptr<StepWatch>();
  const std::optional<pid_t> pid = findAncestor(ancestor);
  if (!pid) return std::unique_ptr<StepWatch>();
  std::unique_ptr<StepWatch> watch(new StepWatch(contract, monitor));
  watch->what_ = absl::StrCat(ancestor, " (pid ", *pid, ")");
  watch->pidFd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
  // One that has just ended, or a kernel that has no such descriptors: nothing to watch.
  if (!watch->pidFd_.valid()) return std::unique_ptr<StepWatch>();
  watch->wakeup_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!watch->wakeup_.valid()) return errnoStatus("watching Slurm's step", errno);
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  return watch;
}

StepWatch::~StepWatch() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
  thread_.join();
}

void StepWatch::run() {
  setThreadName("farhop/step");
  for (;;) {
    pollfd entries[] = {{pidFd_.get(), POLLIN, 0}, {wakeup_.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    if (entries[0].revents == 0) continue;
    const PeerName self{contract_.machine, contract_.proc, ""};
    monitor_->record(withPeer(
        absl::UnavailableError(absl::StrCat("lost ", describePeer(self), ": ", what_,
                                            ", which started it, has ended; see the log of slurmd on its node")),
        self));
    return;
  }
}

}  // namespace farhop::runtime
