// Which cores a process gets: the physical cores that the machine allows us (cgroup, Slurm, taskset), dealt to
// the machine's processes. Cores come from hwloc, in its order (by NUMA node, then by core), so the
// operating system's numbering of logical cores plays no part.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

struct hwloc_topology;

namespace farhop::runtime {

// An owned hwloc topology.
class Topology {
 public:
  // This machine, with the set of processors that the calling process is allowed and bound to.
  static absl::StatusOr<Topology> ofThisMachine();
  // hwloc's synthetic description, "numa:2 core:4 pu:2"; `allowed` (logical processors, as the operating
  // system numbers them; empty: all) restricts it. For tests.
  static absl::StatusOr<Topology> synthetic(const std::string& description, const std::vector<int>& allowed = {});

  hwloc_topology* get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  std::unique_ptr<hwloc_topology, Destroy> handle_;
};

struct BindingPlan {
  std::vector<int> processors;  // logical processors (operating system's numbers), ascending
  int cores = 0;                // physical cores that they belong to
  int allowedCores = 0;         // of the whole machine
  bool shared = false;          // more processes than cores: other processes have the same core
  int computeThreads = 1;       // for libtorch: one per physical core
  int samplerThreads = 1;       // for sampling: one per core that is not kept for computing alone

  // "4 cores: 0-3,8-11".
  std::string text() const;
};

// The cores of process `proc` of `procs` on the machine. Whole physical cores with all their allowed
// siblings; NUMA node by NUMA node: shares are contiguous in hwloc's order and differ by at most one core.
// InvalidArgument when proc is out of range, FailedPrecondition when no core is allowed. Pure.
absl::StatusOr<BindingPlan> planBinding(const Topology& topology, int procs, int proc);

// Binds the calling process: all its present threads and those to come.
absl::Status applyBinding(const BindingPlan& plan);

}  // namespace farhop::runtime
