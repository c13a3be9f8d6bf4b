#include "launcher/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

namespace farhop::launcher {
namespace {

constexpr std::chrono::seconds kExecTimeout{60};  // program files may lie on a slow network file system
constexpr std::chrono::seconds kReapTimeout{5};

struct Pipe {
  FileDescriptor read, write;
};

absl::StatusOr<Pipe> makePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errnoStatus("pipe", errno);
  return Pipe{FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

std::vector<char*> pointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The C library's own declaration lacks C linkage in glibc 2.36. Always close-on-exec.
int openPidFd(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

// What went wrong between fork and exec, sent through a pipe that a successful exec closes.
struct ChildFailure {
  enum Step : int { kWorkingDirectory, kExecute, kOther } step;
  int error;
};

// All that the child needs, prepared before fork.
struct ChildPlan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* workingDirectory;
  int in, out, err, failure;
  int deathSignal;
  const std::vector<int>& inheritedFds;
  const rlimit* openFiles;
  pid_t parent;
};

// Runs in the child after fork: async-signal-safe calls only, and it never returns.
[[noreturn]] void runChild(const ChildPlan& plan) {
  const auto fail = [&](ChildFailure::Step step) {
    const ChildFailure failure{step, errno};
    // Smaller than PIPE_BUF: written whole or not at all.
    const ssize_t ignored = ::write(plan.failure, &failure, sizeof(failure));
    (void)ignored;
    ::_exit(127);
  };
  if (::prctl(PR_SET_PDEATHSIG, plan.deathSignal) != 0) fail(ChildFailure::kOther);
  if (::getppid() != plan.parent) ::_exit(127);  // the launcher ended before the line above took effect
  if (::setpgid(0, 0) != 0) fail(ChildFailure::kOther);
  if (::dup2(plan.in, STDIN_FILENO) < 0 || ::dup2(plan.out, STDOUT_FILENO) < 0 ||
      ::dup2(plan.err, STDERR_FILENO) < 0) {
    fail(ChildFailure::kOther);
  }
  for (const int fd : plan.inheritedFds) {
    if (::fcntl(fd, F_SETFD, 0) != 0) fail(ChildFailure::kOther);
  }
  if (plan.openFiles != nullptr) ::setrlimit(RLIMIT_NOFILE, plan.openFiles);
  if (::chdir(plan.workingDirectory) != 0) fail(ChildFailure::kWorkingDirectory);
  // The launcher ignores SIGPIPE and blocks what it reads through signalfd; the trainer gets neither.
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(plan.program, plan.arguments, plan.environment);
  fail(ChildFailure::kExecute);
  __builtin_unreachable();
}

absl::Status describeFailure(const ChildFailure& failure, const std::string& program,
                             const std::string& workingDirectory) {
  switch (failure.step) {
    case ChildFailure::kWorkingDirectory:
      return errnoStatus(absl::StrCat("changing to ", workingDirectory), failure.error);
    case ChildFailure::kExecute:
      if (failure.error == ENOEXEC) {
        return absl::InvalidArgumentError(
            absl::StrCat("executing ", program,
                         ": not a program of this machine; a script needs a first "
                         "line such as #!/bin/sh"));
      }
      if (failure.error == ENOENT) {
        return absl::NotFoundError(
            absl::StrCat("executing ", program,
                         ": its interpreter (the #! line) or dynamic loader does not exist"));
      }
      return errnoStatus(absl::StrCat("executing ", program), failure.error);
    case ChildFailure::kOther:
      break;
  }
  return errnoStatus(absl::StrCat("preparing to execute ", program), failure.error);
}

// The kernel's list may miss some while they come and go; callers ask again.
std::vector<pid_t> children() {
  std::ifstream file(absl::StrCat("/proc/self/task/", ::getpid(), "/children"));
  std::vector<pid_t> result;
  for (pid_t child = 0; file >> child;) result.push_back(child);
  return result;
}

}  // namespace

std::string signalName(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string ProcessEnd::text() const {
  if (lost) return "lost with its machine";
  return signaled ? absl::StrCat("signal ", code, " (", signalName(code), ")")
                  : absl::StrCat("exit code ", code);
}

absl::StatusOr<Process> Process::spawn(const SpawnRequest& request) {
  FARHOP_ASSIGN_OR_RETURN(Process process, begin(request));
  for (;;) {
    if (const std::optional<absl::Status> result = process.execResult()) {
      FARHOP_RETURN_IF_ERROR(*result);
      return process;
    }
    pollfd entry{process.execFd(), POLLIN, 0};
    ::poll(&entry, 1, process.execDeadline_.remainingMs());
  }
}

absl::StatusOr<Process> Process::begin(const SpawnRequest& request) {
  FARHOP_ASSIGN_OR_RETURN(Pipe out, makePipe());
  FARHOP_ASSIGN_OR_RETURN(Pipe err, makePipe());
  FARHOP_ASSIGN_OR_RETURN(Pipe failure, makePipe());
  Pipe in;
  if (request.openInput) {
    FARHOP_ASSIGN_OR_RETURN(in, makePipe());
    FARHOP_RETURN_IF_ERROR(setNonBlocking(in.write.get()));
  } else {
    in.read = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!in.read.valid()) return errnoStatus("opening /dev/null", errno);
  }
  for (const Pipe* pipe : {&out, &err, &failure}) FARHOP_RETURN_IF_ERROR(setNonBlocking(pipe->read.get()));
  const std::vector<char*> arguments = pointersTo(request.arguments);
  const std::vector<char*> environment = pointersTo(request.environment);
  const ChildPlan plan{request.program.c_str(),
                       arguments.data(),
                       environment.data(),
                       request.workingDirectory.c_str(),
                       in.read.get(),
                       out.write.get(),
                       err.write.get(),
                       failure.write.get(),
                       request.deathSignal,
                       request.inheritedFds,
                       request.openFiles ? &*request.openFiles : nullptr,
                       ::getpid()};
  Process process;
  process.pid_ = ::fork();
  if (process.pid_ == 0) runChild(plan);
  if (process.pid_ < 0) return errnoStatus(absl::StrCat("starting ", request.program), errno);
  process.pidFd_ = FileDescriptor(openPidFd(process.pid_));
  if (!process.pidFd_.valid()) return errnoStatus("pidfd_open (Linux 5.3 or newer is needed)", errno);
  process.in_ = std::move(in.write);
  process.out_ = std::move(out.read);
  process.err_ = std::move(err.read);
  process.execFd_ = std::move(failure.read);
  process.execDeadline_ = Deadline::after(kExecTimeout);
  process.program_ = request.program;
  process.workingDirectory_ = request.workingDirectory;
  return process;
}

std::optional<absl::Status> Process::execResult() {
  ChildFailure failure{};
  ssize_t n = 0;
  do {
    n = ::read(execFd_.get(), &failure, sizeof(failure));
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    if (!execDeadline_.expired()) return std::nullopt;
    return absl::DeadlineExceededError(absl::StrCat("executing ", program_, " took more than ", kExecTimeout.count(),
                                                    " s; is its file system reachable?"));
  }
  execFd_.reset();
  if (n == static_cast<ssize_t>(sizeof(failure))) return describeFailure(failure, program_, workingDirectory_);
  return absl::OkStatus();
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidFd_(std::move(other.pidFd_)),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)),
      execFd_(std::move(other.execFd_)),
      execDeadline_(other.execDeadline_),
      program_(std::move(other.program_)),
      workingDirectory_(std::move(other.workingDirectory_)) {}

Process::~Process() {
  if (pid_ > 0) reap(Deadline::after(kReapTimeout));
}

std::optional<ProcessEnd> Process::end() const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  return ProcessEnd{info.si_code != CLD_EXITED, info.si_status};
}

