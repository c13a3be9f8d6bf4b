// farhop clean: finds and ends what a job has left on this machine, and removes its files.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::launcher {

struct CleanOptions {
  std::string jobId;  // empty: all jobs
  std::chrono::milliseconds grace{5'000};  // between SIGTERM and SIGKILL
  bool dryRun = false;                     // only say what there is
};

struct CleanResult {
  std::vector<std::string> ended;    // "process 4711 (trainer, job ..., m0 p1)"
  std::vector<std::string> removed;  // paths
  std::vector<std::string> failures; // what could not be ended or removed, and why

  bool nothing() const { return ended.empty() && removed.empty() && failures.empty(); }
};

// Ends the job's processes (SIGTERM, then SIGKILL), also those that appear meanwhile; then removes its run directory and
// what it leaves in /dev/shm. Running jobs are no exception: who says so wants them ended.
CleanResult cleanJob(const CleanOptions& options);

// As addRunCommand(). Exit code 1 when something could not be ended or removed.
void addCleanCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
