// The first failure of a process's job: which peer was lost, and how it is told to everyone who waits.
//
// Whatever notices a loss (the RPC agent, the rendezvous store, the machine's local channel, a collective)
// records it here; whatever waits for a peer listens here. Only the first failure counts: later ones are its
// consequences.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/deadline.h"
#include "base/status.h"

namespace farhop::runtime {

// Thread-safe.
class FailureMonitor {
 public:
  using Listener = std::function<void(const absl::Status&)>;

  FailureMonitor() = default;
  FailureMonitor(const FailureMonitor&) = delete;
  FailureMonitor& operator=(const FailureMonitor&) = delete;

  // Keeps `failure` if it is the first, logs one ERROR line and runs the listeners on this thread, outside the
  // lock. Returns whether it was the first. An OK status is ignored.
  bool record(const absl::Status& failure);

  // Later failures are consequences of this process's own, orderly end: they are no longer recorded.
  void ignoreFurther();

  // OK while nothing is recorded.
  absl::Status status() const;
  bool failed() const;
  // When the failure was recorded; Clock::time_point::max() while there is none.
  Clock::time_point failedAt() const;

  // Waits until a failure is recorded; false at the deadline.
  bool waitFor(Deadline deadline) const;

  // `listener` runs once, when the first failure is recorded, on the recording thread: it must not block.
  // When there is a failure already it runs at once, on this thread.
  int addListener(Listener listener);
  // After this the listener does not run any more; waits for a run under way on another thread.
  void removeListener(int id);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  absl::Status failure_;                                           // guarded by mutex_
  bool ignoring_ = false;                                          // guarded by mutex_
  Clock::time_point failedAt_ = Clock::time_point::max();          // guarded by mutex_
  std::map<int, Listener> listeners_;                              // guarded by mutex_
  int nextListener_ = 0;                                           // guarded by mutex_
  int running_ = -1;                                               // guarded by mutex_: the listener being run
  std::thread::id runner_;                                         // guarded by mutex_
};

}  // namespace farhop::runtime
