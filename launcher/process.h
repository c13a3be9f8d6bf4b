// One trainer process: started, watched, ended with everything in its process group.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"

namespace farhop::launcher {

struct SpawnRequest {
  std::string program;                   // path of the file to execute
  std::vector<std::string> arguments;    // argv, the program's name first
  std::vector<std::string> environment;  // NAME=value
  std::string workingDirectory;
  std::vector<int> inheritedFds;    // kept open in the child under the same numbers
  std::optional<rlimit> openFiles;  // RLIMIT_NOFILE of the child, when not the launcher's
  bool openInput = false;           // standard input is a pipe, for takeIn(); otherwise /dev/null
  int deathSignal = 9;              // sent to the child when the thread that started it ends; 0: none
};

// How a process ended.
struct ProcessEnd {
  bool signaled = false;
  int code = 0;  // exit code, or signal number
  bool lost = false;  // nobody knows: the connection to its machine ended first

  static constexpr int kLostExitCode = 255;  // as ssh's
  bool failed() const { return signaled || code != 0 || lost; }
  int exitCode() const { return lost ? kLostExitCode : signaled ? 128 + code : code; }  // as a shell would report it
  std::string text() const;                                      // "exit code 3", "signal 9 (SIGKILL)"
};

// A child in a process group of its own, with standard input from /dev/null or a pipe and output into two pipes. The
// kernel kills it with SIGKILL when the thread that started it ends, whatever ends it; that
// reaches the child, not processes that the child started, and not set-user-id programs.
//
// The child stays a zombie until reap(): so its group's number cannot become a stranger's while we may signal
// it.
class Process {
 public:
  // Fails, with the reason and the program's name, also when the child could not execute the program. Must be
  // called from the thread that lives as long as the launcher.
  static absl::StatusOr<Process> spawn(const SpawnRequest& request);
  // The same without the wait for the program to be executed, which may take long on a network file system: execFd()
  // becomes readable when execResult() is known.
  static absl::StatusOr<Process> begin(const SpawnRequest& request);
  int execFd() const { return execFd_.get(); }
  // Whether the program was executed; nullopt while that is open, DeadlineExceeded when it has been for too long. To be
  // asked until it is known, once. Does not wait.
  std::optional<absl::Status> execResult();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  // Kills the whole group and waits for the child when that was not done.
  ~Process();

  pid_t pid() const { return pid_; }
  // Becomes readable when the process ends.
  int pidFd() const { return pidFd_.get(); }
  FileDescriptor takeIn() { return std::move(in_); }
  FileDescriptor takeOut() { return std::move(out_); }
  FileDescriptor takeErr() { return std::move(err_); }

  // How it ended; nullopt while it runs. Does not wait, does not reap.
  std::optional<ProcessEnd> end() const;
  // Signals every process of the group, also after the child itself ended, and the child before it has its group.
  void signalGroup(int signal) const;
  // Kills the group and waits for the child, at most until the deadline.
  void reap(Deadline deadline);

 private:
  Process() = default;

  pid_t pid_ = -1;
  FileDescriptor pidFd_, in_, out_, err_, execFd_;
  Deadline execDeadline_;
  std::string program_, workingDirectory_;  // for execResult()
};

// Processes of the job whose parents ended become the launcher's children from here on, wherever they hid.
void becomeSubreaper();
// Takes those that ended out of the process table; all children but `own` are such orphans.
void reapOrphans(const std::vector<pid_t>& own);
// Kills children until there are none, their orphans included. False when the deadline came first.
bool killChildren(Deadline deadline);

// Raises the launcher's own limit of open files to what is allowed, and returns what it was, for the
// trainers.
std::optional<rlimit> raiseOpenFiles();

std::string signalName(int signal);  // "SIGKILL"

}  // namespace farhop::launcher
