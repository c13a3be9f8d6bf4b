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
inline constexpr char kEnvGraph[] = "FARHOP_GRAPH";
// Number of an inherited, listening socket on master_port + proc, for machine 0's processes. Optional, and no
// part of the set that must be complete.
inline constexpr char kEnvMasterFd[] = "FARHOP_MASTER_FD";

struct StartMode {
  bool gate = true;                         // group i starts when group i-1 is ready
  std::chrono::milliseconds sleepStep{0};   // with gate == false: process p sleeps sleepStep * p
};
// "gate" or "sleep:SECONDS" (decimal seconds, not negative).
absl::StatusOr<StartMode> parseStartMode(const std::string& text);
std::string formatStartMode(const StartMode& mode);

struct LaunchContract {
  int numMachines = 1;
  int machine = 0;
  int procsPerMachine = 1;
  int proc = 0;
  std::string masterAddr = "127.0.0.1";
  uint16_t masterPort = 0;  // base; group p adds p. 0 only for a single process
  std::string jobId;
  std::string token;
  StartMode start;
  std::string graph;      // may be empty
  int masterFd = -1;
  enum class Source { kFarhop, kSlurm, kSingle } source = Source::kSingle;

  int worldSize() const { return numMachines * procsPerMachine; }
  int worldRank() const { return machine * procsPerMachine + proc; }
};

// Reads a variable; nullopt when unset. Tests pass their own.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string&)>;
EnvironmentReader processEnvironment();

// ARCHITECTURE.md, "Launch contract": a complete FARHOP_* set, else a Slurm step, else a single process. A half-set
// or inconsistent FARHOP_* set, a non-number, a rank out of range or an unequal Slurm step is InvalidArgument
// naming the variable and what it should be.
absl::StatusOr<LaunchContract> readLaunchContract(const EnvironmentReader& environment);

// The variables for one trainer: the FARHOP_* set and the names that torch users know (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT).
std::map<std::string, std::string> launchEnvironment(const LaunchContract& contract);

// Expands Slurm's compressed node list: "n[001-003,7],gpu-a" -> n001 n002 n003 n7 gpu-a. At most 65,536 hosts.
absl::StatusOr<std::vector<std::string>> expandNodeList(const std::string& list);
// Expands SLURM_TASKS_PER_NODE: "4(x2),3" -> 4 4 3.
absl::StatusOr<std::vector<int>> expandTasksPerNode(const std::string& text);

}  // namespace farhop::runtime
