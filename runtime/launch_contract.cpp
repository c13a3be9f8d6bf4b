#include "runtime/launch_contract.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/random.h"

namespace farhop::runtime {
namespace {

constexpr double kMaxSleepSeconds = 86'400;

// Slurm numbers its own steps (batch script, extern, interactive shell of salloc) downwards from 2^32 - 3:
// what runs in one of them was not started by srun.
constexpr uint64_t kFirstSpecialStep = 0xFFFFFFF0;

// Reads variables, treating an empty one as unset.
class Variables {
 public:
  explicit Variables(const EnvironmentReader& read) : read_(read) {}

  std::optional<std::string> find(const std::string& name) const {
    std::optional<std::string> value = read_(name);
    if (value.has_value() && value->empty()) return std::nullopt;
    return value;
  }

  // The first of `names` that is set, and its name.
  std::optional<std::pair<std::string, std::string>> findFirst(
      std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (auto value = find(name)) return std::pair(std::string(name), *value);
    }
    return std::nullopt;
  }

  static absl::StatusOr<uint64_t> parse(const std::string& name, const std::string& text, uint64_t low,
                                        uint64_t high) {
    const bool digits = text.size() <= 20 && text.find_first_not_of("0123456789") == std::string::npos;
    uint64_t value = 0;
    if (!digits || !absl::SimpleAtoi(text, &value)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is '", text.substr(0, 100), "': it must be a whole number"));
    }
    if (value < low || value > high) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ": it must be between ", low, " and ", high));
    }
    return value;
  }

  absl::StatusOr<int> number(const std::string& name, int low, int high) const {
    const std::optional<std::string> text = find(name);
    if (!text) return absl::InvalidArgumentError(absl::StrCat(name, " is not set"));
    FARHOP_ASSIGN_OR_RETURN(const uint64_t value,
                            parse(name, *text, static_cast<uint64_t>(low), static_cast<uint64_t>(high)));
    return static_cast<int>(value);
  }

 private:
  const EnvironmentReader& read_;
};

absl::Status checkIndex(const char* name, int value, const std::string& countName, int count) {
  if (value < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", but ", countName, " is ", count,
                              ": it must be between 0 and ", count - 1));
}

absl::StatusOr<std::string> randomToken() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return errnoStatus("getrandom", errno);
  std::string token;
  for (unsigned char byte : bytes) absl::StrAppendFormat(&token, "%02x", byte);
  return token;
}

// FARHOP_START, FARHOP_GRAPH, FARHOP_BIND and FARHOP_MEMORY_ESTIMATE, which any kind of start may set.
absl::Status readSettings(const Variables& variables, LaunchContract& contract) {
  contract.graph = variables.find(kEnvGraph).value_or("");
  if (const auto start = variables.find(kEnvStart)) {
    absl::StatusOr<StartMode> mode = parseStartMode(*start);
    if (!mode.ok()) return annotate(mode.status(), kEnvStart);
    contract.start = *mode;
  }
  if (const auto bind = variables.find(kEnvBind)) {
    absl::StatusOr<BindingChoice> choice = parseBindingChoice(*bind);
    if (!choice.ok()) return annotate(choice.status(), kEnvBind);
    contract.binding = *choice;
  }
  if (const auto bytes = variables.find(kEnvMemoryEstimate)) {
    FARHOP_ASSIGN_OR_RETURN(contract.memoryEstimateBytes,
                            Variables::parse(kEnvMemoryEstimate, *bytes, 0, uint64_t{1} << 50));
  }
  return absl::OkStatus();
}

