// One worker group: process p of every machine, met through machine 0's store on master_port + p, connected by
// an RPC agent and a Gloo mesh. A process has M-1 RPC peers, all in its group.
//
// The store lives only while the group meets: after the group's barrier nobody needs it, and a port that is
// closed cannot be disturbed. With one machine there is no store and no agent.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/executor.h"
#include "base/status.h"
#include "rpc/agent.h"
#include "rpc/rendezvous.h"
#include "runtime/collectives.h"
#include "runtime/failure_monitor.h"
#include "runtime/group_bulk.h"
#include "runtime/launch_contract.h"
#include "runtime/local_channel.h"
#include "runtime/store_meeting.h"
#include "runtime/store_watch.h"

namespace farhop::runtime {

// The RPC method by which a process that must end tells its group why. Taken from the top of the range; what
// is below kFirstReservedMethod belongs to whoever uses the agent.
inline constexpr uint16_t kFirstReservedMethod = 0xFF00;
inline constexpr uint16_t kFailureMethod = 0xFF01;

struct WorkerGroupOptions {
  std::chrono::milliseconds peerTimeout{10'000};
  int servingThreads = 1;
  // FARHOP_FABRIC: which bulk transport the group opens; see wantsBulk().
  std::string fabric = "none";
};

// Thread-safe.
class WorkerGroup {
 public:
  // `monitor`, `channel` and `collectives` outlive the group.
  WorkerGroup(const LaunchContract& contract, const WorkerGroupOptions& options, FailureMonitor* monitor,
              LocalChannel* channel, Collectives* collectives);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Finds the group's store (machine 0: opens it), and watches it from then on, so that the group hears of every
  // process that dies. Cheap: for all processes of a machine at once, before the start gate. Once. A recorded
  // failure ends it with that failure. AlreadyExists when the master's port is in use, NotFound when the master
  // does not resolve, PermissionDenied for a wrong job or token.
  absl::Status meet(Deadline deadline);
  // Then connects; returns when the whole group has. Once.
  absl::Status join(Deadline deadline);

  // Null with one machine, and before join() has got that far.
  rpc::Agent* agent() const;
  // Null where the group does without, and before join() has returned.
  const GroupBulk* bulk() const { return bulk_.get(); }

  // Tells the group's other processes of a failure (at most once, without waiting for anybody).
  void tellPeers(const absl::Status& failure);

  // The agent's counted farewell.
  absl::Status farewell(Deadline deadline);

  // Ends whatever waits for the store while the group meets; for a failure with a store that does not answer.
  void leaveStore();

  // Closes everything; the peers see this process as lost unless it has said farewell. Idempotent. Not from
  // one of the agent's threads.
  void close(const absl::Status& reason);

 private:
  absl::Status serveStore();
  absl::StatusOr<FileDescriptor> listenAsMaster();
  absl::Status makeAgent();
  absl::Status makeBulk(Deadline deadline);
  void stopWatching();
  absl::StatusOr<std::vector<std::string>> exchangeAddresses(Deadline deadline);
  absl::StatusOr<std::string> lookUp(const std::string& key, Deadline deadline) const;
  absl::Status culpritOr(const absl::Status& status) const;

  const LaunchContract contract_;
  const WorkerGroupOptions options_;
  FailureMonitor* const monitor_;
  LocalChannel* const channel_;
  Collectives* const collectives_;
  std::vector<HostPort> masters_;  // where the store may be; at machine 0, once it serves: where it is
  std::vector<PeerName> peers_;    // by machine

  Executor losses_{"farhop/losses", 1};  // records what the agent's threads only post
  std::unique_ptr<rpc::StoreServer> server_;
  std::shared_ptr<rpc::StoreClient> client_;  // set and reset under mutex_
  std::shared_ptr<StoreWatch> watch_;         // set and reset under mutex_
  mutable std::mutex mutex_;
  std::unique_ptr<GroupBulk> bulk_;    // set once, under mutex_, before the agent is connected
  std::unique_ptr<rpc::Agent> agent_;  // set once, under mutex_
  bool toldStore_ = false;             // guarded by mutex_
  bool toldAgent_ = false;             // guarded by mutex_
  bool closed_ = false;                // guarded by mutex_
};

}  // namespace farhop::runtime
