// Which cores a process gets: the physical cores that the machine allows us (cgroup, Slurm, taskset), dealt to
// the machine's processes. Cores come from hwloc, in its order (by NUMA node, then by core), so the
// operating system's numbering of logical cores plays no part. No libtorch here: the launcher draws plans.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/binding_choice.h"

struct hwloc_topology;

namespace farhop::runtime {

// A physical core, with the logical processors of it that this process may use.
struct Core {
  int package = 0;  // socket
  int node = 0;     // NUMA node
  std::vector<int> processors;  // operating system's numbers, ascending
};

// An owned hwloc topology.
class Topology {
 public:
  // This machine, with the set of processors that the calling process is allowed and bound to.
  static absl::StatusOr<Topology> ofThisMachine();
  // hwloc's synthetic description, "numa:2 core:4 pu:2"; `allowed` (logical processors, as the operating
  // system numbers them; empty: all) restricts it. For tests.
  static absl::StatusOr<Topology> synthetic(const std::string& description, const std::vector<int>& allowed = {});
  // One that was recorded on some machine, by xml() or by hwloc's lstopo, with the set that was allowed there.
  static absl::StatusOr<Topology> fromXml(const std::string& xml, const std::vector<int>& allowed = {});

  absl::StatusOr<std::string> xml() const;
  // The allowed physical cores by NUMA node, then in hwloc's order. A machine whose hwloc knows no cores (some
  // virtual machines) counts each processor as one.
  std::vector<Core> cores() const;

 private:
  absl::Status restrict(const std::vector<int>& allowed);

  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  std::unique_ptr<hwloc_topology, Destroy> handle_;
};

struct BindingPlan {
  std::vector<int> processors;  // logical processors (operating system's numbers), ascending
  int cores = 0;                // physical cores of its share; those of `processors` may be more with kNuma
  int allowedCores = 0;         // of the whole machine
  bool shared = false;          // more processes than cores: other processes have the same core
  int computeThreads = 1;       // for libtorch: one per physical core
  int samplerThreads = 1;       // for sampling: one per core that is not kept for computing alone
  // Where the trainer's own threads run, and those that sample and communicate: both are `processors` unless the
  // choice splits them, and then have no processor in common; one processor alone cannot be split.
  std::vector<int> computeProcessors, serviceProcessors;
  bool split = false;

  // "4 cores: 0-3,8-11".
  std::string text() const;
};

// "0-3,8-11".
std::string processorRanges(const std::vector<int>& ascending);

// The cores of process `proc` of `procs` on the machine. Whole physical cores with all their allowed
// siblings; NUMA node by NUMA node: shares are contiguous in hwloc's order and differ by at most one core. With
// kNuma all cores of the nodes that the share lies in; of a share that crosses nodes only the node of its middle as
// long as there are nodes for fewer than all processes. With kNone the same numbers of threads, and nothing that
// would have to be applied.
// InvalidArgument when proc is out of range, FailedPrecondition when no core is allowed. Pure.
absl::StatusOr<BindingPlan> planBinding(const Topology& topology, int procs, int proc, const BindingChoice& choice = {});

// Binds the calling process: all its present threads and those to come.
absl::Status applyBinding(const std::vector<int>& processors);
// Only the calling thread, and those that it starts from now on.
absl::Status bindThread(const std::vector<int>& processors);

// Threads that the calling thread starts while one of these exists run on `processors`, which may be empty: then
// nothing happens. Afterwards the thread runs where it did before.
class ScopedThreadBinding {
 public:
  explicit ScopedThreadBinding(const std::vector<int>& processors);
  ~ScopedThreadBinding();
  ScopedThreadBinding(const ScopedThreadBinding&) = delete;
  ScopedThreadBinding& operator=(const ScopedThreadBinding&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace farhop::runtime
