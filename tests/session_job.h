// A whole job in a test: M machines times P processes, all on this one, as forked children.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/socket.h"
#include "runtime/launch_contract.h"
#include "runtime/session.h"
#include "tests/process_group.h"

namespace farhop::test {

// Takes P consecutive ports and listens on them, as a launcher does, so that jobs of tests that run at the same
// time do not collide. Make it before the children are forked.
class SessionJob {
 public:
  SessionJob(int machines, int procs, const std::string& name);

  int worldSize() const { return machines_ * procs_; }
  int machineOf(int rank) const { return rank / procs_; }
  int procOf(int rank) const { return rank % procs_; }
  uint16_t port() const { return port_; }

  // In the child of that rank: its contract. Closes the other groups' sockets.
  runtime::LaunchContract contract(int rank);
  // In the test: the socket that listens on that group's port, non-blocking.
  int listener(int proc) const { return listeners_[static_cast<size_t>(proc)].get(); }
  // Stops listening in this process; contracts then carry the port alone.
  void releasePorts();

  // What of the job is left on this machine, for people: its abstract sockets in /proc/net/unix, new files in
  // /dev/shm, processes that are children of this one (which adopts orphans). Empty when nothing is.
  std::string leftovers() const;

  // In a child: tells the test of every stage it reaches ("at group/met", for ProcessGroup::awaitLine) and stays
  // where it reaches `stopAt`, until release(); empty: nowhere.
  void reportStages(const std::string& stopAt);
  // In the test: those that stay at a stage go on.
  void release() { released_->store(true); }

 private:
  struct Unmap {
    void operator()(std::atomic<bool>* flag) const;
  };

  const int machines_;
  const int procs_;
  const std::string jobId_;
  uint16_t port_ = 0;
  std::vector<FileDescriptor> listeners_;
  const std::set<std::string> sharedMemoryBefore_;
  const std::unique_ptr<std::atomic<bool>, Unmap> released_;  // shared with the children
};

// Short time-outs for tests.
runtime::SessionOptions quickOptions();

// "machine 1 process 0 (127.0.0.1:4321) | lost machine 1 ...": the peer that a status carries, and its message.
std::string describeFailure(const absl::Status& status);

}  // namespace farhop::test
