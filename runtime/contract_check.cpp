// checkContract(): what a launch contract may say.
#include <algorithm>
#include <cctype>

#include "runtime/launch_contract.h"

namespace farhop::runtime {
namespace {

constexpr int64_t kMaxSleepMs = 86'400'000;
constexpr size_t kMaxJobIdBytes = 64;  // it is part of an abstract socket's name, which holds 100
constexpr size_t kMaxTokenBytes = 256;
absl::Status checkIndex(const char* name, int value, const char* countName, int count) {
  if (value < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", but ", countName, " is ", count,
                              ": it must be between 0 and ", count - 1));
}

bool isJobId(const std::string& text) {
  return !text.empty() && text.size() <= kMaxJobIdBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

bool isPrintableWord(const std::string& text, size_t maxBytes) {
  return !text.empty() && text.size() <= maxBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c < 127; });
}

// What the fields are called where they come from: in the environment, or in the struct.
struct FieldNames {
  const char *numMachines, *machine, *procsPerMachine, *proc, *masterAddr, *masterPort, *jobId, *token, *masterFd;
};
constexpr FieldNames kEnvironmentNames{kEnvNumMachines, kEnvMachine, kEnvProcsPerMachine, kEnvProc, kEnvMasterAddr,
                                       kEnvMasterPort,  kEnvJobId,   kEnvJobToken,        kEnvMasterFd};
constexpr FieldNames kStructNames{"numMachines", "machine", "procsPerMachine", "proc",    "masterAddr",
                                  "masterPort",  "jobId",   "token",           "masterFd"};

absl::Status checkRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ": it must be between ", low, " and ", high));
}

absl::Status checkPlace(const LaunchContract& contract, const FieldNames& names) {
  FARHOP_RETURN_IF_ERROR(checkRange(names.numMachines, contract.numMachines, 1, kMaxMachines));
  FARHOP_RETURN_IF_ERROR(checkRange(names.machine, contract.machine, 0, kMaxMachines - 1));
  FARHOP_RETURN_IF_ERROR(checkRange(names.procsPerMachine, contract.procsPerMachine, 1, kMaxProcsPerMachine));
  FARHOP_RETURN_IF_ERROR(checkRange(names.proc, contract.proc, 0, kMaxProcsPerMachine - 1));
  FARHOP_RETURN_IF_ERROR(checkIndex(names.machine, contract.machine, names.numMachines, contract.numMachines));
  return checkIndex(names.proc, contract.proc, names.procsPerMachine, contract.procsPerMachine);
}

absl::Status checkPorts(const LaunchContract& contract, const FieldNames& names) {
  const int port = contract.masterPort;
  FARHOP_RETURN_IF_ERROR(checkRange(names.masterPort, port, contract.worldSize() > 1 ? 1 : 0, kMaxPort));
  if (port + contract.procsPerMachine > kMaxPort) {
    return absl::InvalidArgumentError(absl::StrCat(names.masterPort, " is ", port, ": with ", names.procsPerMachine, " ",
                                contract.procsPerMachine, " the ports would go beyond ", kMaxPort,
                                "; choose one of at most ", kMaxPort - contract.procsPerMachine));
  }
  for (const uint16_t other : contract.otherMasterPorts) {
    FARHOP_RETURN_IF_ERROR(checkRange("otherMasterPorts", other, 1, kMaxPort - contract.procsPerMachine));
  }
  if (contract.masterFd < 0) return absl::OkStatus();
  if (contract.machine != 0) {
    return absl::InvalidArgumentError(absl::StrCat(names.masterFd, " is set, but ", names.machine, " is ", contract.machine,
                                ": only processes of machine 0 listen for their group; unset it"));
  }
  if (port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(names.masterFd, " is set, but ", names.masterPort, " is 0: set the port it listens on"));
  }
  return absl::OkStatus();
}

// A process that is alone meets nobody: it may go without any of them.
absl::Status checkWords(const LaunchContract& contract, const FieldNames& names) {
  const auto optional = [&](const std::string& word) { return contract.worldSize() == 1 && word.empty(); };
  if (!optional(contract.masterAddr) && !isPrintableWord(contract.masterAddr, 255)) {
    return absl::InvalidArgumentError(absl::StrCat(names.masterAddr, " is '", contract.masterAddr.substr(0, 100),
                                "': it must be one host name or address"));
  }
  if (!optional(contract.jobId) && !isJobId(contract.jobId)) {
    return absl::InvalidArgumentError(absl::StrCat(names.jobId, " is '", contract.jobId.substr(0, 100), "': it must be 1 to ",
                                kMaxJobIdBytes, " letters, digits, dots, dashes or underscores"));
  }
  if (!optional(contract.token) && !isPrintableWord(contract.token, kMaxTokenBytes)) {  // stays out of logs
    return absl::InvalidArgumentError(
        absl::StrCat(names.token, " must be 1 to ", kMaxTokenBytes, " printable characters without spaces"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status checkContract(const LaunchContract& contract) {
  const FieldNames& names =
      contract.source == LaunchContract::Source::kFarhop ? kEnvironmentNames : kStructNames;
  FARHOP_RETURN_IF_ERROR(checkPlace(contract, names));
  FARHOP_RETURN_IF_ERROR(checkPorts(contract, names));
  FARHOP_RETURN_IF_ERROR(checkWords(contract, names));
  FARHOP_RETURN_IF_ERROR(checkRange("start.width", contract.start.width, 1, kMaxProcsPerMachine));
  const int64_t stepMs = contract.start.sleepStep.count();
  return checkRange("start.sleepStep (ms)", stepMs, 0, kMaxSleepMs);
}

}  // namespace farhop::runtime