absl::StatusOr<LaunchContract> readFarhop(const Variables& variables) {
  LaunchContract contract;
  contract.source = LaunchContract::Source::kFarhop;
  FARHOP_ASSIGN_OR_RETURN(contract.numMachines, variables.number(kEnvNumMachines, 1, kMaxMachines));
  FARHOP_ASSIGN_OR_RETURN(contract.machine, variables.number(kEnvMachine, 0, kMaxMachines - 1));
  FARHOP_ASSIGN_OR_RETURN(contract.procsPerMachine,
                          variables.number(kEnvProcsPerMachine, 1, kMaxProcsPerMachine));
  FARHOP_ASSIGN_OR_RETURN(contract.proc, variables.number(kEnvProc, 0, kMaxProcsPerMachine - 1));
  FARHOP_ASSIGN_OR_RETURN(const int port, variables.number(kEnvMasterPort, 0, kMaxPort));
  contract.masterPort = static_cast<uint16_t>(port);
  contract.masterAddr = *variables.find(kEnvMasterAddr);
  contract.jobId = *variables.find(kEnvJobId);
  contract.token = *variables.find(kEnvJobToken);
  if (variables.find(kEnvMasterFd)) {
    FARHOP_ASSIGN_OR_RETURN(contract.masterFd, variables.number(kEnvMasterFd, 0, 1 << 20));
  }
  if (variables.find(kEnvLauncherFd)) {
    FARHOP_ASSIGN_OR_RETURN(contract.launcherFd, variables.number(kEnvLauncherFd, 0, 1 << 20));
  }
  return contract;
}

