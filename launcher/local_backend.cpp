#include "launcher/local_backend.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/job.h"
#include "launcher/process.h"
#include "launcher/supervisor.h"
#include "launcher/terminal.h"

namespace farhop::launcher {
namespace {

// All that the processes of a job share.
struct LocalJob {
  std::string id;
  std::string token;
  PortReservation ports;
  LogDirectory logs;
  std::optional<rlimit> openFiles;
};

absl::StatusOr<LocalJob> prepare(const RunOptions& options) {
  LocalJob job;
  FARHOP_ASSIGN_OR_RETURN(job.id, makeJobId());
  FARHOP_ASSIGN_OR_RETURN(job.token, makeToken());
  FARHOP_ASSIGN_OR_RETURN(job.ports, reservePorts(kLocalAddress, options.procs, options.masterPort));
  FARHOP_ASSIGN_OR_RETURN(job.logs, LogDirectory::create(options.logDirectory, job.id));
  job.openFiles = raiseOpenFiles();
  return job;
}

// On which a trainer hears of the others' ends, and of the launcher's.
struct SocketPair {
  FileDescriptor ours, theirs;
};

absl::StatusOr<SocketPair> makeSocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) return errnoStatus("socketpair", errno);
  return SocketPair{FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

absl::StatusOr<JobProcess> startOne(const RunOptions& options, const std::string& trainer, LocalJob& job,
                                    const Terminals& terminals, int machine, int proc) {
  FARHOP_ASSIGN_OR_RETURN(OutputPump output, OutputPump::open(absl::StrCat("m", machine, " p", proc),
                                                              machine * options.procs + proc,
                                                              job.logs.fileFor(machine, proc), terminals));
  runtime::LaunchContract contract = contractOf(options, machine, proc);
  contract.jobId = job.id;
  contract.token = job.token;
  contract.masterPort = job.ports.base;
  FileDescriptor& listener = job.ports.listeners[static_cast<size_t>(proc)];
  // The processes of a single machine meet at no store.
  if (machine == 0 && options.machines > 1) contract.masterFd = listener.get();
  // A process that is alone hears there of the launcher's end.
  FARHOP_ASSIGN_OR_RETURN(SocketPair news, makeSocketPair());
  contract.launcherFd = news.theirs.get();
  SpawnRequest request;
  request.program = trainer;
  request.arguments = options.command;
  request.environment = trainerEnvironment(options, contract);
  request.workingDirectory = options.workingDirectory;
  for (const int fd : {contract.masterFd, contract.launcherFd}) {
    if (fd >= 0) request.inheritedFds.push_back(fd);
  }
  request.openFiles = job.openFiles;
  FARHOP_ASSIGN_OR_RETURN(Process process, Process::spawn(request));
  // The trainer's own from here on: when it ends, connecting to its port is refused rather than left waiting.
  if (machine == 0) listener.reset();
  output.attach(process.takeOut(), process.takeErr());
  return JobProcess{machine, proc, kLocalAddress, std::move(process), std::move(output), std::move(news.ours),
                    std::nullopt};
}

absl::StatusOr<std::vector<JobProcess>> startAll(const RunOptions& options, const std::string& trainer,
                                                 LocalJob& job, const Terminals& terminals) {
  std::vector<JobProcess> processes;
  for (int machine = 0; machine < options.machines; ++machine) {
    for (int proc = 0; proc < options.procs; ++proc) {
      auto started = startOne(options, trainer, job, terminals, machine, proc);
      if (!started.ok()) {
        return annotate(started.status(), absl::StrCat("starting machine ", machine, " process ", proc));
      }
      processes.push_back(*std::move(started));
    }
  }
  return processes;
}

std::string count(int number, absl::string_view one, absl::string_view many) {
  return absl::StrCat(number, " ", number == 1 ? one : many);
}

}  // namespace

std::vector<std::string> trainerEnvironment(const RunOptions& options,
                                            const runtime::LaunchContract& contract) {
  std::map<std::string, std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t equals = text.find('=', 1);
    if (equals == absl::string_view::npos) continue;
    const std::string name(text.substr(0, equals));
    if (!isContractVariable(name)) variables.emplace(name, std::string(text.substr(equals + 1)));
  }
  for (const auto& [name, value] : options.environment) variables[name] = value;
  for (const auto& [name, value] : runtime::launchEnvironment(contract)) variables[name] = value;
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(absl::StrCat(name, "=", value));
  return result;
}

runtime::LaunchContract contractOf(const RunOptions& options, int machine, int proc) {
  runtime::LaunchContract contract;
  contract.numMachines = options.machines;
  contract.machine = machine;
  contract.procsPerMachine = options.procs;
  contract.proc = proc;
  contract.masterAddr = kLocalAddress;
  contract.start = options.start;
  contract.graph = options.graph;
  contract.source = runtime::LaunchContract::Source::kFarhop;
  return contract;
}

absl::StatusOr<int> runLocally(const RunOptions& options, const std::string& trainer) {
  // A reader of our output that goes away shows as EPIPE.
  ::signal(SIGPIPE, SIG_IGN);
  FARHOP_ASSIGN_OR_RETURN(FileDescriptor signals, openSignals());
  FARHOP_ASSIGN_OR_RETURN(LocalJob job, prepare(options));
  becomeSubreaper();
  Terminals terminals;
  terminals.err->append(absl::StrCat("farhop: job ", job.id, ", ",
                                     count(options.machines, "machine", "machines"), " x ",
                                     count(options.procs, "process", "processes"), ", master ", kLocalAddress,
                                     ":", job.ports.base, ", logs in ", job.logs.path(), "\n"));
  terminals.err->writeSome();
  auto processes = startAll(options, trainer, job, terminals);
  if (!processes.ok()) {
    job.logs.removeTemporary();
    return processes.status();
  }
  Supervisor supervisor(*processes, {options.grace, options.timeout}, terminals, signals);
  const int exitCode = supervisor.run();
  if (exitCode == 0 && !supervisor.outputLost()) job.logs.removeTemporary();
  return exitCode;
}

}  // namespace farhop::launcher
