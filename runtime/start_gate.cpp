#include "runtime/start_gate.h"

#include <algorithm>

#include "base/memory_info.h"

namespace farhop::runtime {
namespace {

// How often free memory is looked at; nothing announces it.
constexpr std::chrono::milliseconds kMemoryPollInterval{100};

absl::Status waitForMemory(const FailureMonitor& monitor, const StartGateOptions& options, Deadline deadline) {
  if (options.memoryEstimateBytes == 0) return absl::OkStatus();
  for (;;) {
    const uint64_t available = options.availableBytes ? options.availableBytes() : availableMemoryBytes();
    if (available == 0 || available >= options.memoryEstimateBytes) return absl::OkStatus();
    if (deadline.expired()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "waited in vain for memory: what starts now needs about ", options.memoryEstimateBytes, " bytes, ", available,
          " are available; end other programs, start fewer processes per machine or use more machines"));
    }
    if (monitor.waitFor(Deadline::earliest(deadline, Deadline::after(kMemoryPollInterval)))) return monitor.status();
  }
}

}  // namespace

absl::Status passStartGate(const LaunchContract& contract, const LocalChannel& channel, const FailureMonitor& monitor,
                           const StartGateOptions& options, Deadline deadline) {
  if (!contract.start.gate) {
    const Deadline wake = Deadline::after(contract.start.sleepStep * contract.proc);
    if (monitor.waitFor(Deadline::earliest(wake, deadline))) return monitor.status();
    if (wake.expired()) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("the start's deadline is shorter than this process's sleep of ",
                                                    (contract.start.sleepStep * contract.proc).count(), " ms"));
  }
  // Each waits for one: of the processes with the same remainder at most one starts at a time.
  const int before = contract.proc - contract.start.width;
  if (before >= 0) FARHOP_RETURN_IF_ERROR(channel.waitReady(before, deadline));
  StartGateOptions all = options;
  // Those that start at the same time have taken nothing yet.
  const uint64_t starting = static_cast<uint64_t>(std::clamp(contract.start.width, 1, contract.proc + 1));
  all.memoryEstimateBytes = std::min(options.memoryEstimateBytes, UINT64_MAX / starting) * starting;
  return waitForMemory(monitor, all, deadline);
}

}  // namespace farhop::runtime