// Tasks per node of the step, which must be the same everywhere.
absl::StatusOr<int> slurmProcs(const Variables& variables, int numMachines) {
  const auto text = variables.findFirst({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!text) return absl::InvalidArgumentError("SLURM_STEP_TASKS_PER_NODE is not set in this Slurm step; start with srun");
  absl::StatusOr<std::vector<int>> tasks = expandTasksPerNode(text->second);
  if (!tasks.ok()) return annotate(tasks.status(), text->first);
  if (tasks->size() != static_cast<size_t>(numMachines)) {
    return absl::InvalidArgumentError(absl::StrCat(text->first, " is '", text->second, "', which is ", tasks->size(),
                                " nodes, but the step has ", numMachines,
                                "; give srun --nodes and --ntasks-per-node"));
  }
  for (int count : *tasks) {
    if (count != tasks->front()) {
      return absl::InvalidArgumentError(
          absl::StrCat(text->first, " is '", text->second,
                       "': every machine must run the same number of processes, since process p of all "
                       "machines form group p; give srun --ntasks-per-node"));
    }
  }
  if (tasks->front() < 1 || tasks->front() > kMaxProcsPerMachine) {
    return absl::InvalidArgumentError(absl::StrCat(text->first, " is '", text->second, "': 1 to ", kMaxProcsPerMachine,
                                " processes a machine are supported"));
  }
  return tasks->front();
}

absl::Status readSlurmPlace(const Variables& variables, LaunchContract& contract) {
  const auto nodes = variables.findFirst({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  if (!nodes) return absl::InvalidArgumentError("SLURM_STEP_NUM_NODES is not set in this Slurm step; start with srun");
  FARHOP_ASSIGN_OR_RETURN(contract.numMachines, variables.number(nodes->first, 1, kMaxMachines));
  FARHOP_ASSIGN_OR_RETURN(contract.procsPerMachine, slurmProcs(variables, contract.numMachines));
  FARHOP_ASSIGN_OR_RETURN(contract.machine, variables.number("SLURM_NODEID", 0, kMaxMachines - 1));
  FARHOP_ASSIGN_OR_RETURN(contract.proc, variables.number("SLURM_LOCALID", 0, kMaxProcsPerMachine - 1));
  FARHOP_RETURN_IF_ERROR(checkIndex("SLURM_NODEID", contract.machine, nodes->first, contract.numMachines));
  FARHOP_RETURN_IF_ERROR(
      checkIndex("SLURM_LOCALID", contract.proc, "the number of tasks per node", contract.procsPerMachine));

  const auto list = variables.findFirst({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return absl::InvalidArgumentError("SLURM_STEP_NODELIST is not set in this Slurm step; start with srun");
  absl::StatusOr<std::vector<std::string>> hosts = expandNodeList(list->second);
  if (!hosts.ok()) return annotate(hosts.status(), list->first);
  if (hosts->size() != static_cast<size_t>(contract.numMachines)) {
    return absl::InvalidArgumentError(absl::StrCat(list->first, " names ", hosts->size(), " nodes, but ", nodes->first, " is ",
                                contract.numMachines, "; start with srun, one step for the whole job"));
  }
  contract.masterAddr = hosts->front();
  return absl::OkStatus();
}

int slurmSlots(int procs) {
  return (kSlurmEndPort - kSlurmFirstPort) / procs;
}

std::vector<uint16_t> otherSlurmPorts(int first, int procs) {
  const int slots = slurmSlots(procs);
  std::vector<uint16_t> ports;
  for (int attempt = 1; attempt < std::min(kSlurmPortAttempts, slots); ++attempt) {
    // A quarter of the range apart: whatever occupies one slot is unlikely to reach the next.
    const int slot = (first + attempt * std::max(1, slots / kSlurmPortAttempts)) % slots;
    ports.push_back(static_cast<uint16_t>(kSlurmFirstPort + slot * procs));
  }
  return ports;
}

absl::StatusOr<LaunchContract> readSlurm(const Variables& variables, uint64_t step) {
  for (const char* name : {"SLURM_HET_SIZE", "SLURM_PACK_SIZE"}) {
    const auto size = variables.find(name);
    if (size && *size != "1") {
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", *size,
                                  ": components of a heterogeneous Slurm job cannot form one ",
                                  "Farhop job; submit a job whose nodes are all alike"));
    }
  }
  const auto jobText = variables.findFirst({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!jobText) return absl::InvalidArgumentError("SLURM_JOB_ID is not set, though SLURM_STEP_ID is; start with srun");
  FARHOP_ASSIGN_OR_RETURN(const uint64_t job,
                          Variables::parse(jobText->first, jobText->second, 1, uint64_t{0xFFFFFFFF}));
  LaunchContract contract;
  contract.source = LaunchContract::Source::kSlurm;
  FARHOP_RETURN_IF_ERROR(readSlurmPlace(variables, contract));
  contract.jobId = absl::StrCat("slurm-", job, "-", step);

  // It keeps jobs from meeting each other by mistake; it keeps no secret, since all of this is public.
  const auto user = variables.findFirst({"SLURM_JOB_UID", "SLURM_JOB_USER", "USER"});
  const std::string owner = user ? user->second : std::to_string(::geteuid());
  KeyedRandom random(combineKey(hashName(contract.jobId), hashName(owner)));
  const uint64_t high = random.next(), low = random.next();
  contract.token = absl::StrFormat("%016x%016x", high, low);

  const uint64_t slot = (job * 31 + step) % static_cast<uint64_t>(slurmSlots(contract.procsPerMachine));
  contract.masterPort =
      static_cast<uint16_t>(kSlurmFirstPort + static_cast<int>(slot) * contract.procsPerMachine);
  contract.otherMasterPorts = otherSlurmPorts(static_cast<int>(slot), contract.procsPerMachine);
  return contract;
}

absl::StatusOr<LaunchContract> readSingle(const Variables& variables) {
  if (const auto world = variables.find("WORLD_SIZE"); world && *world != "1") {
    return absl::InvalidArgumentError(
        absl::StrCat("WORLD_SIZE is ", *world,
                     ", but neither FARHOP_* variables nor a Slurm step are there, so that every process "
                     "would train alone; start with `farhop run` or srun, or unset WORLD_SIZE"));
  }
  LaunchContract contract;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  contract.jobId = absl::StrCat("single-", ::getpid(), "-",
                                std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  FARHOP_ASSIGN_OR_RETURN(contract.token, randomToken());
  return contract;
}

// The variables that only make sense together, with what is set and what is missing.
struct FarhopSet {
  std::vector<std::string> present, missing;

  explicit FarhopSet(const Variables& variables) {
    for (const char* name : {kEnvNumMachines, kEnvMachine, kEnvProcsPerMachine, kEnvProc, kEnvMasterAddr,
                             kEnvMasterPort, kEnvJobId, kEnvJobToken}) {
      (variables.find(name) ? present : missing).push_back(name);
    }
    // Alone it says that a launcher's variables were lost on the way.
    for (const char* name : {kEnvMasterFd, kEnvLauncherFd}) {
      if (variables.find(name)) present.push_back(name);
    }
  }
};

absl::StatusOr<LaunchContract> readPlace(const Variables& variables) {
  const FarhopSet set(variables);
  if (set.missing.empty()) return readFarhop(variables);
  if (!set.present.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(absl::StrJoin(set.present, ", "), " is set, but ",
                                absl::StrJoin(set.missing, ", "),
                                " is not: set all of them or none (`farhop run` sets them all)"));
  }
  if (const auto text = variables.find("SLURM_STEP_ID")) {
    FARHOP_ASSIGN_OR_RETURN(const uint64_t step,
                            Variables::parse("SLURM_STEP_ID", *text, 0, uint64_t{0xFFFFFFFF}));
    if (step < kFirstSpecialStep) return readSlurm(variables, step);
  }
  return readSingle(variables);
}

}  // namespace

absl::StatusOr<StartMode> parseStartMode(const std::string& text) {
  if (text == "gate") return StartMode{};
  constexpr char kGate[] = "gate:", kPrefix[] = "sleep:";
  if (text.rfind(kGate, 0) == 0) {
    const auto width = Variables::parse("start mode gate's width", text.substr(sizeof(kGate) - 1), 1, kMaxProcsPerMachine);
    if (!width.ok()) return width.status();
    return StartMode{true, {}, static_cast<int>(*width)};
  }
  double seconds = 0;
  if (text.rfind(kPrefix, 0) == 0) {
    const std::string number = text.substr(sizeof(kPrefix) - 1);
    if (!number.empty() && number.size() <= 32 &&
        number.find_first_not_of("0123456789.") == std::string::npos && absl::SimpleAtod(number, &seconds) &&
        seconds >= 0 && seconds <= kMaxSleepSeconds) {
      return StartMode{false, std::chrono::milliseconds(std::llround(seconds * 1000))};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("start mode '", text.substr(0, 100),
                              "': it must be gate, gate:WIDTH, or sleep:SECONDS with 0 to 86400 seconds"));
}

std::string formatStartMode(const StartMode& mode) {
  if (mode.gate) return mode.width == 1 ? "gate" : absl::StrCat("gate:", mode.width);
  const int64_t ms = mode.sleepStep.count();
  if (ms % 1000 == 0) return absl::StrCat("sleep:", ms / 1000);
  return absl::StrFormat("sleep:%d.%03d", ms / 1000, ms % 1000);
}

EnvironmentReader processEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

absl::StatusOr<LaunchContract> readLaunchContract(const EnvironmentReader& environment) {
  const Variables variables(environment);
  FARHOP_ASSIGN_OR_RETURN(LaunchContract contract, readPlace(variables));
  FARHOP_RETURN_IF_ERROR(readSettings(variables, contract));
  FARHOP_RETURN_IF_ERROR(checkContract(contract));
  return contract;
}

std::vector<uint16_t> masterPortCandidates(const LaunchContract& contract) {
  std::vector<uint16_t> ports{contract.masterPort};
  ports.insert(ports.end(), contract.otherMasterPorts.begin(), contract.otherMasterPorts.end());
  return ports;
}

std::map<std::string, std::string> launchEnvironment(const LaunchContract& contract) {
  std::map<std::string, std::string> result{
      {kEnvNumMachines, std::to_string(contract.numMachines)},
      {kEnvMachine, std::to_string(contract.machine)},
      {kEnvProcsPerMachine, std::to_string(contract.procsPerMachine)},
      {kEnvProc, std::to_string(contract.proc)},
      {kEnvMasterAddr, contract.masterAddr},
      {kEnvMasterPort, std::to_string(contract.masterPort)},
      {kEnvJobId, contract.jobId},
      {kEnvJobToken, contract.token},
      {kEnvStart, formatStartMode(contract.start)},
      {kEnvBind, formatBindingChoice(contract.binding)},
      {"RANK", std::to_string(contract.worldRank())},
      {"WORLD_SIZE", std::to_string(contract.worldSize())},
      {"LOCAL_RANK", std::to_string(contract.proc)},
      {"LOCAL_WORLD_SIZE", std::to_string(contract.procsPerMachine)},
      {"GROUP_RANK", std::to_string(contract.machine)},
      {"MASTER_ADDR", contract.masterAddr},
  };
  if (contract.masterPort != 0) {
    result["MASTER_PORT"] = std::to_string(contract.masterPort + contract.procsPerMachine);
  }
  if (contract.memoryEstimateBytes > 0) result[kEnvMemoryEstimate] = std::to_string(contract.memoryEstimateBytes);
  if (!contract.graph.empty()) result[kEnvGraph] = contract.graph;
  if (contract.masterFd >= 0) result[kEnvMasterFd] = std::to_string(contract.masterFd);
  if (contract.launcherFd >= 0) result[kEnvLauncherFd] = std::to_string(contract.launcherFd);
  return result;
}

}  // namespace farhop::runtime
