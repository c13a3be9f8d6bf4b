// What `farhop run` was asked to do, checked and with all paths absolute.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/host_file.h"
#include "launcher/output_choice.h"
#include "launcher/ssh_command.h"
#include "runtime/launch_contract.h"

namespace farhop::launcher {

// On this machine; every process costs its agent four file descriptors.
inline constexpr int kMaxLocalProcesses = 512;
// On hosts; every process costs the launcher a log file and 20 remembered lines.
inline constexpr int kMaxRemoteProcesses = 16'384;
inline constexpr int kMaxRestarts = 1'000;

struct SlurmAllocation {
  std::string jobId;
  std::vector<std::string> nodes;
  std::vector<int> cpus;  // of the job on each
  int tasksPerNode = 0;   // 0: not said
  std::string srun;       // path of the program
};

struct RunOptions {
  int machines = 1;
  int procs = 1;
  runtime::StartMode start;
  runtime::BindingChoice binding;
  std::optional<uint64_t> memoryEstimateBytes;  // of a process, which the start gate waits for; none: estimated
  std::string graph;                   // absolute, or empty
  std::optional<uint16_t> masterPort;  // none: free ports are chosen
  std::string masterAddr;              // empty: found by machine 0; only with hosts
  std::string interface;               // likewise, the address of this network interface
  std::string hostFile;                // empty: this machine plays all
  std::vector<Host> hosts;             // one per machine
  SshOptions ssh;
  std::optional<SlurmAllocation> slurm;  // the hosts are nodes of it, which srun reaches
  std::string farhop;                  // the program's path on the hosts
  std::string version;                 // this program's
  OutputChoice tee;
  int maxRestarts = 0;
  std::string logDirectory;            // absolute, or empty: a run directory of its own
  std::string workingDirectory;        // absolute; where the trainers start
  std::vector<std::pair<std::string, std::string>> environment;  // added to the trainers', in this order
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::milliseconds grace{5'000};  // between asking to end and SIGKILL
  std::chrono::milliseconds startTimeout{60'000};  // until all machines are ready to start
  bool dryRun = false;
  std::vector<std::string> command;  // the trainer and its arguments, untouched

  int processes() const { return machines * procs; }
};

// "NAME=VALUE". InvalidArgument for a name that is none, or one that the launcher sets itself.
absl::StatusOr<std::pair<std::string, std::string>> parseEnvironmentEntry(const std::string& text);

// Decimal seconds, between `lowMs` and a year.
absl::StatusOr<std::chrono::milliseconds> parseSeconds(const std::string& text, int64_t lowMs);

// What needs no file system: counts, ports.
absl::Status checkCounts(const RunOptions& options);

// The working directory, the graph's graph.json, and the trainer, found as execvp would find it after
// changing to the working directory. Returns the trainer's path. NotFound, or PermissionDenied when it is not
// executable.
absl::StatusOr<std::string> checkFiles(const RunOptions& options);

// Whether the launcher sets this variable for every trainer (and removes an inherited one).
bool isContractVariable(const std::string& name);

}  // namespace farhop::launcher
