// `farhop run`: its options and what they mean.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace farhop::launcher {

// Exit codes of farhop itself; a job's own are described in its help.
inline constexpr int kFailedExitCode = 1;
inline constexpr int kUsageExitCode = 2;
inline constexpr int kNotExecutableExitCode = 126;  // as shells have it
inline constexpr int kNotFoundExitCode = 127;

// Adds the subcommand. `command` is what followed the first `--` of the command line, nullopt without one;
// CLI11 never sees it, so that it reaches the trainer byte for byte. `exitCode` is set when the subcommand
// ran. `version` is farhop's.
void addRunCommand(CLI::App& app, std::optional<std::vector<std::string>> command, const std::string& version,
                   int* exitCode);

}  // namespace farhop::launcher
