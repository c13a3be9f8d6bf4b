#include "launcher/dry_run.h"

#include "launcher/local_backend.h"

namespace farhop::launcher {
namespace {

std::map<std::string, std::string> shownVariables(const RunOptions& options, int machine, int proc) {
  runtime::LaunchContract contract = contractOf(options, machine, proc);
  contract.masterPort = options.masterPort.value_or(0);
  auto variables = runtime::launchEnvironment(contract);
  variables[runtime::kEnvJobToken] = "***";
  variables[runtime::kEnvJobId] = "<made at the start>";
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

std::string shellQuote(const std::string& text) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string describeRun(const RunOptions& options, const std::string& trainer) {
  std::string text =
      absl::StrCat("# would start ", options.processes(), " processes of ", shellQuote(trainer), "\n");
  for (int machine = 0; machine < options.machines; ++machine) {
    for (int proc = 0; proc < options.procs; ++proc) {
      absl::StrAppend(&text, "# m", machine, " p", proc, ", in ", shellQuote(options.workingDirectory), "\n");
      for (const auto& [name, value] : shownVariables(options, machine, proc)) {
        absl::StrAppend(&text, name, "=", shellQuote(value), " \\\n");
      }
      for (size_t i = 0; i < options.command.size(); ++i) {
        absl::StrAppend(&text, i == 0 ? "  " : " ", shellQuote(options.command[i]));
      }
      absl::StrAppend(&text, "\n");
    }
  }
  return text;
}

}  // namespace farhop::launcher
