#include "launcher/slurm_backend.h"

#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "launcher/ssh_backend.h"

namespace farhop::launcher {
namespace {

// From here on Slurm numbers its own steps: batch script, extern, interactive shell of salloc.
constexpr uint64_t kFirstSpecialStep = 0xFFFFFFF0;

std::string valueOf(const runtime::EnvironmentReader& environment, std::initializer_list<const char*> names,
                    const char** found) {
  for (const char* name : names) {
    const std::optional<std::string> value = environment(name);
    if (!value || value->empty()) continue;
    *found = name;
    return *value;
  }
  return "";
}

bool isInStep(const runtime::EnvironmentReader& environment) {
  const std::optional<std::string> text = environment("SLURM_STEP_ID");
  uint64_t step = 0;
  return text && absl::SimpleAtoi(*text, &step) && step < kFirstSpecialStep;
}

absl::Status readCpus(const runtime::EnvironmentReader& environment, SlurmAllocation& allocation) {
  const char* name = nullptr;
  const std::string text = valueOf(environment, {"SLURM_JOB_CPUS_PER_NODE"}, &name);
  if (text.empty()) return absl::InvalidArgumentError("SLURM_JOB_CPUS_PER_NODE is not set, though SLURM_JOB_ID is");
  absl::StatusOr<std::vector<int>> cpus = runtime::expandTasksPerNode(text);
  if (!cpus.ok()) return annotate(cpus.status(), name);
  if (cpus->size() != allocation.nodes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is '", text, "', which is ", cpus->size(), " nodes, but there are ",
                                                   allocation.nodes.size()));
  }
  allocation.cpus = *std::move(cpus);
  return absl::OkStatus();
}

std::vector<std::string> srunCommand(const RunOptions& options, size_t machine) {
  // What is said here replaces what sbatch leaves in the environment for srun.
  return {options.slurm->srun,
          "--export=ALL",
          "--nodes=1",
          absl::StrCat("--nodelist=", options.slurm->nodes[machine]),
          "--ntasks=1",
          "--ntasks-per-node=1",
          // All that the job has there; trainers divide it among themselves, and other steps may be there beside it.
          absl::StrCat("--cpus-per-task=", options.slurm->cpus[machine]),
          "--cpu-bind=none",
          "--overlap",
          "--kill-on-bad-exit=1",
          // Frames are no lines.
          "--unbuffered",
          "--job-name=farhop-agent",
          options.farhop,
          "agent"};
}

}  // namespace

absl::StatusOr<std::optional<SlurmAllocation>> readSlurmAllocation(const runtime::EnvironmentReader& environment) {
  SlurmAllocation allocation;
  const char* name = nullptr;
  allocation.jobId = valueOf(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}, &name);
  if (allocation.jobId.empty() || isInStep(environment)) return std::nullopt;
  if (const std::string size = valueOf(environment, {"SLURM_HET_SIZE", "SLURM_PACK_SIZE"}, &name); !size.empty() && size != "1") {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", size, ": components of a heterogeneous Slurm job cannot form "
                                                   "one Farhop job; submit a job whose nodes are all alike"));
  }
  const std::string list = valueOf(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}, &name);
  if (list.empty()) return absl::InvalidArgumentError("SLURM_JOB_NODELIST is not set, though SLURM_JOB_ID is");
  absl::StatusOr<std::vector<std::string>> nodes = runtime::expandNodeList(list);
  if (!nodes.ok()) return annotate(nodes.status(), name);
  allocation.nodes = *std::move(nodes);
  FARHOP_RETURN_IF_ERROR(readCpus(environment, allocation));
  if (const std::string tasks = valueOf(environment, {"SLURM_NTASKS_PER_NODE"}, &name);
      !tasks.empty() && (!absl::SimpleAtoi(tasks, &allocation.tasksPerNode) || allocation.tasksPerNode < 1 ||
                         allocation.tasksPerNode > runtime::kMaxProcsPerMachine)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is '", tasks, "': 1 to ", runtime::kMaxProcsPerMachine,
                                                   " processes a machine are supported"));
  }
  return allocation;
}

absl::Status applySlurmAllocation(RunOptions& options, const CountsGiven& given) {
  const SlurmAllocation& allocation = *options.slurm;
  const int nodes = static_cast<int>(allocation.nodes.size());
  if (!given.machines) options.machines = nodes;
  if (options.machines > nodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Slurm job ", allocation.jobId, " has ", nodes, nodes == 1 ? " node" : " nodes", ", but --machines is ",
        options.machines, "; ask sbatch for --nodes=", options.machines,
        ", or let this machine play all of them with --local"));
  }
  if (!given.procs && allocation.tasksPerNode > 0) options.procs = allocation.tasksPerNode;
  for (int m = 0; m < options.machines; ++m) {
    Host host;
    host.name = host.label = allocation.nodes[static_cast<size_t>(m)];
    options.hosts.push_back(std::move(host));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> findSrun(const std::string& searchPath) {
  for (absl::string_view directory : absl::StrSplit(searchPath, ':', absl::SkipEmpty())) {
    std::string path = absl::StrCat(directory, "/srun");
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return absl::NotFoundError("this is a Slurm job, but srun is not in PATH; add it, or let this machine play all machines "
                             "with --local");
}

Machines slurmMachines(const RunOptions& options, const std::string& jobId) {
  Machines machines;
  machines.jobId = jobId;
  machines.masterAddr = options.masterAddr;
  if (machines.masterAddr.empty() && options.interface.empty()) machines.masterAddr = options.slurm->nodes.front();
  for (size_t m = 0; m < options.hosts.size(); ++m) {
    AgentCommand agent;
    agent.argv = srunCommand(options, m);
    agent.host = agent.address = options.hosts[m].name;
    agent.remote = true;
    machines.agents.push_back(std::move(agent));
  }
  return machines;
}

}  // namespace farhop::launcher
