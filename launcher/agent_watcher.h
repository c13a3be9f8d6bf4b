// What is left of an agent that is killed with SIGKILL: a small process of its own, one per machine, at the other end of a
// pipe that the agent holds. When the pipe breaks it kills what the agent's trainers have started. The trainers themselves
// the kernel kills (Process); their children it does not, and nobody else on the machine knows of them.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/socket.h"
#include "base/status.h"

namespace farhop::launcher {

// Not thread-safe. An agent that ends by itself kills the watcher with its other children.
class AgentWatcher {
 public:
  // Forks, so it is to be called before this process has threads, memory or descriptors to speak of. The watcher has none
  // of this process's standard streams, a session of its own, and ends with the pipe alone: a signal that is meant for
  // everything of a job is nothing to it.
  static absl::StatusOr<AgentWatcher> start();

  // By these the environment of a process says that it belongs to this agent. None of the three with a line break or blank.
  void tellJob(const std::string& jobId, const std::string& token, int machine);
  // A trainer, which leads a process group.
  void tellTrainer(pid_t pid);

 private:
  explicit AgentWatcher(FileDescriptor pipe) : pipe_(std::move(pipe)) {}
  void tell(const std::string& line);

  FileDescriptor pipe_;
};

}  // namespace farhop::launcher
