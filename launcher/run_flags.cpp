#include "launcher/run_flags.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "launcher/slurm_backend.h"
#include "launcher/ssh_backend.h"

namespace farhop::launcher {
namespace {

void addJobFlags(CLI::App& run, RunFlags& flags) {
  run.add_option("--machines,--nnodes", flags.options.machines,
                 "Machines of the job: the first M of --hosts (all, if not given); without hosts this one plays them all")
      ->check(wholeNumber(1, kMaxHosts))
      ->type_name("M")
      ->capture_default_str();
  run.add_option("--procs,--nproc-per-node", flags.options.procs,
                 "Trainer processes per machine; with --hosts its slots=, if not given")
      ->check(wholeNumber(1, runtime::kMaxProcsPerMachine))
      ->type_name("P")
      ->capture_default_str();
  run.add_option("--graph", flags.graph, "Graph store, given to the trainers as FARHOP_GRAPH: the same path on all machines")
      ->type_name("DIR")
      ->envname(runtime::kEnvGraph);
  run.add_option("--start", flags.start,
                 "How group i starts: gate (when group i-1 is ready) or sleep:SECONDS (after i times that)")
      ->type_name("MODE")
      ->envname(runtime::kEnvStart)
      ->capture_default_str();
  run.add_option("--gate-width", flags.gateWidth, "With --start gate: groups that start at once (1, if not given)")
      ->check(wholeNumber(1, runtime::kMaxProcsPerMachine))
      ->type_name("N");
  run.add_option("--memory-estimate", flags.memoryEstimate,
                 "Megabytes that a process needs for itself: the start gate waits until they are free; 0: it does not. "
                 "Without it what a process takes to start: program, libraries, connections. Batches are not in it: no "
                 "process has any before all have started, and their size is the trainer's business; docs/launcher.md has a formula")
      ->type_name("MB");
  run.add_option("--bind", flags.bind,
                 "Bind each process to its share of the machine's physical cores (core), to all cores of the NUMA node that "
                 "the share lies in (numa), or nowhere (none); `farhop doctor --bindings` draws it")
      ->type_name("WHERE")
      ->envname(runtime::kEnvBind)
      ->capture_default_str();
  run.add_option("--bind-threads", flags.bindThreads,
                 "Whether sampler and communication threads share the process's cores with the trainer's (share) or get a "
                 "third of them for themselves (split)")
      ->check(CLI::IsMember({"share", "split"}))
      ->capture_default_str();
  run.add_option("--master-addr", flags.options.masterAddr,
                 "Address of machine 0 on which the groups meet; without it addr= of the host file, or the one by which "
                 "ssh reached it")
      ->type_name("ADDRESS");
  run.add_option("--iface", flags.options.interface, "Network interface of machine 0 whose address is that")
      ->type_name("NAME");
  run.add_option("--master-port", flags.masterPort,
                 "First of P consecutive ports on which the groups meet; without it free ones are chosen")
      ->check(wholeNumber(1, 65'535))
      ->type_name("PORT");
  run.add_flag("--local", flags.local,
               "Let this machine play all machines inside a Slurm allocation, too, instead of starting them with srun on its "
               "nodes")
      ->excludes("--hosts");
  run.add_option("--env", flags.environment,
                 "Variable for the trainers; may be repeated. On hosts they get those of a login there and these, not this shell's")
      ->type_name("NAME=VALUE");
  run.add_option("--workdir", flags.workingDirectory,
                 "Directory in which the trainers start, on every machine; without it the path of this one")
      ->type_name("DIR");
}

void addWatchFlags(CLI::App& run, RunFlags& flags) {
  run.add_option(
         "--log-dir", flags.logDirectory,
         "Keep each process's output here, on this machine, a file per process and attempt; without it in a temporary "
         "directory, kept when the job fails")
      ->type_name("DIR");
  run.add_option("--tee", flags.tee,
                 "Whose output is shown here as well: all, none, or a list of m1, p0, m1p0; also torchrun's 0 to 3, and RANK:0 "
                 "to RANK:3 by local rank (1: output, 2: errors)")
      ->type_name("WHOSE")
      ->capture_default_str();
  run.add_option("--max-restarts", flags.options.maxRestarts,
                 "Start the whole job again, at most this many times, when a trainer fails; FARHOP_RESTART_COUNT counts")
      ->check(wholeNumber(0, kMaxRestarts))
      ->type_name("N")
      ->capture_default_str();
  run.add_option("--timeout", flags.timeout, "End the job after this many seconds")->type_name("SECONDS");
  run.add_option("--grace", flags.grace,
                 "Seconds between asking the trainers to end and killing them, after a signal or --timeout (after a failure "
                 "the others have 3 s to report, then get SIGTERM, and SIGKILL 1.5 s later)")
      ->type_name("SECONDS")
      ->capture_default_str();
  run.add_option("--start-timeout", flags.startTimeout,
                 "Seconds for all machines to be reached and to find their files, before the first trainer starts")
      ->type_name("SECONDS")
      ->capture_default_str();
  run.add_option("--config", flags.configFile,
                 "YAML file with these flags as keys, and trainer: [WORDS] in place of what follows --; the command line wins")
      ->type_name("FILE");
  run.add_flag("--dry-run", flags.options.dryRun, "Print what would be started, and start nothing");
}

absl::Status checkStart(const RunFlags& flags, RunOptions& options) {
  FARHOP_ASSIGN_OR_RETURN(options.start, runtime::parseStartMode(flags.start));
  if (flags.gateWidth > 0) {
    if (!options.start.gate) {
      return absl::InvalidArgumentError("--gate-width is for --start gate; with sleep:SECONDS the time alone counts");
    }
    options.start.width = flags.gateWidth;
  }
  auto binding = runtime::parseBindingChoice(flags.bind);
  if (!binding.ok()) return annotate(binding.status(), "--bind");
  options.binding = *binding;
  if (flags.bindThreads == "split") {
    if (options.binding.to == runtime::BindTo::kNone) {
      return absl::InvalidArgumentError("--bind-threads split is for --bind core or numa; with none there is nothing to split");
    }
    options.binding.splitThreads = true;
  }
  if (flags.memoryEstimate.empty()) return absl::OkStatus();
  uint64_t megabytes = 0;
  if (!absl::SimpleAtoi(flags.memoryEstimate, &megabytes) || megabytes > (uint64_t{1} << 30)) {
    return absl::InvalidArgumentError(absl::StrCat("--memory-estimate '", flags.memoryEstimate, "': it must be a whole number of megabytes"));
  }
  options.memoryEstimateBytes = megabytes * 1'000'000;
  return absl::OkStatus();
}

absl::Status checkTimes(const RunFlags& flags, RunOptions& options) {
  if (!flags.timeout.empty()) {
    auto timeout = parseSeconds(flags.timeout, 1);
    if (!timeout.ok()) return annotate(timeout.status(), "--timeout");
    options.timeout = *timeout;
  }
  auto grace = parseSeconds(flags.grace, 0);
  if (!grace.ok()) return annotate(grace.status(), "--grace");
  options.grace = *grace;
  auto start = parseSeconds(flags.startTimeout, 1);
  if (!start.ok()) return annotate(start.status(), "--start-timeout");
  options.startTimeout = *start;
  return absl::OkStatus();
}

// Inside sbatch or salloc the machines are the allocation's nodes.
absl::Status useAllocation(const RunFlags& flags, RunOptions& options) {
  FARHOP_ASSIGN_OR_RETURN(options.slurm, readSlurmAllocation(runtime::processEnvironment()));
  if (!options.slurm) return absl::OkStatus();
  const char* const path = std::getenv("PATH");
  FARHOP_ASSIGN_OR_RETURN(options.slurm->srun, findSrun(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin"));
  options.farhop = farhopOf(flags.hosts);
  return applySlurmAllocation(options, {flags.machinesGiven, flags.procsGiven});
}

absl::Status checkPlaces(const RunFlags& flags, RunOptions& options) {
  options.ssh = SshOptions();
  if (flags.hosts.hostFile.empty() && !flags.local) FARHOP_RETURN_IF_ERROR(useAllocation(flags, options));
  if (flags.hosts.hostFile.empty()) {
    if (!options.slurm && (!options.masterAddr.empty() || !options.interface.empty())) {
      return absl::InvalidArgumentError(
          "--master-addr and --iface are for jobs on several machines (--hosts); on this one groups meet on 127.0.0.1");
    }
    return absl::OkStatus();
  }
  if (!options.masterAddr.empty() && !options.interface.empty()) {
    return absl::InvalidArgumentError("--master-addr and --iface both say where the groups meet; give one of them");
  }
  FARHOP_ASSIGN_OR_RETURN(options.ssh, sshOptionsOf(flags.hosts));
  options.hostFile = flags.hosts.hostFile;
  options.farhop = farhopOf(flags.hosts);
  return applyHostFile(options, {flags.machinesGiven, flags.procsGiven});
}

}  // namespace

void addRunFlags(CLI::App& run, RunFlags& flags) {
  addHostFlags(run, flags.hosts);
  addJobFlags(run, flags);
  addPhaseFlags(run, flags.phases);
  addWatchFlags(run, flags);
}

absl::StatusOr<RunOptions> checkRunFlags(const RunFlags& flags, const std::optional<std::vector<std::string>>& command) {
  if (!command || command->empty()) {
    return absl::InvalidArgumentError(
        "no trainer is given: it follows `--`, as in farhop run --machines 2 --procs 2 -- ./trainer "
        "ARGUMENTS");
  }
  RunOptions options = flags.options;
  options.command = *command;
  FARHOP_RETURN_IF_ERROR(checkStart(flags, options));
  FARHOP_ASSIGN_OR_RETURN(options.tee, OutputChoice::parse(flags.tee));
  if (flags.masterPort != 0) options.masterPort = static_cast<uint16_t>(flags.masterPort);
  FARHOP_RETURN_IF_ERROR(checkPlaces(flags, options));
  FARHOP_RETURN_IF_ERROR(checkCounts(options));
  for (const std::string& entry : flags.environment) {
    FARHOP_ASSIGN_OR_RETURN(auto variable, parseEnvironmentEntry(entry));
    options.environment.push_back(std::move(variable));
  }
  FARHOP_RETURN_IF_ERROR(checkTimes(flags, options));
  if (!flags.graph.empty()) {
    FARHOP_ASSIGN_OR_RETURN(options.graph, absolutePath(flags.graph));
  }
  if (!flags.logDirectory.empty()) {
    FARHOP_ASSIGN_OR_RETURN(options.logDirectory, absolutePath(flags.logDirectory));
  }
  FARHOP_ASSIGN_OR_RETURN(options.workingDirectory,
                          absolutePath(flags.workingDirectory.empty() ? "." : flags.workingDirectory));
  return options;
}

}  // namespace farhop::launcher
