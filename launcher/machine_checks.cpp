#include "launcher/machine_checks.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "base/memory_info.h"

namespace farhop::launcher {
namespace {

// Measured: 38 of a process of 2 x 8. The rest is room for the peers, the store and the trainer itself.
constexpr uint64_t kOwnFiles = 128, kFilesPerPeer = 8;
constexpr uint64_t kComfortableFiles = 4'096;
constexpr uint64_t kFewSharedBytes = uint64_t{64} << 20;
constexpr uint64_t kLockedBytes = uint64_t{1} << 30;

// Of a process with libtorch that has started and computed something; of each peer, with its buffers.
constexpr uint64_t kProcessBytes = uint64_t{140} << 20;
constexpr uint64_t kPeerBytes = uint64_t{2} << 20;
constexpr uint64_t kBatchesAtOnce = 3;
// Ids and edges of a batch, per node of it.
constexpr uint64_t kBytesPerBatchNode = 200;

std::string limitText(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit); }

uint64_t filesNeeded(const MachineShape& shape) {
  return kOwnFiles + kFilesPerPeer * static_cast<uint64_t>(shape.machines - 1) + static_cast<uint64_t>(shape.procs);
}

}  // namespace

const char* stateName(CheckState state) {
  switch (state) {
    case CheckState::kGreen: return "ok";
    case CheckState::kYellow: return "warning";
    case CheckState::kRed: break;
  }
  return "failed";
}

std::string megabytes(uint64_t bytes) {
  if (bytes >= 10'000'000'000) return absl::StrFormat("%.1f GB", static_cast<double>(bytes) / 1e9);
  return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
}

MemoryEstimate estimateMemory(const MemoryDemand& demand) {
  MemoryEstimate estimate;
  estimate.connections = kPeerBytes * static_cast<uint64_t>(demand.shape.machines - 1);
  estimate.batches = kBatchesAtOnce * demand.batchNodes * (demand.rowBytes + kBytesPerBatchNode);
  estimate.process = kProcessBytes + estimate.connections + estimate.batches;
  estimate.mapped = demand.partitionBytes;
  return estimate;
}

CheckResult checkOpenFiles(const MachineShape& shape, uint64_t limit) {
  const uint64_t needed = filesNeeded(shape);
  CheckResult result{"open files", CheckState::kGreen,
                     absl::StrCat(limit, " per process (ulimit -n); one of this job needs about ", needed), ""};
  if (limit < needed) {
    result.state = CheckState::kRed;
    result.todo = absl::StrCat("raise it: ulimit -n ", std::max(needed, kComfortableFiles),
                               ", for good in /etc/security/limits.conf or the service's LimitNOFILE");
  } else if (limit < 2 * needed) {
    result.state = CheckState::kYellow;
    result.todo = "leave room for the trainer's own files: raise ulimit -n";
  }
  return result;
}

CheckResult checkOpenFiles(const MachineShape& shape) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return {"open files", CheckState::kYellow, absl::StrCat("the limit is not known: ", std::strerror(errno)), "see ulimit -n"};
  }
  return checkOpenFiles(shape, limit.rlim_cur);
}

CheckResult checkLockedMemory(const std::string& fabric) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) limit.rlim_cur = 0;
  CheckResult result{"locked memory", CheckState::kGreen, absl::StrCat(limitText(limit.rlim_cur), " bytes (ulimit -l)"), ""};
  const bool rdma = fabric.find("verbs") != std::string::npos || fabric.find("efa") != std::string::npos ||
                    fabric.find("psm") != std::string::npos;
  if (!rdma) {
    result.what += "; no RDMA provider is asked for (FARHOP_FABRIC)";
  } else if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < kLockedBytes) {
    result.state = CheckState::kRed;
    result.todo = "RDMA registers memory: set memlock to unlimited in /etc/security/limits.conf";
  }
  return result;
}

CheckResult checkSharedMemory(const std::string& path) {
  CheckResult result{"/dev/shm", CheckState::kGreen, "", ""};
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0 || ::access(path.c_str(), W_OK) != 0) {
    result.state = CheckState::kYellow;
    result.what = absl::StrCat(path, ": ", std::strerror(errno));
    result.todo = "libfabric's shm and torch's own shared memory need it; mount a tmpfs there";
    return result;
  }
  const uint64_t free = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  result.what = absl::StrCat(megabytes(free), " free of ", megabytes(static_cast<uint64_t>(info.f_blocks) * info.f_frsize));
  if (free < kFewSharedBytes) {
    result.state = CheckState::kYellow;
    result.todo = "Farhop itself keeps nothing there; for torch's data loaders make room (containers: --shm-size), or see "
                  "farhop clean --all --dry-run";
  }
  return result;
}

CheckResult checkMemory(const MachineShape& shape, const MemoryEstimate& estimate, uint64_t available) {
  const uint64_t own = estimate.process * static_cast<uint64_t>(shape.procs);
  CheckResult result{"memory", CheckState::kGreen,
                     absl::StrCat(megabytes(available), " available; ", shape.procs, " x ", megabytes(estimate.process),
                                  " of the processes' own (of each: connections ", megabytes(estimate.connections), ", batches ",
                                  megabytes(estimate.batches), "), partitions ", megabytes(estimate.mapped), " mapped once"),
                     ""};
  if (available == 0) {
    result.what = absl::StrCat("not known how much is available; needed: ", megabytes(own + estimate.mapped));
  } else if (own > available) {
    result.state = CheckState::kRed;
    result.todo = "start fewer processes per machine, use more machines, or end other programs";
  } else if (own + estimate.mapped > available) {
    result.state = CheckState::kYellow;
    result.todo = "the partitions do not stay in memory as a whole, so that sampling waits for the disk; use more machines";
  }
  return result;
}

std::vector<CheckResult> quickChecks(const MachineShape& shape, const std::optional<rlimit>& openFiles) {
  std::vector<CheckResult> results = {openFiles ? checkOpenFiles(shape, openFiles->rlim_cur) : checkOpenFiles(shape), checkSharedMemory("/dev/shm"),
                                      checkMemory(shape, estimateMemory({shape, 0, 0, 0}), availableMemoryBytes())};
  std::erase_if(results, [](const CheckResult& result) { return result.state == CheckState::kGreen; });
  // The trainer need not be one with libtorch: the start gate decides about memory, when it comes to it.
  for (CheckResult& result : results) {
    if (result.name == "memory") result.state = CheckState::kYellow;
  }
  return results;
}

}  // namespace farhop::launcher
