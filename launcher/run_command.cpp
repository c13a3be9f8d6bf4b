#include "launcher/run_command.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>

#include "launcher/dry_run.h"
#include "launcher/local_backend.h"

namespace farhop::launcher {
namespace {

constexpr char kFooter[] = R"(Examples:
  farhop run --graph STORE --machines 2 --procs 2 -- ./farhop-sage --epochs 10
  farhop run --nnodes 2 --nproc-per-node 4 --graph data/debian -- ./trainer --lr 0.01
  farhop run --procs 4 --env OMP_NUM_THREADS=1 --log-dir logs -- ./trainer
  farhop run --machines 2 --dry-run -- ./trainer 'an argument with spaces'

The first process that fails ends the job, and its exit code (128 + the number of a signal that killed it) is
farhop's. 130 and 143 mean that Ctrl-C or SIGTERM ended it, 124 that --timeout did, 2 that the command line is
wrong, 126 and 127 that the trainer cannot be executed or found, 1 that the job could not be started.)";

// The options as they were typed.
struct Typed {
  RunOptions options;
  std::string start = "gate", graph, logDirectory, workingDirectory, timeout, grace = "5";
  int masterPort = 0;
  std::vector<std::string> environment;
};

std::function<std::string(const std::string&)> wholeNumber(int low, int high) {
  return [low, high](const std::string& text) -> std::string {
    const bool digits = !text.empty() && text.size() <= 9 &&
                        text.find_first_not_of("0123456789") == std::string::npos &&
                        (text.size() == 1 || text[0] != '0');
    if (digits && std::stoi(text) >= low && std::stoi(text) <= high) return "";
    return absl::StrCat("'", text, "' is not a whole number from ", low, " to ", high);
  };
}

void addOptions(CLI::App& run, Typed& typed) {
  run.add_option("--machines,--nnodes", typed.options.machines,
                 "Machines of the job; this one plays them all")
      ->check(wholeNumber(1, kMaxLocalProcesses))
      ->type_name("M")
      ->capture_default_str();
  run.add_option("--procs,--nproc-per-node,--nproc_per_node", typed.options.procs,
                 "Trainer processes per machine")
      ->check(wholeNumber(1, kMaxLocalProcesses))
      ->type_name("P")
      ->capture_default_str();
  run.add_option("--graph", typed.graph, "Graph store, given to the trainers as FARHOP_GRAPH")
      ->type_name("DIR")
      ->envname(runtime::kEnvGraph);
  run.add_option("--start", typed.start,
                 "How group i starts: gate (when group i-1 is ready) or sleep:SECONDS (after i times that)")
      ->type_name("MODE")
      ->envname(runtime::kEnvStart)
      ->capture_default_str();
  run.add_option("--master-port,--master_port", typed.masterPort,
                 "First of P consecutive ports on which the groups meet; without it free ones are chosen")
      ->check(wholeNumber(1, 65'535))
      ->type_name("PORT");
  run.add_option(
         "--log-dir,--log_dir", typed.logDirectory,
         "Keep each process's output here; without it in a temporary directory, kept when the job fails")
      ->type_name("DIR");
  run.add_option("--env", typed.environment, "Variable for the trainers; may be repeated")
      ->type_name("NAME=VALUE");
  run.add_option("--timeout", typed.timeout, "End the job after this many seconds")->type_name("SECONDS");
  run.add_option("--workdir", typed.workingDirectory, "Directory in which the trainers start")
      ->type_name("DIR");
  run.add_option("--grace", typed.grace, "Seconds between asking the trainers to end and killing them, after a signal or --timeout (after a failure "
                 "the others have 3 s to report, then get SIGTERM, and SIGKILL 1.5 s later)")
      ->type_name("SECONDS")
      ->capture_default_str();
  run.add_flag("--dry-run,--dry_run", typed.options.dryRun, "Print what would be started, and start nothing");
}

absl::StatusOr<std::string> absolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return absl::UnavailableError(absl::StrCat("path ", path, ": ", error.message()));
  std::string text = absolute.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

absl::StatusOr<RunOptions> check(const Typed& typed, const std::optional<std::vector<std::string>>& command) {
  if (!command || command->empty()) {
    return absl::InvalidArgumentError(
        "no trainer is given: it follows `--`, as in farhop run --machines 2 --procs 2 -- ./trainer "
        "ARGUMENTS");
  }
  RunOptions options = typed.options;
  options.command = *command;
  FARHOP_ASSIGN_OR_RETURN(options.start, runtime::parseStartMode(typed.start));
  if (typed.masterPort != 0) options.masterPort = static_cast<uint16_t>(typed.masterPort);
  FARHOP_RETURN_IF_ERROR(checkCounts(options));
  for (const std::string& entry : typed.environment) {
    FARHOP_ASSIGN_OR_RETURN(auto variable, parseEnvironmentEntry(entry));
    options.environment.push_back(std::move(variable));
  }
  if (!typed.timeout.empty()) {
    auto timeout = parseSeconds(typed.timeout, 1);
    if (!timeout.ok()) return annotate(timeout.status(), "--timeout");
    options.timeout = *timeout;
  }
  auto grace = parseSeconds(typed.grace, 0);
  if (!grace.ok()) return annotate(grace.status(), "--grace");
  options.grace = *grace;
  if (!typed.graph.empty()) {
    FARHOP_ASSIGN_OR_RETURN(options.graph, absolutePath(typed.graph));
  }
  if (!typed.logDirectory.empty()) {
    FARHOP_ASSIGN_OR_RETURN(options.logDirectory, absolutePath(typed.logDirectory));
  }
  FARHOP_ASSIGN_OR_RETURN(options.workingDirectory,
                          absolutePath(typed.workingDirectory.empty() ? "." : typed.workingDirectory));
  return options;
}

int report(const absl::Status& status, int exitCode) {
  std::fprintf(stderr, "farhop: %s\n", std::string(status.message()).c_str());
  if (exitCode == kUsageExitCode) std::fprintf(stderr, "Run `farhop run --help` for help.\n");
  return exitCode;
}

int execute(const Typed& typed, const std::optional<std::vector<std::string>>& command) {
  const absl::StatusOr<RunOptions> options = check(typed, command);
  if (!options.ok()) return report(options.status(), kUsageExitCode);
  const absl::StatusOr<std::string> trainer = checkFiles(*options);
  if (!trainer.ok()) {
    return report(trainer.status(),
                  absl::IsPermissionDenied(trainer.status()) ? kNotExecutableExitCode : kNotFoundExitCode);
  }
  if (options->dryRun) {
    const std::string text = describeRun(*options, *trainer);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  const absl::StatusOr<int> result = runLocally(*options, *trainer);
  return result.ok() ? *result : report(result.status(), kFailedExitCode);
}

}  // namespace

void addRunCommand(CLI::App& app, std::optional<std::vector<std::string>> command, int* exitCode) {
  auto typed = std::make_shared<Typed>();
  CLI::App* run = app.add_subcommand("run",
                                     "Start the trainers of a job and watch over them:\n"
                                     "farhop run [OPTIONS] -- TRAINER [ARGUMENTS...]");
  run->footer(kFooter);
  addOptions(*run, *typed);
  run->callback([typed, command = std::move(command), exitCode] { *exitCode = execute(*typed, command); });
}

}  // namespace farhop::launcher
