#include "runtime/topology.h"

#include <dirent.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace farhop::runtime {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Bitmap makeBitmap() { return Bitmap(hwloc_bitmap_alloc()); }

std::vector<int> members(hwloc_const_bitmap_t bitmap) {
  std::vector<int> list;
  for (int i = hwloc_bitmap_first(bitmap); i >= 0; i = hwloc_bitmap_next(bitmap, i)) list.push_back(i);
  return list;
}

// The allowed processors of each physical core, in order of (NUMA node, core). A machine whose hwloc knows
// no cores (some virtual machines) counts each processor as one.
std::vector<std::vector<int>> allowedCores(hwloc_topology_t topology) {
  const hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  struct Core {
    int node;
    std::vector<int> processors;
  };
  std::vector<Core> cores;
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  for (int i = 0; i < count; ++i) {
    hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, i);
    Bitmap usable = makeBitmap();
    hwloc_bitmap_and(usable.get(), object->cpuset, hwloc_topology_get_allowed_cpuset(topology));
    if (hwloc_bitmap_iszero(usable.get())) continue;
    cores.push_back({hwloc_bitmap_first(object->nodeset), members(usable.get())});
  }
  std::stable_sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) { return a.node < b.node; });
  std::vector<std::vector<int>> result;
  result.reserve(cores.size());
  for (Core& core : cores) result.push_back(std::move(core.processors));
  return result;
}

absl::Status restrictTo(hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  if (hwloc_topology_restrict(topology, allowed, 0) != 0) {
    return absl::FailedPreconditionError("none of this machine's processors is allowed to this process");
  }
  return absl::OkStatus();
}

}  // namespace

void Topology::Destroy::operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }

absl::StatusOr<Topology> Topology::ofThisMachine() {
  hwloc_topology_t handle = nullptr;
  if (hwloc_topology_init(&handle) != 0) return errnoStatus("hwloc: making a topology", errno);
  Topology topology;
  topology.handle_.reset(handle);
  if (hwloc_topology_load(handle) != 0) return errnoStatus("hwloc: reading this machine's topology", errno);
  // hwloc's allowed set knows cgroups; the process's own binding adds what taskset and Slurm narrow.
  Bitmap bound = makeBitmap();
  if (hwloc_get_cpubind(handle, bound.get(), HWLOC_CPUBIND_PROCESS) == 0 && !hwloc_bitmap_iszero(bound.get())) {
    FARHOP_RETURN_IF_ERROR(restrictTo(handle, bound.get()));
  }
  return topology;
}

absl::StatusOr<Topology> Topology::synthetic(const std::string& description, const std::vector<int>& allowed) {
  hwloc_topology_t handle = nullptr;
  if (hwloc_topology_init(&handle) != 0) return errnoStatus("hwloc: making a topology", errno);
  Topology topology;
  topology.handle_.reset(handle);
  if (hwloc_topology_set_synthetic(handle, description.c_str()) != 0 || hwloc_topology_load(handle) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("hwloc does not understand '", description, "'"));
  }
  if (!allowed.empty()) {
    Bitmap set = makeBitmap();
    for (int processor : allowed) hwloc_bitmap_set(set.get(), processor);
    FARHOP_RETURN_IF_ERROR(restrictTo(handle, set.get()));
  }
  return topology;
}

std::string BindingPlan::text() const {
  std::string list;
  for (size_t i = 0; i < processors.size();) {
    size_t end = i + 1;
    while (end < processors.size() && processors[end] == processors[end - 1] + 1) ++end;
    absl::StrAppend(&list, list.empty() ? "" : ",", processors[i]);
    if (end > i + 1) absl::StrAppend(&list, "-", processors[end - 1]);
    i = end;
  }
  return absl::StrCat(cores, cores == 1 ? " core" : " cores", shared ? " (shared): " : ": ", list);
}

absl::StatusOr<BindingPlan> planBinding(const Topology& topology, int procs, int proc) {
  if (procs < 1 || proc < 0 || proc >= procs) {
    return absl::InvalidArgumentError(absl::StrCat("process ", proc, " of ", procs, " has no share of the cores"));
  }
  const std::vector<std::vector<int>> cores = allowedCores(topology.get());
  if (cores.empty()) return absl::FailedPreconditionError("no processor of this machine is allowed to this process");

  BindingPlan plan;
  plan.allowedCores = static_cast<int>(cores.size());
  plan.shared = procs > plan.allowedCores;
  int begin, end;
  if (plan.shared) {
    // Neighbours in process order share a core, so that a core serves as few worker groups as possible.
    begin = static_cast<int>(static_cast<int64_t>(proc) * plan.allowedCores / procs);
    end = begin + 1;
  } else {
    const int share = plan.allowedCores / procs, extra = plan.allowedCores % procs;
    begin = proc * share + std::min(proc, extra);
    end = begin + share + (proc < extra ? 1 : 0);
  }
  for (int core = begin; core < end; ++core) {
    plan.processors.insert(plan.processors.end(), cores[core].begin(), cores[core].end());
  }
  std::sort(plan.processors.begin(), plan.processors.end());
  plan.cores = end - begin;
  plan.computeThreads = plan.cores;
  // Sampling waits for memory, not for arithmetic: a sibling per core, where there is one, hides that;
  // without siblings a sampler for every two cores keeps up with the training step of the other.
  const int siblings = static_cast<int>(plan.processors.size()) - plan.cores;
  plan.samplerThreads = std::max({1, siblings, plan.cores / 2});
  return plan;
}

absl::Status applyBinding(const BindingPlan& plan) {
  if (plan.processors.empty()) return absl::InvalidArgumentError("a binding needs at least one processor");
  // Not hwloc's process binding: it walks the threads as well, but needs a loaded topology of this machine
  // while a plan is just numbers.
  const int last = plan.processors.back();
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(last + 1), [](cpu_set_t* s) { CPU_FREE(s); });
  const size_t bytes = CPU_ALLOC_SIZE(last + 1);
  CPU_ZERO_S(bytes, set.get());
  for (int processor : plan.processors) CPU_SET_S(processor, bytes, set.get());

  std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (tasks) {
    while (dirent* entry = ::readdir(tasks.get())) {
      const int thread = std::atoi(entry->d_name);
      // A thread may have ended since; a real failure shows on the calling thread below.
      if (thread > 0) (void)::sched_setaffinity(thread, bytes, set.get());
    }
  }
  if (::sched_setaffinity(0, bytes, set.get()) != 0) {
    return errnoStatus(absl::StrCat("binding to ", plan.text()), errno);
  }
  return absl::OkStatus();
}

}  // namespace farhop::runtime
