// The launch contract: the environment in which a launcher starts a trainer, read by RuntimeOptions and
// written by `farhop run`. No libtorch here: the launcher includes this.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/binding_choice.h"

namespace farhop::runtime {

// Names of the variables.
inline constexpr char kEnvNumMachines[] = "FARHOP_NUM_MACHINES";
inline constexpr char kEnvMachine[] = "FARHOP_MACHINE";
inline constexpr char kEnvProcsPerMachine[] = "FARHOP_PROCS_PER_MACHINE";
inline constexpr char kEnvProc[] = "FARHOP_PROC";
inline constexpr char kEnvMasterAddr[] = "FARHOP_MASTER_ADDR";
inline constexpr char kEnvMasterPort[] = "FARHOP_MASTER_PORT";
inline constexpr char kEnvJobId[] = "FARHOP_JOB_ID";
inline constexpr char kEnvJobToken[] = "FARHOP_JOB_TOKEN";
inline constexpr char kEnvStart[] = "FARHOP_START";
// Bytes that a process is going to need for itself; the start gate waits until so many are free. farhop run gives what a
// start takes, without batches: the loader's options are not known before the process has started.
inline constexpr char kEnvMemoryEstimate[] = "FARHOP_MEMORY_ESTIMATE";
inline constexpr char kEnvGraph[] = "FARHOP_GRAPH";
// Number of an inherited, listening socket on master_port + proc, for machine 0's processes. Optional, and no
// part of the set that must be complete.
inline constexpr char kEnvMasterFd[] = "FARHOP_MASTER_FD";

// Number of an inherited socket on which the launcher tells which processes of the job have ended (job_news.h).
// Optional as well; without it a process that dies before it has met any other is missed at the start's deadline.
inline constexpr char kEnvLauncherFd[] = "FARHOP_LAUNCHER_FD";

// What the errors of a start advise that miss a process of which nobody has heard.
inline constexpr char kNeverCameAdvice[] =
    "it did not start, died before, or waits itself: see its log (with farhop run, or srun --kill-on-bad-exit=1, a death "
    "ends the start at once)";

// With which a trainer ends that has stopped because it was asked to: no failure, and no end either.
inline constexpr int kStoppedExitCode = 75;

inline constexpr int kMaxPort = 65'535;
inline constexpr int kMaxMachines = 65'536;
inline constexpr int kMaxProcsPerMachine = 1'024;

// Under bare srun nobody reserves ports. The base is taken from this range, below the ports that Linux gives
// to outgoing connections, in slots of procsPerMachine ports; jobs with neighbouring ids get different slots.
inline constexpr int kSlurmFirstPort = 20'000;
inline constexpr int kSlurmEndPort = 32'768;
inline constexpr int kSlurmPortAttempts = 4;

struct StartMode {
  bool gate = true;                        // group i starts when group i-width is ready
  std::chrono::milliseconds sleepStep{0};  // with gate == false: process p sleeps sleepStep * p
  int width = 1;                           // with gate: groups that start at once
};
// "gate", "gate:WIDTH" (1 to 1,024) or "sleep:SECONDS" (decimal seconds, from 0 to 86,400; whole milliseconds are kept).
absl::StatusOr<StartMode> parseStartMode(const std::string& text);
std::string formatStartMode(const StartMode& mode);

struct LaunchContract {
  int numMachines = 1;
  int machine = 0;
  int procsPerMachine = 1;
  int proc = 0;
  std::string masterAddr = "127.0.0.1";
  uint16_t masterPort = 0;  // base; group p adds p. 0 only for a single process
  std::vector<uint16_t> otherMasterPorts;  // bases to try when masterPort is taken: under Slurm, where nobody reserves it
  std::string jobId;
  std::string token;
  StartMode start;
  BindingChoice binding;
  uint64_t memoryEstimateBytes = 0;  // of memory that is this process's alone, for which the gate waits; 0: it does not
  std::string graph;  // may be empty
  int masterFd = -1;  // -1: none; checked to be a number only; whether it is a listening socket is for its user to see
  int launcherFd = -1;  // likewise
  enum class Source { kFarhop, kSlurm, kSingle } source = Source::kSingle;

  int worldSize() const { return numMachines * procsPerMachine; }
  int worldRank() const { return machine * procsPerMachine + proc; }
};

// Whether a process can start with it, wherever it comes from: InvalidArgument naming the field (the variable
// where source is kFarhop) and what it should be. Job id, token and master address may be empty, and the master
// port 0, only for a process that is alone. readLaunchContract() and the session check it.
absl::Status checkContract(const LaunchContract& contract);

// Reads a variable; nullopt when unset. Tests pass their own.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string&)>;
EnvironmentReader processEnvironment();

// ARCHITECTURE.md, "Launch contract": a complete FARHOP_* set (all but FARHOP_START, FARHOP_GRAPH, FARHOP_BIND,
// FARHOP_MEMORY_ESTIMATE, FARHOP_MASTER_FD and FARHOP_LAUNCHER_FD, which are optional everywhere), else a Slurm step, else a single process. An empty
// variable counts as unset. A half-set or inconsistent FARHOP_* set, a non-number, a rank out of range or an
// unequal Slurm step is InvalidArgument naming the variable and what it should be; so is a WORLD_SIZE above 1
// when neither FARHOP_* nor a Slurm step is there, since each process would then train alone.
absl::StatusOr<LaunchContract> readLaunchContract(const EnvironmentReader& environment);

// The base ports to try, in order: masterPort and otherMasterPorts. All processes of a job get the same list; the
// token tells whether the right job listens.
std::vector<uint16_t> masterPortCandidates(const LaunchContract& contract);

// The variables for one trainer: the FARHOP_* set and the names that torch users know (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT). MASTER_PORT is the port after the
// groups' (masterPort + procsPerMachine): Farhop listens on those before it, and torch.distributed wants one
// to itself.
std::map<std::string, std::string> launchEnvironment(const LaunchContract& contract);

// Expands Slurm's compressed node list: "n[001-003,7],gpu-a" -> n001 n002 n003 n7 gpu-a; several brackets in
// one name ("r[1-2]n[1-4]-ib") give every combination, the last varying fastest. InvalidArgument for what
// Slurm would not write and above kMaxMachines hosts.
absl::StatusOr<std::vector<std::string>> expandNodeList(const std::string& list);
// Expands SLURM_TASKS_PER_NODE: "4(x2),3" -> 4 4 3. At most kMaxMachines entries.
absl::StatusOr<std::vector<int>> expandTasksPerNode(const std::string& text);

}  // namespace farhop::runtime
