#include "launcher/run_command.h"

#include <cstdio>
#include <memory>

#include "launcher/dry_run.h"
#include "launcher/job.h"
#include "launcher/local_backend.h"
#include "launcher/run_flags.h"
#include "launcher/ssh_backend.h"

namespace farhop::launcher {
namespace {

constexpr char kFooter[] = R"(Examples:
  farhop run --graph STORE --machines 2 --procs 2 -- ./farhop-sage --epochs 10
  farhop run --graph STORE --hosts hosts.txt --procs 4 -- ./trainer --lr 0.01
  farhop run --nnodes 2 --nproc-per-node 4 --graph data/debian -- ./trainer --lr 0.01
  farhop run --procs 4 --env OMP_NUM_THREADS=1 --log-dir logs --tee m0p0 -- ./trainer
  farhop run --hosts hosts.txt --dry-run -- ./trainer 'an argument with spaces'

The first process that fails ends the job, and its exit code (128 + the number of a signal that killed it) is
farhop's. 130 and 143 mean that Ctrl-C or SIGTERM ended it, 124 that --timeout did, 255 that a machine was lost, 2 that the
command line is wrong, 126 and 127 that the trainer cannot be executed or found, 1 that the job could not be started.)";

int report(const absl::Status& status, int exitCode) {
  std::fprintf(stderr, "farhop: %s\n", std::string(status.message()).c_str());
  if (exitCode == kUsageExitCode) std::fprintf(stderr, "Run `farhop run --help` for help.\n");
  return exitCode;
}

int reportMissing(const absl::Status& status) {
  return report(status, absl::IsPermissionDenied(status) ? kNotExecutableExitCode : kNotFoundExitCode);
}

int execute(const RunFlags& flags, const std::optional<std::vector<std::string>>& command) {
  const absl::StatusOr<RunOptions> options = checkRunFlags(flags, command);
  if (!options.ok()) return report(options.status(), kUsageExitCode);
  const bool local = options->hosts.empty();
  // The hosts' agents look for the files there.
  const absl::StatusOr<std::string> trainer = local ? checkFiles(*options) : options->command.front();
  if (!trainer.ok()) return reportMissing(trainer.status());
  if (options->dryRun) {
    const std::string text = describeRun(*options, *trainer);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  const absl::StatusOr<std::string> jobId = makeJobId();
  if (!jobId.ok()) return report(jobId.status(), kFailedExitCode);
  const absl::StatusOr<int> result =
      runJob(*options, local ? localMachines(*options, *jobId) : sshMachines(*options, *jobId));
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
  run->callback([run, flags, command = std::move(command), exitCode] {
    flags->machinesGiven = run->count("--machines") > 0;
    flags->procsGiven = run->count("--procs") > 0;
    *exitCode = execute(*flags, command);
  });
}

}  // namespace farhop::launcher
