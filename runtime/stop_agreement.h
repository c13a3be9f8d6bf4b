// How a job agrees to stop: whoever is asked to (by a signal, a time limit, or the program) adds a one to a sum that all
// processes make anyway, so that all see it after the same step. docs/stopping.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/deadline.h"
#include "base/status.h"
#include "runtime/collectives.h"

namespace farhop::runtime {

// While this lives, SIGUSR1 and SIGTERM are noted instead of ending the process. Signals that the program handles or
// ignores itself stay its own. The program's children have the default actions again.
class StopSignals {
 public:
  // Null when there is one already: only one job at a time can have a process's signals.
  static std::unique_ptr<StopSignals> take();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The last one that came, or 0.
  int raised() const;

 private:
  StopSignals();
  bool taken_[2] = {false, false};
};

// request() is thread-safe; the rest is for one thread, in the same order on all processes.
class StopAgreement {
 public:
  // This process wants to stop at `limit` by itself.
  explicit StopAgreement(Clock::time_point limit = Clock::time_point::max()) : limit_(limit) {}

  // From here on. Once is enough; costs nothing again.
  void takeSignals();
  void request() { requested_ = true; }
  // What this process has to add.
  bool wanted() const;

  // What a sum over all processes brought along.
  void learn(int64_t wanting);
  // Whether the job has agreed. What learn() told since the last call is an answer; otherwise a sum is made for it, which
  // is collective.
  absl::StatusOr<bool> agreed(Collectives& collectives, Deadline deadline);

 private:
  const Clock::time_point limit_;
  std::unique_ptr<StopSignals> signals_;
  std::atomic<bool> requested_ = false;
  bool agreed_ = false;   // for good
  bool learned_ = false;  // since the last agreed()
};

}  // namespace farhop::runtime
