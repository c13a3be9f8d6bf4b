// What a trainer is started with: its launch contract and the environment that carries it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/agent_protocol.h"
#include "runtime/launch_contract.h"

namespace farhop::launcher {

// How many times the job has been started before; torch's name for it is set too.
inline constexpr char kEnvRestartCount[] = "FARHOP_RESTART_COUNT";
inline constexpr char kTorchRestartCount[] = "TORCHELASTIC_RESTART_COUNT";

// The contract of process `proc` of the orders' machine, without descriptors. InvalidArgument for a start mode that is
// none.
absl::StatusOr<runtime::LaunchContract> contractOf(const AgentOrders& orders, int proc);

// NAME=value: this process's own environment without an earlier launch's variables, `added`, and the contract; of
// equal names the last one wins.
std::vector<std::string> trainerEnvironment(const std::vector<std::pair<std::string, std::string>>& added,
                                            const runtime::LaunchContract& contract, int attempt);

}  // namespace farhop::launcher
