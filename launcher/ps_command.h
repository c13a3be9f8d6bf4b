// farhop ps: what the processes of this user's jobs on this machine are doing, from their own status endpoints.
#pragma once

#include <string>
#include <vector>

#include "runtime/job_status.h"

namespace CLI {
class App;
}

namespace farhop::launcher {

// One machine's answer.
struct JobView {
  std::vector<runtime::ProcessStatus> processes;  // by job, machine, process
  std::vector<std::string> missing;               // what did not answer, and why
};

// The processes of a job, or of all with an empty id. One that has not started its runtime yet has no endpoint; it is
// found by its environment, and is "starting".
JobView lookAtJobs(const std::string& jobId);

// A table per job; of several jobs one after the other.
std::string jobTables(const JobView& view);
std::string jobJson(const JobView& view);
// What jobJson() wrote on another machine. InvalidArgument for anything else.
absl::StatusOr<JobView> parseJobJson(const std::string& text);

// As addRunCommand(). Exit code 1 when a job was named and nothing of it is there.
void addPsCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
