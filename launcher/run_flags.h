// The flags of `farhop run`, as they were typed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/host_flags.h"
#include "launcher/phases.h"
#include "launcher/run_options.h"

namespace CLI {
class App;
}

namespace farhop::launcher {

struct RunFlags {
  RunOptions options;
  HostFlags hosts;
  PhaseFlags phases;
  std::string start = "gate", bind = "core", bindThreads = "share", memoryEstimate, graph, logDirectory, workingDirectory;
  std::string timeout, grace = "5", startTimeout = "60", tee = "all", configFile;
  int masterPort = 0, gateWidth = 0;
  bool machinesGiven = false, procsGiven = false, local = false;
  std::vector<std::string> environment;
};

void addRunFlags(CLI::App& run, RunFlags& flags);

// What they mean, checked as far as this machine can. `command` is the trainer and its arguments. InvalidArgument that
// names the flag.
absl::StatusOr<RunOptions> checkRunFlags(const RunFlags& flags, const std::optional<std::vector<std::string>>& command);

}  // namespace farhop::launcher
