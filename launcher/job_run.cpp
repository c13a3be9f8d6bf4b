#include "launcher/job_run.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/job.h"
#include "launcher/local_backend.h"
#include "launcher/machine_checks.h"
#include "launcher/slurm_backend.h"
#include "launcher/ssh_backend.h"
#include "launcher/start_report.h"
#include "launcher/supervisor.h"
#include "launcher/terminal.h"

namespace farhop::launcher {
namespace {

// Output that waits in the launcher when nobody reads, over all machines.
constexpr size_t kAllWindowsBytes = size_t{32} << 20;
constexpr size_t kMinWindowBytes = size_t{16} << 10;

std::string count(int number, absl::string_view one, absl::string_view many) {
  return absl::StrCat(number, " ", number == 1 ? one : many);
}

// The launcher's own, with the job's id, by which the agent is found that a job left.
std::vector<std::string> agentEnvironment(const std::string& jobId) {
  std::vector<std::string> result;
  const std::string name = absl::StrCat(runtime::kEnvJobId, "=");
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    if (std::string(*entry).rfind(name, 0) != 0) result.emplace_back(*entry);
  }
  result.push_back(name + jobId);
  return result;
}

class JobRun {
 public:
  JobRun(const RunOptions& options, const Machines& machines) : options_(options), how_(machines), id_(machines.jobId) {}

  absl::StatusOr<int> run() {
    // A reader of our output that goes away shows as EPIPE.
    ::signal(SIGPIPE, SIG_IGN);
    FARHOP_ASSIGN_OR_RETURN(signals_, openSignals());
    FARHOP_ASSIGN_OR_RETURN(logs_, LogDirectory::create(options_.logDirectory, id_));
    openFiles_ = raiseOpenFiles();
    becomeSubreaper();
    for (int attempt = 0;; ++attempt) {
      again_ = false;
      absl::StatusOr<int> result = runAttempt(attempt);
      // A job that ran has logs that say why it ended.
      if (attempt == 0 && !result.ok()) logs_.removeTemporary();
      if (!result.ok() || *result == 0 || !again_ || attempt == options_.maxRestarts) return result;
      say(absl::StrCat("starting the job again (", attempt + 1, " of ", options_.maxRestarts, ")"));
    }
  }

 private:
  void say(const std::string& line) {
    terminals_.err->appendOwn(absl::StrCat("farhop: ", line, "\n"));
    terminals_.err->writeSome();
  }

  absl::StatusOr<std::vector<JobMachine>> connect(int attempt) {
    std::vector<JobMachine> machines;
    for (int m = 0; m < options_.machines; ++m) {
      const AgentCommand& command = how_.agents[static_cast<size_t>(m)];
      FARHOP_ASSIGN_OR_RETURN(JobMachine machine, JobMachine::connect(command, m, agentEnvironment(id_), openFiles_));
      machine.windowBytes =
          std::clamp(kAllWindowsBytes / static_cast<size_t>(options_.machines), kMinWindowBytes, kMaxWindowBytes);
      for (int p = 0; p < options_.procs; ++p) {
        FARHOP_ASSIGN_OR_RETURN(
            OutputPump output,
            OutputPump::open(absl::StrCat("m", m, " p", p), m * options_.procs + p, logs_.fileFor(m, p, attempt),
                             terminals_, options_.tee.shown(m, p)));
        const std::string place = command.host.empty() ? "" : absl::StrCat(" (", command.host, ")");
        machine.processes.push_back(JobProcess{m, p, command.address.empty() ? command.host : command.address, place,
                                               std::move(output), 0, std::nullopt});
      }
      machines.push_back(std::move(machine));
    }
    return machines;
  }

  absl::StatusOr<int> runAttempt(int attempt) {
    SupervisorOptions supervision;
    supervision.orders = ordersOf(options_, how_);
    supervision.orders.attempt = static_cast<uint32_t>(attempt);
    // A process of the attempt before that is still about has another token, and is refused.
    FARHOP_ASSIGN_OR_RETURN(supervision.orders.token, makeToken());
    supervision.version = options_.version;
    supervision.grace = options_.grace;
    supervision.startTimeout = options_.startTimeout;
    supervision.timeout = options_.timeout;
    supervision.onPrepared = [this](const AgentPrepared& master) {
      say(absl::StrCat("job ", id_, ", ", count(options_.machines, "machine", "machines"), " x ",
                       count(options_.procs, "process", "processes"), ", master ",
                       HostPort{master.masterAddr, master.masterPort}.text(), ", logs in ", logs_.path()));
    };
    StartReport start(options_.machines, options_.procs);
    supervision.onSaid = [this, &start](const JobProcess& process, const std::string& message) {
      const auto stage = runtime::decodeStageNews(message);
      if (!stage || stage->machine != process.machine || stage->proc != process.proc) return;
      if (const auto line = start.take(*stage)) say(*line);
    };
    FARHOP_ASSIGN_OR_RETURN(std::vector<JobMachine> machines, connect(attempt));
    Supervisor supervisor(machines, supervision, terminals_, signals_);
    FARHOP_ASSIGN_OR_RETURN(const int exitCode, supervisor.run());
    again_ = supervisor.failedByItself();
    if (exitCode == 0 && !supervisor.outputLost()) logs_.removeTemporary();
    return exitCode;
  }

  const RunOptions& options_;
  const Machines& how_;
  const std::string id_;
  FileDescriptor signals_;
  LogDirectory logs_;
  std::optional<rlimit> openFiles_;
  Terminals terminals_;
  bool again_ = false;  // the attempt ended by a trainer's failure
};

}  // namespace

Machines machinesOf(const RunOptions& options, const std::string& jobId) {
  if (options.hosts.empty()) return localMachines(options, jobId);
  return options.slurm ? slurmMachines(options, jobId) : sshMachines(options, jobId);
}

AgentOrders ordersOf(const RunOptions& options, const Machines& machines) {
  AgentOrders orders;
  orders.jobId = machines.jobId;
  orders.machines = static_cast<uint32_t>(options.machines);
  orders.procs = static_cast<uint32_t>(options.procs);
  orders.start = runtime::formatStartMode(options.start);
  orders.bind = runtime::formatBindingChoice(options.binding);
  // What a process is sure to need; of its batches nothing is known here.
  const MemoryDemand demand{{options.machines, 0, options.procs}, 0, 0, 0};
  orders.memoryEstimateBytes = options.memoryEstimateBytes.value_or(estimateMemory(demand).process);
  orders.graph = options.graph;
  orders.workingDirectory = options.workingDirectory;
  orders.masterAddr = machines.masterAddr;
  orders.interface = options.interface;
  orders.masterPort = options.masterPort.value_or(0);
  orders.environment = options.environment;
  orders.command = options.command;
  return orders;
}

absl::StatusOr<int> runJob(const RunOptions& options, const Machines& machines) {
  return JobRun(options, machines).run();
}

}  // namespace farhop::launcher
