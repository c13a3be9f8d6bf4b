#include "launcher/trainer_environment.h"

#include <unistd.h>

#include <map>

#include "launcher/run_options.h"

namespace farhop::launcher {

absl::StatusOr<runtime::LaunchContract> contractOf(const AgentOrders& orders, int proc) {
  runtime::LaunchContract contract;
  contract.source = runtime::LaunchContract::Source::kFarhop;
  contract.numMachines = static_cast<int>(orders.machines);
  contract.machine = static_cast<int>(orders.machine);
  contract.procsPerMachine = static_cast<int>(orders.procs);
  contract.proc = proc;
  contract.masterAddr = orders.masterAddr;
  contract.masterPort = orders.masterPort;
  contract.jobId = orders.jobId;
  contract.token = orders.token;
  contract.graph = orders.graph;
  FARHOP_ASSIGN_OR_RETURN(contract.start, runtime::parseStartMode(orders.start));
  FARHOP_ASSIGN_OR_RETURN(contract.binding, runtime::parseBindingChoice(orders.bind));
  contract.memoryEstimateBytes = orders.memoryEstimateBytes;
  return contract;
}

std::vector<std::string> trainerEnvironment(const std::vector<std::pair<std::string, std::string>>& added,
                                            const runtime::LaunchContract& contract, int attempt) {
  std::map<std::string, std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t equals = text.find('=', 1);
    if (equals == absl::string_view::npos) continue;
    const std::string name(text.substr(0, equals));
    if (!isContractVariable(name)) variables.emplace(name, std::string(text.substr(equals + 1)));
  }
  for (const auto& [name, value] : added) variables[name] = value;
  for (const auto& [name, value] : runtime::launchEnvironment(contract)) variables[name] = value;
  variables[kEnvRestartCount] = std::to_string(attempt);
  variables[kTorchRestartCount] = std::to_string(attempt);
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(absl::StrCat(name, "=", value));
  return result;
}

}  // namespace farhop::launcher
