// One run of a job, from its id to its exit code, over any kind of agents.
#pragma once

#include <string>
#include <vector>

#include "launcher/job_machine.h"
#include "launcher/run_options.h"

namespace farhop::launcher {

// How the machines of a job are reached: one command per machine, in order.
struct Machines {
  std::string jobId;
  std::vector<AgentCommand> agents;
  std::string masterAddr;  // empty: machine 0's agent finds it
};

// How this job's are: this machine alone, nodes of a Slurm allocation, or hosts that ssh reaches.
Machines machinesOf(const RunOptions& options, const std::string& jobId);

// Without machine, window and silence, which are each machine's, and without the token.
AgentOrders ordersOf(const RunOptions& options, const Machines& machines);

// Starts the agents and, through them, the trainers, and waits for the end of the job; again after a trainer's failure, up
// to options.maxRestarts times. Returns the exit code; an error means that nothing is running (what had been started is
// ended again).
absl::StatusOr<int> runJob(const RunOptions& options, const Machines& machines);

}  // namespace farhop::launcher
