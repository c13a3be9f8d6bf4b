#include "launcher/ssh_backend.h"

#include <algorithm>

namespace farhop::launcher {
namespace {

absl::Status applySlots(RunOptions& options, bool procsGiven) {
  const Host& first = options.hosts.front();
  if (!procsGiven && first.slots > 0) options.procs = first.slots;
  for (const Host& host : options.hosts) {
    const std::string where = absl::StrCat("--hosts ", options.hostFile, " line ", host.line, ": ");
    if (!procsGiven && host.slots != first.slots) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, "slots differ from line ", first.line,
          ", but process p of all machines forms group p, so each needs the same number of processes; give --procs"));
    }
    if (host.slots > 0 && host.slots < options.procs) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, host.label, " has ", host.slots, " slots, fewer than --procs ", options.procs));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status applyHostFile(RunOptions& options, const CountsGiven& given) {
  FARHOP_ASSIGN_OR_RETURN(options.hosts, readHostFile(options.hostFile));
  const int hosts = static_cast<int>(options.hosts.size());
  if (!given.machines) options.machines = hosts;
  if (options.machines > hosts) {
    return absl::InvalidArgumentError(absl::StrCat("--hosts ", options.hostFile, " names ", hosts, " hosts, but --machines is ",
                                                   options.machines));
  }
  options.hosts.resize(static_cast<size_t>(options.machines));
  return applySlots(options, given.procs);
}

Machines sshMachines(const RunOptions& options, const std::string& jobId) {
  Machines machines;
  machines.jobId = jobId;
  machines.masterAddr = options.masterAddr;
  if (machines.masterAddr.empty() && options.interface.empty()) machines.masterAddr = options.hosts.front().address;
  for (const Host& host : options.hosts) {
    AgentCommand agent;
    // By this variable an agent is found that its launcher lost.
    agent.argv = sshCommand(options.ssh, host,
                            {"env", absl::StrCat(runtime::kEnvJobId, "=", jobId), options.farhop, "agent"});
    agent.host = host.label;
    agent.address = host.address.empty() ? host.name : host.address;
    agent.remote = agent.ssh = true;
    machines.agents.push_back(std::move(agent));
  }
  return machines;
}

}  // namespace farhop::launcher
