// This machine plays all machines of a job: their agents are its children.
#pragma once

#include "launcher/job_run.h"

namespace farhop::launcher {

// The address on which groups meet; all machines are this one.
inline constexpr char kLocalAddress[] = "127.0.0.1";

Machines localMachines(const RunOptions& options, const std::string& jobId);

// The path of the farhop program that runs.
std::string ownProgram();

}  // namespace farhop::launcher
