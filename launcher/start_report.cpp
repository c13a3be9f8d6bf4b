#include "launcher/start_report.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace farhop::launcher {

std::optional<std::string> StartReport::take(const runtime::StageReached& stage) {
  if (stage.machine < 0 || stage.machine >= machines_ || stage.proc < 0 || stage.proc >= procs_) return std::nullopt;
  auto& group = groups_[stage.proc];
  Process& process = group[stage.machine];
  if (process.readySeconds >= 0) return std::nullopt;
  if (stage.state == runtime::ProcessState::kConnecting) process.gateSeconds = stage.seconds;
  if (stage.state != runtime::ProcessState::kReady) return std::nullopt;
  process.readySeconds = std::max(stage.seconds, process.gateSeconds);
  process.peakBytes = stage.peakBytes;
  double gate = 0, ready = 0;
  uint64_t peak = 0;
  for (const auto& [machine, member] : group) {
    if (member.readySeconds < 0) return std::nullopt;
    gate = std::max(gate, member.gateSeconds);
    ready = std::max(ready, member.readySeconds);
    peak = std::max(peak, member.peakBytes);
  }
  if (static_cast<int>(group.size()) < machines_) return std::nullopt;
  return absl::StrFormat("group %d ready after %.1f s: waiting %.1f s, connecting %.1f s, peak memory %.1f MB of a process",
                         stage.proc, ready, gate, std::max(0.0, ready - gate), static_cast<double>(peak) / 1e6);
}

}  // namespace farhop::launcher
