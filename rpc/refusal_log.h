// Says in the log whom this process has refused and why, at once: the one who waits for a process that has, say,
// a wrong token should not have to wait for its deadline to learn that it came.
//
// Strangers cause these lines, so their rate is bounded (a few at once, then one a second, which says how many
// were left out), and what strangers sent is made printable and cut.
#pragma once

#include <mutex>
#include <string>

#include "base/deadline.h"
#include "base/status.h"

namespace farhop::rpc {

// Thread-safe.
class RefusalLog {
 public:
  static constexpr int kBurst = 10;
  static constexpr std::chrono::milliseconds kInterval{1'000};

  // `where` is what refused: "the rendezvous store of group 0".
  explicit RefusalLog(std::string where) : where_(std::move(where)) {}

  // One WARNING: "the rendezvous store of group 0 refused 10.0.0.2:4321, which says it is machine 1 process 0: ...".
  // `who.address` is where it called from; machine and proc are what it claims to be, -1 for nothing.
  void note(const PeerName& who, const absl::Status& reason);

 private:
  const std::string where_;
  std::mutex mutex_;
  int room_ = kBurst;              // guarded by mutex_: lines that may be written now
  Clock::time_point refilled_{};   // guarded by mutex_
  int leftOut_ = 0;                // guarded by mutex_
};

}  // namespace farhop::rpc
