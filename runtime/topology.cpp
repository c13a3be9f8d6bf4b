#include "runtime/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <set>

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

absl::Status restrictTo(hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  if (hwloc_topology_restrict(topology, allowed, 0) != 0) {
    return absl::FailedPreconditionError("none of this machine's processors is allowed to this process");
  }
  return absl::OkStatus();
}

struct Range {
  int begin, end;
};

// The cores of a process's share; with more processes than cores neighbours in process order have the same one, so
// that a core serves as few worker groups as possible.
Range shareOf(int cores, int procs, int proc) {
  if (procs > cores) {
    const int core = static_cast<int>(static_cast<int64_t>(proc) * cores / procs);
    return {core, core + 1};
  }
  const int share = cores / procs, extra = cores % procs;
  const int begin = proc * share + std::min(proc, extra);
  return {begin, begin + share + (proc < extra ? 1 : 0)};
}

// The cores that a process is bound to.
std::vector<Core> boundCores(const std::vector<Core>& cores, Range share, int procs, BindTo to) {
  if (to != BindTo::kNuma) return {cores.begin() + share.begin, cores.begin() + share.end};
  std::set<int> all, touched;
  for (const Core& core : cores) all.insert(core.node);
  for (int i = share.begin; i < share.end; ++i) touched.insert(cores[static_cast<size_t>(i)].node);
  if (procs >= static_cast<int>(all.size())) touched = {cores[static_cast<size_t>((share.begin + share.end) / 2)].node};
  std::vector<Core> result;
  std::copy_if(cores.begin(), cores.end(), std::back_inserter(result),
               [&](const Core& core) { return touched.count(core.node) > 0; });
  return result;
}

std::vector<int> processorsOf(const std::vector<Core>& cores, size_t begin, size_t end) {
  std::vector<int> list;
  for (size_t i = begin; i < end; ++i) list.insert(list.end(), cores[i].processors.begin(), cores[i].processors.end());
  std::sort(list.begin(), list.end());
  return list;
}

// A third of the cores for sampling and communication, which wait for memory and peers more than they compute; of a
// single core all siblings but the first.
void split(const std::vector<Core>& cores, BindingPlan* plan) {
  if (cores.size() > 1) {
    const size_t service = std::max<size_t>(1, cores.size() / 3), compute = cores.size() - service;
    plan->computeProcessors = processorsOf(cores, 0, compute);
    plan->serviceProcessors = processorsOf(cores, compute, cores.size());
    // With kNuma these are the node's cores, and the threads those of the share.
    const int own = std::max(1, plan->cores / 3);
    plan->computeThreads = std::max(1, plan->cores - own);
    plan->samplerThreads = own * static_cast<int>(cores.back().processors.size());
  } else if (plan->processors.size() > 1) {
    plan->computeProcessors = {plan->processors.front()};
    plan->serviceProcessors = {plan->processors.begin() + 1, plan->processors.end()};
    plan->computeThreads = 1;
    plan->samplerThreads = static_cast<int>(plan->serviceProcessors.size());
  } else {
    return;
  }
  plan->split = true;
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
  FARHOP_RETURN_IF_ERROR(topology.restrict(allowed));
  return topology;
}

absl::StatusOr<Topology> Topology::fromXml(const std::string& xml, const std::vector<int>& allowed) {
  hwloc_topology_t handle = nullptr;
  if (hwloc_topology_init(&handle) != 0) return errnoStatus("hwloc: making a topology", errno);
  Topology topology;
  topology.handle_.reset(handle);
  // The length counts the terminating zero.
  if (hwloc_topology_set_xmlbuffer(handle, xml.c_str(), static_cast<int>(xml.size()) + 1) != 0 ||
      hwloc_topology_load(handle) != 0) {
    return absl::InvalidArgumentError("this is no topology in hwloc's XML, as `lstopo FILE.xml` writes it");
  }
  FARHOP_RETURN_IF_ERROR(topology.restrict(allowed));
  return topology;
}

absl::Status Topology::restrict(const std::vector<int>& allowed) {
  if (allowed.empty()) return absl::OkStatus();
  Bitmap set = makeBitmap();
  for (int processor : allowed) hwloc_bitmap_set(set.get(), static_cast<unsigned>(processor));
  return restrictTo(handle_.get(), set.get());
}

absl::StatusOr<std::string> Topology::xml() const {
  char* buffer = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(handle_.get(), &buffer, &length, 0) != 0) {
    return errnoStatus("hwloc: writing a topology", errno);
  }
  std::string text(buffer);
  hwloc_free_xmlbuffer(handle_.get(), buffer);
  return text;
}

std::vector<Core> Topology::cores() const {
  hwloc_topology_t topology = handle_.get();
  const hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Core> cores;
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  for (int i = 0; i < count; ++i) {
    hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i));
    Bitmap usable = makeBitmap();
    hwloc_bitmap_and(usable.get(), object->cpuset, hwloc_topology_get_allowed_cpuset(topology));
    if (hwloc_bitmap_iszero(usable.get())) continue;
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
    cores.push_back({package == nullptr ? 0 : static_cast<int>(package->os_index),
                     std::max(0, hwloc_bitmap_first(object->nodeset)), members(usable.get())});
  }
  std::stable_sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) { return a.node < b.node; });
  return cores;
}

std::string processorRanges(const std::vector<int>& ascending) {
  std::string list;
  for (size_t i = 0; i < ascending.size();) {
    size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    absl::StrAppend(&list, list.empty() ? "" : ",", ascending[i]);
    if (end > i + 1) absl::StrAppend(&list, "-", ascending[end - 1]);
    i = end;
  }
  return list;
}

std::string BindingPlan::text() const {
  return absl::StrCat(cores, cores == 1 ? " core" : " cores", shared ? " (shared): " : ": ", processorRanges(processors));
}

absl::StatusOr<BindingPlan> planBinding(const Topology& topology, int procs, int proc, const BindingChoice& choice) {
  if (procs < 1 || proc < 0 || proc >= procs) {
    return absl::InvalidArgumentError(absl::StrCat("process ", proc, " of ", procs, " has no share of the cores"));
  }
  const std::vector<Core> cores = topology.cores();
  if (cores.empty()) return absl::FailedPreconditionError("no processor of this machine is allowed to this process");

  BindingPlan plan;
  plan.allowedCores = static_cast<int>(cores.size());
  plan.shared = procs > plan.allowedCores;
  const Range share = shareOf(plan.allowedCores, procs, proc);
  plan.cores = share.end - share.begin;
  const std::vector<Core> bound = boundCores(cores, share, procs, choice.to);
  plan.processors = processorsOf(bound, 0, bound.size());
  plan.computeProcessors = plan.serviceProcessors = plan.processors;
  plan.computeThreads = plan.cores;
  // Sampling waits for memory, not for arithmetic: a sibling per core, where there is one, hides that;
  // without siblings a sampler for every two cores keeps up with the training step of the other.
  const std::vector<int> own = processorsOf(cores, static_cast<size_t>(share.begin), static_cast<size_t>(share.end));
  const int siblings = static_cast<int>(own.size()) - plan.cores;
  plan.samplerThreads = std::max({1, siblings, plan.cores / 2});
  if (choice.splitThreads && choice.to != BindTo::kNone) split(bound, &plan);
  return plan;
}

}  // namespace farhop::runtime
