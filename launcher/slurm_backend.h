// A job on the nodes of a Slurm allocation: inside sbatch or salloc, one agent per node, each a step of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/job_run.h"

namespace farhop::launcher {

struct CountsGiven;

// The allocation in which this process is, outside of any step that srun started; nullopt without one. InvalidArgument
// for one of heterogeneous components, and naming the variable when Slurm's contradict each other.
absl::StatusOr<std::optional<SlurmAllocation>> readSlurmAllocation(const runtime::EnvironmentReader& environment);

// Makes the first options.machines nodes of options.slurm the job's, or all of them; without a number on the command line
// it has as many processes per machine as the allocation has tasks per node. InvalidArgument when there are too few nodes.
absl::Status applySlurmAllocation(RunOptions& options, const CountsGiven& given);

// `srun` in this path; NotFound.
absl::StatusOr<std::string> findSrun(const std::string& searchPath);

Machines slurmMachines(const RunOptions& options, const std::string& jobId);

}  // namespace farhop::launcher