void Process::signalGroup(int signal) const {
  if (pid_ <= 0) return;
  // Between fork and setpgid there is no group yet.
  if (::kill(-pid_, signal) != 0 && errno == ESRCH) ::kill(pid_, signal);
}

void Process::reap(Deadline deadline) {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);  // it may not have made its group yet
  signalGroup(SIGKILL);
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (deadline.expired()) break;  // stuck in the kernel; nothing more can be done to it
    pollfd entry{pidFd_.get(), POLLIN, 0};
    ::poll(&entry, 1, std::min(deadline.remainingMs(), pidFd_.valid() ? 3'600'000 : 10));
  }
  pid_ = -1;
}

void becomeSubreaper() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void reapOrphans(const std::vector<pid_t>& own) {
  for (pid_t child : children()) {
    if (std::find(own.begin(), own.end(), child) == own.end()) ::waitpid(child, nullptr, WNOHANG);
  }
}

bool killChildren(Deadline deadline) {
  for (;;) {
    for (pid_t child : children()) ::kill(child, SIGKILL);
    // A child's own children come to us when it ends: only ECHILD says that there are no more.
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (ended < 0) return true;
    if (deadline.expired()) return false;
    ::poll(nullptr, 0, 2);
  }
}

std::optional<rlimit> raiseOpenFiles() {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) return std::nullopt;
  rlimit raised = before;
  raised.rlim_cur = raised.rlim_max;
  if (raised.rlim_cur == before.rlim_cur || ::setrlimit(RLIMIT_NOFILE, &raised) != 0) return std::nullopt;
  return before;
}

}  // namespace farhop::launcher
