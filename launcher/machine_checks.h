// What a machine must offer to its processes of a job; the checks that take no time. `farhop doctor` makes them all, and
// an agent the quick part before it starts anything.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farhop::launcher {

enum class CheckState { kGreen, kYellow, kRed };  // fine; works, but; the job would fail

struct CheckResult {
  std::string name;
  CheckState state = CheckState::kGreen;
  std::string what;  // was found
  std::string todo;  // what to do about it; empty when green
};
const char* stateName(CheckState state);  // "ok", "warning", "failed"

// The machine's place in the job.
struct MachineShape {
  int machines = 1, machine = 0, procs = 1;
};

// What the processes of one machine need; all in bytes.
struct MemoryEstimate {
  uint64_t process = 0;      // each for itself: program and libraries, connections, batches
  uint64_t mapped = 0;       // the machine's partitions, once: page cache, which the kernel can take back
  uint64_t batches = 0;      // of `process`
  uint64_t connections = 0;  // of `process`
};
struct MemoryDemand {
  MachineShape shape;
  uint64_t partitionBytes = 0;  // files of the partitions that the machine serves
  uint64_t rowBytes = 0;        // of all features of a node that batches pull; 0: not known
  uint64_t batchNodes = 0;      // nodes of a batch; 0: not known
};
// Measured: a process that has loaded libtorch and started, each peer's connections. Of batches three are there at a time.
MemoryEstimate estimateMemory(const MemoryDemand& demand);

// `limit`: RLIMIT_NOFILE may be raised to it. Exceeding what a process needs is red.
CheckResult checkOpenFiles(const MachineShape& shape, uint64_t limit);
CheckResult checkOpenFiles(const MachineShape& shape);
// Bulk transfers over RDMA register memory; `fabric` is FARHOP_FABRIC.
CheckResult checkLockedMemory(const std::string& fabric);
// Free bytes of a directory's file system.
CheckResult checkSharedMemory(const std::string& path);
// `available` 0: unknown, and green.
CheckResult checkMemory(const MachineShape& shape, const MemoryEstimate& estimate, uint64_t available);

// Those that no agent should be without: open files (the trainers' limit, where it is not this process's), /dev/shm, memory
// that is the processes' own. Only what is not green.
std::vector<CheckResult> quickChecks(const MachineShape& shape, const std::optional<rlimit>& openFiles);

std::string megabytes(uint64_t bytes);  // "212.0 MB"

}  // namespace farhop::launcher
