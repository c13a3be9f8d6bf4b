// Runs a job on this machine, which plays all machines of it.
#pragma once

#include <string>

#include "launcher/run_options.h"

namespace farhop::launcher {

// The address on which groups meet; all machines are this one.
inline constexpr char kLocalAddress[] = "127.0.0.1";

// The environment of one trainer as NAME=value: the launcher's own without an earlier launch's variables,
// --env, and the launch contract.
std::vector<std::string> trainerEnvironment(const RunOptions& options,
                                            const runtime::LaunchContract& contract);

// The contract of one process; the caller fills in job id, token, port and listener.
runtime::LaunchContract contractOf(const RunOptions& options, int machine, int proc);

// Starts the trainers and waits for the end of the job. `trainer` is the path that checkFiles() found.
// Returns the exit code; an error means that nothing is running (what had been started is ended again).
absl::StatusOr<int> runLocally(const RunOptions& options, const std::string& trainer);

}  // namespace farhop::launcher
