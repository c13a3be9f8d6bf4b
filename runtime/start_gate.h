// The staged start: the processes of a machine build their connections and load their data one after the
// other, so that their peaks of memory do not add up.
#pragma once

#include <cstdint>
#include <functional>

#include "base/deadline.h"
#include "base/status.h"
#include "runtime/failure_monitor.h"
#include "runtime/launch_contract.h"
#include "runtime/local_channel.h"

namespace farhop::runtime {

struct StartGateOptions {
  uint64_t memoryEstimateBytes = 0;            // what this process will need; 0: not known, not waited for
  std::function<uint64_t()> availableBytes;    // availableMemoryBytes() where empty; 0: unknown
};

// Blocks until process contract.proc may start. Mode `gate`: process p - width is ready (an error naming it when
// it has died) and the memory estimate of the up to `width` processes that start at once fits what is available. Mode `sleep:S`: S·p seconds have passed, whatever
// the others do. A recorded failure ends the wait with that failure; DeadlineExceeded says what was waited
// for: the process, or how many bytes were needed and available.
absl::Status passStartGate(const LaunchContract& contract, const LocalChannel& channel, const FailureMonitor& monitor,
                           const StartGateOptions& options, Deadline deadline);

}  // namespace farhop::runtime
