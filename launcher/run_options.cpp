#include "launcher/run_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "launcher/trainer_environment.h"

namespace farhop::launcher {
namespace {

constexpr double kMaxSeconds = 366.0 * 86'400;

bool isVariableName(const std::string& name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  });
}

bool isDirectory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

enum class Kind { kMissing, kNotExecutable, kProgram };
Kind kindOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Kind::kMissing;
  return S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0 ? Kind::kProgram : Kind::kNotExecutable;
}

// A later --env entry wins, and both over the launcher's own environment.
std::string searchPath(const RunOptions& options) {
  for (auto entry = options.environment.rbegin(); entry != options.environment.rend(); ++entry) {
    if (entry->first == "PATH") return entry->second;
  }
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
}

absl::StatusOr<std::string> findTrainer(const RunOptions& options) {
  const std::string& name = options.command.front();
  const auto absolute = [&](const std::string& path) {
    return path.rfind('/', 0) == 0 ? path : absl::StrCat(options.workingDirectory, "/", path);
  };
  const auto notExecutable = [&](const std::string& path) {
    return absl::PermissionDeniedError(absl::StrCat(
        "trainer '", name, "': ", path, " is not an executable file; check its type and chmod +x it"));
  };
  if (name.empty()) return absl::NotFoundError("the trainer's name after -- is empty");
  if (name.find('/') != std::string::npos) {
    switch (kindOf(absolute(name))) {
      case Kind::kProgram:
        return absolute(name);
      case Kind::kNotExecutable:
        return notExecutable(absolute(name));
      case Kind::kMissing:
        break;
    }
    return absl::NotFoundError(
        absl::StrCat("trainer '", name, "' does not exist (looked for ", absolute(name), ")"));
  }
  std::string refused;
  for (absl::string_view directory : absl::StrSplit(searchPath(options), ':')) {
    const std::string path = absolute(directory.empty() ? name : absl::StrCat(directory, "/", name));
    const Kind kind = kindOf(path);
    if (kind == Kind::kProgram) return path;
    if (kind == Kind::kNotExecutable && refused.empty() && !isDirectory(path)) refused = path;
  }
  if (!refused.empty()) return notExecutable(refused);
  return absl::NotFoundError(absl::StrCat("trainer '", name, "' is not in PATH; write ./", name,
                                          " for one in the working directory ", options.workingDirectory));
}

}  // namespace

bool isContractVariable(const std::string& name) {
  static const std::vector<std::string> kNames = [] {
    runtime::LaunchContract contract;
    contract.masterPort = 1;
    contract.graph.assign(1, '/');  // any value
    contract.masterFd = 0;
    contract.launcherFd = 0;
    contract.memoryEstimateBytes = 1;
    std::vector<std::string> names;
    for (const auto& entry : runtime::launchEnvironment(contract)) names.push_back(entry.first);
    names.insert(names.end(), {kEnvRestartCount, kTorchRestartCount});
    return names;
  }();
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

absl::StatusOr<std::pair<std::string, std::string>> parseEnvironmentEntry(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos || !isVariableName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--env '", text.substr(0, 100), "': it must be NAME=VALUE"));
  }
  if (isContractVariable(name)) {
    return absl::InvalidArgumentError(absl::StrCat("--env ", name, ": farhop run sets this one itself"));
  }
  return std::pair(name, text.substr(equals + 1));
}

absl::StatusOr<std::chrono::milliseconds> parseSeconds(const std::string& text, int64_t lowMs) {
  double seconds = 0;
  if (!text.empty() && text.size() <= 32 && text.find_first_not_of("0123456789.") == std::string::npos &&
      absl::SimpleAtod(text, &seconds) && seconds <= kMaxSeconds && std::llround(seconds * 1000) >= lowMs) {
    return std::chrono::milliseconds(std::llround(seconds * 1000));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text.substr(0, 100), "': it must be a number of seconds", lowMs > 0 ? " above 0" : ""));
}

absl::Status checkCounts(const RunOptions& options) {
  const int most = options.hosts.empty() ? kMaxLocalProcesses : kMaxRemoteProcesses;
  if (options.processes() > most) {
    return absl::InvalidArgumentError(absl::StrCat(options.machines, " machines x ", options.procs, " processes",
                                                   options.hosts.empty() ? " on this machine" : "", ": at most ", most,
                                                   " processes are supported"));
  }
  // The port after the groups' is torch's MASTER_PORT.
  if (options.masterPort && *options.masterPort + options.procs > 65'535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--master-port ", *options.masterPort, ": with ", options.procs,
                     " processes a machine the ports would go beyond 65535; choose one "
                     "of at most ",
                     65'535 - options.procs));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> checkFiles(const RunOptions& options) {
  if (!isDirectory(options.workingDirectory)) {
    return absl::NotFoundError(absl::StrCat("--workdir ", options.workingDirectory, ": no such directory"));
  }
  if (!options.graph.empty() && !pathExists(absl::StrCat(options.graph, "/graph.json"))) {
    return absl::NotFoundError(absl::StrCat("--graph ", options.graph,
                                            ": no graph.json there; `farhop partition` "
                                            "makes a graph store from a data set"));
  }
  return findTrainer(options);
}

}  // namespace farhop::launcher
