#include "launcher/dry_run.h"

#include <map>

#include "launcher/job_run.h"
#include "launcher/trainer_environment.h"

namespace farhop::launcher {
namespace {

constexpr char kJobIdPlaceholder[] = "<made at the start>";

std::map<std::string, std::string> shownVariables(const RunOptions& options, AgentOrders orders, int machine, int proc) {
  orders.machine = static_cast<uint32_t>(machine);
  if (orders.masterAddr.empty()) orders.masterAddr = "<machine 0's address>";
  const auto contract = contractOf(orders, proc);
  if (!contract.ok()) return {};  // the start mode was checked before
  auto variables = runtime::launchEnvironment(*contract);
  variables[runtime::kEnvJobToken] = "***";
  variables[kEnvRestartCount] = variables[kTorchRestartCount] = std::string(1, '0');  // GCC 12 warns of "0"
  if (!options.masterPort) {
    variables[runtime::kEnvMasterPort] = "<free port>";
    variables["MASTER_PORT"] = "<free port>";
  }
  if (machine == 0 && options.machines > 1) variables[runtime::kEnvMasterFd] = "<inherited listening socket>";
  variables[runtime::kEnvLauncherFd] = "<inherited socket>";
  for (const auto& [name, value] : options.environment) variables[name] = value;
  return variables;
}

}  // namespace

std::string describeRun(const RunOptions& options, const std::string& trainer) {
  const Machines machines = machinesOf(options, kJobIdPlaceholder);
  const AgentOrders orders = ordersOf(options, machines);
  std::string text =
      absl::StrCat("# would start ", options.processes(), " processes of ", shellQuote(trainer), "\n");
  for (int machine = 0; machine < options.machines; ++machine) {
    const AgentCommand& agent = machines.agents[static_cast<size_t>(machine)];
    if (!agent.host.empty()) {
      absl::StrAppend(&text, "# machine ", machine, " (", agent.host, "), whose agent starts the processes below\n",
                      shellLine(agent.argv), "\n");
    }
    for (int proc = 0; proc < options.procs; ++proc) {
      absl::StrAppend(&text, "# m", machine, " p", proc, ", in ", shellQuote(options.workingDirectory), "\n");
      for (const auto& [name, value] : shownVariables(options, orders, machine, proc)) {
        absl::StrAppend(&text, name, "=", shellQuote(value), " \\\n");
      }
      absl::StrAppend(&text, "  ", shellLine(options.command), "\n");
    }
  }
  return text;
}

}  // namespace farhop::launcher
