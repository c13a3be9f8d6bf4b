// A process of a job, from start to end: bind, local channel, start gate, worker group, all groups ready, then
// whatever the trainer does, then a farewell.
//
// What one process loses, all processes learn, by name, within a moment: the RPC agent sees it on the wire and
// tells the machine's other processes through the local channel, these know it in their groups then. A process
// that must end because of it keeps its own connections open for a short grace period, so that the others
// hear of the culprit before they see the consequences.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/metrics.h"
#include "base/status.h"
#include "rpc/agent.h"
#include "runtime/collectives.h"
#include "runtime/failure_monitor.h"
#include "runtime/launch_contract.h"
#include "runtime/launcher_watch.h"
#include "runtime/local_channel.h"
#include "runtime/status_board.h"
#include "runtime/step_watch.h"
#include "runtime/worker_group.h"

namespace farhop::runtime {

struct SessionOptions {
  // Until all groups are ready; 0: two minutes, and a minute and the sleep step more for each process of a
  // machine, since these start one after the other.
  std::chrono::milliseconds startTimeout{0};
  std::chrono::milliseconds leaveTimeout{30'000};
  std::chrono::milliseconds peerTimeout{10'000};  // silence after which a peer is lost
  uint64_t memoryEstimateBytes = 0;               // what the start gate waits for, where that is more than the contract's
  bool bind = true;                               // as the contract says; false: whatever it says, nowhere
  std::string fabric = "none";                    // FARHOP_FABRIC: the group's bulk transport; see wantsBulk()
};

// Seconds since start() was called, at which a stage was over; -1 while it is not.
struct StageTimes {
  Clock::time_point begin;       // of start(); the processes of a machine share the clock
  double fabricSeconds = -1;     // libfabric is loaded, where it is wanted
  double boundSeconds = -1;
  double channelSeconds = -1;    // the machine's local channel is open
  double gateSeconds = -1;       // this process passed the start gate
  double readySeconds = -1;      // its group is connected
  double allReadySeconds = -1;   // every process of the job is
  double leavingSeconds = -1;    // leave() was called
  double leftSeconds = -1;
  uint64_t readyPeakBytes = 0;   // peak resident memory when all were ready
  uint64_t peakBytes = 0;        // and at the end
};

// Thread-safe, except that leave() and abandon() are for one thread.
class Session {
 public:
  // Returns when all processes of the job are ready. InvalidArgument for a contract that cannot work
  // (checkContract), at once and without a trace. Other errors name what is missing: the lost process, the port in
  // use, the process that is not ready. After an error nothing of the session is left.
  static absl::StatusOr<std::unique_ptr<Session>> start(const LaunchContract& contract, const SessionOptions& options);
  // Leaves with options.leaveTimeout unless leave() was called; while an exception unwinds the stack, abandons.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const LaunchContract& contract() const { return contract_; }
  // Null with one machine.
  rpc::Agent* agent() const { return group_->agent(); }
  // Null with one machine, and where the group does without (SessionOptions::fabric).
  const GroupBulk* bulk() const { return group_->bulk(); }
  Collectives& collectives() { return *collectives_; }
  FailureMonitor& failure() { return monitor_; }
  Metrics& metrics() { return metrics_; }
  int computeThreads() const { return computeThreads_; }
  int samplerThreads() const { return samplerThreads_; }
  // Where threads are to be started that sample or communicate (ScopedThreadBinding); empty: anywhere.
  const std::vector<int>& serviceProcessors() const { return serviceProcessors_; }
  StageTimes times() const;
  // What `farhop ps` shows of this process; loaders note their progress there.
  StatusBoard& board() { return board_; }

  // The counted farewell: waits until every process of the job leaves, then until every request is answered.
  // OK, the recorded failure, or DeadlineExceeded; the session is closed in any case. Once.
  absl::Status leave(Deadline deadline);

  // Ends at once because of this process's own failure, which the others get to know as the reason.
  void abandon(const absl::Status& reason);

 private:
  Session(const LaunchContract& contract, const SessionOptions& options);

  absl::Status run(Deadline deadline);
  absl::Status keepMasterSocket();
  void bind();
  void openStatus();
  void onFailure(const absl::Status& failure);
  void closeAfterFailure();
  absl::Status farewell(Deadline deadline);
  void close(const absl::Status& reason);
  double sinceStart() const;
  void mark(double StageTimes::*stage);
  void logSummary() const;

  const LaunchContract contract_;
  const SessionOptions options_;
  const Clock::time_point begin_ = Clock::now();
  const int uncaught_;

  Metrics metrics_;
  FailureMonitor monitor_;
  StatusBoard board_;
  std::shared_ptr<LauncherWatch> launcher_;    // null without a launcher; the board's callback has it, too
  std::unique_ptr<StepWatch> step_;            // null outside of Slurm's steps
  std::unique_ptr<StatusServer> statusServer_;
  std::unique_ptr<LocalChannel> channel_;      // set once, under mutex_
  std::unique_ptr<Collectives> collectives_;
  std::unique_ptr<WorkerGroup> group_;         // set once, under mutex_
  int computeThreads_ = 1;
  int samplerThreads_ = 1;
  std::vector<int> serviceProcessors_;
  int listenerId_ = -1;
  bool closed_ = false;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  StageTimes times_;        // guarded by mutex_
  bool failed_ = false;     // guarded by mutex_: the closer has work
  bool stopping_ = false;   // guarded by mutex_
  std::thread closer_;      // closes the group's connections when the grace period after a failure is over
};

}  // namespace farhop::runtime
