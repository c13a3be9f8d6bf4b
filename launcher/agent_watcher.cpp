#include "launcher/agent_watcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "launcher/job_processes.h"

namespace farhop::launcher {
namespace {

constexpr std::chrono::milliseconds kSweepTime{5'000};
constexpr int kSweepIntervalMs = 5;
// A job's line and a line per trainer are far less; what does not fit is not listened to.
constexpr size_t kMaxHeardBytes = size_t{1} << 20;

struct Watched {
  std::string jobId, token;
  int machine = -1;
  std::set<pid_t> trainers;
};

Watched parseHeard(const std::string& heard) {
  Watched watched;
  std::istringstream lines(heard.substr(0, heard.rfind('\n') + 1));  // a line that broke off says nothing
  for (std::string word; lines >> word;) {
    pid_t pid = 0;
    if (word == "job") {
      lines >> watched.jobId >> watched.token >> watched.machine;
    } else if (word == "trainer" && lines >> pid && pid > 1) {
      watched.trainers.insert(pid);
    }
  }
  return watched;
}

// One pass. How many processes and groups there still were.
size_t killWhatRuns(const Watched& watched, uint64_t brokenAtTicks) {
  const std::set<pid_t> groups = livingGroups(watched.trainers, brokenAtTicks);
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  size_t found = groups.size();
  if (watched.token.empty()) return found;
  // Those that have left their group. Other attempts of the job have another token, and where one machine plays several
  // they all have the same.
  for (const FoundProcess& process : findJobProcesses(watched.jobId)) {
    if (process.token != watched.token || process.machine != watched.machine) continue;
    const auto held = HeldProcess::hold(process);
    if (!held.ok()) continue;
    ++found;
    (void)held->signal(SIGKILL);
  }
  return found;
}

std::string hearUntilTheEnd(int pipe) {
  std::string heard;
  char bytes[4'096];
  for (;;) {
    const ssize_t n = ::read(pipe, bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EINTR)) return heard;
    if (n > 0 && heard.size() < kMaxHeardBytes) heard.append(bytes, static_cast<size_t>(n));
  }
}

[[noreturn]] void watch(int pipe) {
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::prctl(PR_SET_NAME, "farhop-watcher");
  // sshd ends a connection only when nobody holds its streams any more.
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) {
    if (null < 0 || ::dup2(null, fd) < 0) ::_exit(1);
  }
  const Watched watched = parseHeard(hearUntilTheEnd(pipe));
  // Until its agent ended, the number of a trainer's group could not become another's: the agent keeps its dead.
  const uint64_t brokenAtTicks = ticksSinceBoot();
  const Deadline deadline = Deadline::after(kSweepTime);
  while (killWhatRuns(watched, brokenAtTicks) > 0 && !deadline.expired()) ::poll(nullptr, 0, kSweepIntervalMs);
  removeFilesOfDead({watched.trainers.begin(), watched.trainers.end()});
  ::_exit(0);
}

}  // namespace

absl::StatusOr<AgentWatcher> AgentWatcher::start() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errnoStatus("pipe", errno);
  FileDescriptor read(fds[0]), write(fds[1]);
  // An agent never waits for its watcher, not even for one that is stopped.
  FARHOP_RETURN_IF_ERROR(setNonBlocking(write.get()));
  const pid_t pid = ::fork();
  if (pid < 0) return errnoStatus("starting the agent's watcher", errno);
  if (pid == 0) {
    write.reset();
    watch(read.get());
  }
  return AgentWatcher(std::move(write));
}

void AgentWatcher::tellJob(const std::string& jobId, const std::string& token, int machine) {
  tell(absl::StrCat("job ", jobId, " ", token, " ", machine, "\n"));
}

void AgentWatcher::tellTrainer(pid_t pid) {
  tell(absl::StrCat("trainer ", pid, "\n"));
}

// Lines are shorter than what a pipe takes whole. A watcher that has been killed can be told nothing, and the agent does
// its work without it.
void AgentWatcher::tell(const std::string& line) {
  const ssize_t ignored = ::write(pipe_.get(), line.data(), line.size());
  (void)ignored;
}

}  // namespace farhop::launcher
