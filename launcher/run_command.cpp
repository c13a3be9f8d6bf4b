#include "launcher/run_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "launcher/config_file.h"
#include "launcher/dry_run.h"
#include "launcher/job.h"
#include "launcher/job_run.h"
#include "launcher/run_flags.h"

namespace farhop::launcher {
namespace {

constexpr char kFooter[] = R"(Examples:
  farhop run --graph STORE --machines 2 --procs 2 -- ./farhop-sage --epochs 10
  farhop run --graph STORE --hosts hosts.txt --procs 4 -- ./trainer --lr 0.01
  farhop run --nnodes 2 --nproc-per-node 4 --graph data/debian -- ./trainer --lr 0.01
  farhop run --procs 4 --env OMP_NUM_THREADS=1 --log-dir logs --tee m0p0 -- ./trainer
  farhop run --graph STORE --procs 4 -- ./trainer          (inside sbatch or salloc: on its nodes)
  farhop run --hosts hosts.txt --dry-run -- ./trainer 'an argument with spaces'

The first process that fails ends the job, and its exit code (128 + the number of a signal that killed it) is
farhop's. 75 means that the trainers have stopped, as they were asked to, before their work was done. 130 and 143 mean that Ctrl-C or SIGTERM ended it, 124 that --timeout did, 255 that a machine was lost, 2 that the
command line is wrong, 126 and 127 that the trainer cannot be executed or found, 1 that the job could not be started.)";

int report(const absl::Status& status, int exitCode) {
  std::fprintf(stderr, "farhop: %s\n", std::string(status.message()).c_str());
  if (exitCode == kUsageExitCode) std::fprintf(stderr, "Run `farhop run --help` for help.\n");
  return exitCode;
}

int reportMissing(const absl::Status& status) {
  return report(status, absl::IsPermissionDenied(status) ? kNotExecutableExitCode : kNotFoundExitCode);
}

// Reads the configuration file, where one is named, into the flags.
absl::Status complete(CLI::App& run, RunFlags& flags, std::optional<std::vector<std::string>>& command) {
  if (!flags.configFile.empty()) FARHOP_RETURN_IF_ERROR(applyConfigFile(flags.configFile, run, command));
  flags.machinesGiven = run.count("--machines") > 0;
  flags.procsGiven = run.count("--procs") > 0;
  return absl::OkStatus();
}

int execute(const RunFlags& flags, const std::optional<std::vector<std::string>>& command) {
  const absl::StatusOr<RunOptions> options = checkRunFlags(flags, command);
  if (!options.ok()) return report(options.status(), kUsageExitCode);
  const bool local = options->hosts.empty();
  const PhasePlan phases{flags.phases, flags.hosts, options->graph, options->machines};
  const auto commands = phaseCommands(phases);
  if (!commands.ok()) return report(commands.status(), kUsageExitCode);
  if (options->dryRun) {
    for (const std::vector<std::string>& words : *commands) std::printf("# %s\n%s\n", words[1].c_str(), shellLine(words).c_str());
  } else {
    const absl::StatusOr<int> done = runPhases(phases);
    if (!done.ok()) return report(done.status(), kFailedExitCode);
    if (*done != 0) return *done;
  }
  // The hosts' agents look for the files there.
  RunOptions files = *options;
  if (options->dryRun && !flags.phases.raw.empty()) files.graph.clear();  // it would be made first
  const absl::StatusOr<std::string> trainer = local ? checkFiles(files) : options->command.front();
  if (!trainer.ok()) return reportMissing(trainer.status());
  if (options->dryRun) {
    const std::string text = describeRun(*options, *trainer);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  const absl::StatusOr<std::string> jobId = makeJobId();
  if (!jobId.ok()) return report(jobId.status(), kFailedExitCode);
  const absl::StatusOr<int> result =
      runJob(*options, machinesOf(*options, *jobId));
  if (result.ok()) return *result;
  const bool missing = absl::IsNotFound(result.status()) || absl::IsPermissionDenied(result.status());
  return missing && !local ? reportMissing(result.status()) : report(result.status(), kFailedExitCode);
}

}  // namespace

void addRunCommand(CLI::App& app, std::optional<std::vector<std::string>> command, const std::string& version,
                   int* exitCode) {
  auto flags = std::make_shared<RunFlags>();
  flags->options.version = version;
  CLI::App* run = app.add_subcommand("run",
                                     "Start the trainers of a job and watch over them:\n"
                                     "farhop run [OPTIONS] -- TRAINER [ARGUMENTS...]");
  run->footer(kFooter);
  addRunFlags(*run, *flags);
  run->callback([run, flags, command = std::move(command), exitCode]() mutable {
    const absl::Status completed = complete(*run, *flags, command);
    *exitCode = completed.ok() ? execute(*flags, command) : report(completed, kUsageExitCode);
  });
}

}  // namespace farhop::launcher
