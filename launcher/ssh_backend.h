// A job on hosts that ssh reaches: one agent per host.
#pragma once

#include "launcher/job_run.h"

namespace farhop::launcher {

// Which of machines and processes the command line named.
struct CountsGiven {
  bool machines = false, procs = false;
};

// Reads options.hostFile: the first options.machines hosts become the job's, or all of them; slots say how many processes
// a machine has where the command line does not. InvalidArgument when there are too few hosts or slots, or unequal ones.
absl::Status applyHostFile(RunOptions& options, const CountsGiven& given);

Machines sshMachines(const RunOptions& options, const std::string& jobId);

}  // namespace farhop::launcher
