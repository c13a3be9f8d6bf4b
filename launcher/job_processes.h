// Finds what belongs to a job on this machine: processes of this user that have its id in their environment (never by a
// name), what they keep in /dev/shm, and its run directory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"

namespace farhop::launcher {

struct FoundProcess {
  pid_t pid = 0;
  std::string jobId;
  int machine = -1, proc = -1;  // -1: not in its environment, as a launcher's agent's
  std::string command;          // its file's name
  std::string token;            // of the job's attempt; never shown
};

// By pid; with a job id only that job's. Never the calling process or one of those that it descends from. Processes that
// cannot be looked at (another user's, set-user-id) and zombies are left out.
std::vector<FoundProcess> findJobProcesses(const std::string& jobId);

// As the kernel dates the starts of processes.
uint64_t ticksSinceBoot();
// Of these process groups those that have a member of this user which runs, and which started no later than `untilTicks`.
std::set<pid_t> livingGroups(const std::set<pid_t>& groups, uint64_t untilTicks);

// A process held by a descriptor, so that its number cannot come to mean another one.
class HeldProcess {
 public:
  // NotFound when it has gone, or the number is by now another's.
  static absl::StatusOr<HeldProcess> hold(const FoundProcess& process);
  const FoundProcess& process() const { return process_; }
  absl::Status signal(int number) const;
  bool ended() const;
  int fd() const { return fd_.get(); }

 private:
  FoundProcess process_;
  FileDescriptor fd_;
};

// Files below /dev/shm that the process maps or has open.
std::set<std::string> sharedMemoryFilesOf(pid_t pid);
// Of `files` those that exist, belong to this user and that no process which this user may look at still uses.
std::set<std::string> unusedFiles(const std::set<std::string>& files);
// Files in /dev/shm whose name says that they are of a process of this user that has ended, as libfabric's shm provider
// names them (PID:UID:NUMBER).
std::set<std::string> filesOfDeadProcesses();
// Removes those that are of one of these processes, and only once it has ended.
void removeFilesOfDead(const std::vector<pid_t>& pids);

// Run directories of farhop run in the system's temporary directory that belong to this user: that of the job, or with an
// empty id all of them.
std::vector<std::string> findRunDirectories(const std::string& jobId);

}  // namespace farhop::launcher
