#include "launcher/phases.h"

#include <CLI/CLI.hpp>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "launcher/local_backend.h"
#include "launcher/partition_stamp.h"
#include "launcher/ssh_command.h"
#include "launcher/supervisor.h"

namespace farhop::launcher {
namespace {

constexpr char kSelf[] = "/proc/self/exe";
constexpr int kTickMs = 50;
// After a signal that asked a phase to end.
constexpr std::chrono::milliseconds kPhaseGrace{10'000};

std::vector<std::string> partitionCommand(const PhasePlan& plan) {
  std::vector<std::string> words{ownProgram(), "partition", plan.flags.raw, "--out", plan.graph, "--parts",
                                 std::to_string(plan.flags.parts > 0 ? plan.flags.parts : plan.machines)};
  for (const std::string& option : plan.flags.partitionOptions) words.push_back("--" + option);
  words.push_back("--force");  // what is there was made from something else, or not to its end
  return words;
}

std::vector<std::string> placeCommand(const char* name, const PhasePlan& plan) {
  std::vector<std::string> words{ownProgram(), name, plan.graph, "--machines", std::to_string(plan.machines)};
  const HostFlags& hosts = plan.hosts;
  if (hosts.hostFile.empty()) return words;
  words.insert(words.end(), {"--hosts", hosts.hostFile});
  if (hosts.port != 0) words.insert(words.end(), {"--ssh-port", std::to_string(hosts.port)});
  for (const auto& [flag, value] : {std::pair("--ssh-user", hosts.user), std::pair("--ssh-identity", hosts.identity),
                                    std::pair("--farhop", hosts.farhop)}) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  }
  for (const std::string& option : hosts.options) words.insert(words.end(), {"--ssh-option", option});
  return words;
}

// Runs a command on our own terminal; signals that come to us go to it too. Its exit code, as a shell has it.
absl::StatusOr<int> runInForeground(const std::vector<std::string>& words, FileDescriptor& signals) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return errnoStatus("fork", errno);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);  // a Ctrl-C comes from us, once
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execv(kSelf, argv.data());
    ::_exit(127);
  }
  int interrupted = 0;
  Deadline killAt = Deadline::after(std::chrono::hours(24 * 365));
  for (;;) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      if (interrupted != 0) return 128 + interrupted;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (killAt.expired()) ::kill(-child, SIGKILL);
    pollfd entry{signals.get(), POLLIN, 0};
    ::poll(&entry, 1, kTickMs);
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof(info)) == sizeof(info)) {
      const bool again = std::exchange(interrupted, static_cast<int>(info.ssi_signo)) != 0;
      ::kill(-child, again ? SIGKILL : interrupted);
      killAt = Deadline::after(kPhaseGrace);
    }
  }
}

}  // namespace

void addPhaseFlags(CLI::App& run, PhaseFlags& flags) {
  run.add_option("--partition-first", flags.raw,
                 "Partition this data set (a directory with metadata.yaml, or that file) into --graph first, unless that was "
                 "made from it already")
      ->type_name("RAW");
  run.add_option("--parts", flags.parts, "Partitions for --partition-first; without it one per machine")
      ->check(wholeNumber(1, 65'536))
      ->type_name("K");
  run.add_option("--partition-option", flags.partitionOptions,
                 "Further flag of farhop partition, without its hyphens: method=random, add-reverse; may be repeated")
      ->type_name("NAME[=VALUE]");
  run.add_flag("--dispatch", flags.dispatch, "Copy every machine's partitions to it first, where they are not there yet");
  run.add_flag("--check", flags.check, "Check the partitions' checksums on every machine first");
}

absl::StatusOr<std::vector<std::vector<std::string>>> phaseCommands(const PhasePlan& plan) {
  const PhaseFlags& flags = plan.flags;
  std::vector<std::vector<std::string>> commands;
  if ((!flags.raw.empty() || flags.dispatch || flags.check) && plan.graph.empty()) {
    return absl::InvalidArgumentError("--partition-first, --dispatch and --check need --graph: where the store is");
  }
  if (flags.raw.empty() && (flags.parts > 0 || !flags.partitionOptions.empty())) {
    return absl::InvalidArgumentError("--parts and --partition-option are for --partition-first");
  }
  if (!flags.raw.empty()) commands.push_back(partitionCommand(plan));
  if (flags.dispatch && plan.hosts.hostFile.empty()) {
    return absl::InvalidArgumentError("--dispatch copies to the machines of --hosts; on this one there is nothing to copy");
  }
  if (flags.dispatch) commands.push_back(placeCommand("dispatch", plan));
  if (flags.check) commands.push_back(placeCommand("check", plan));
  return commands;
}

absl::StatusOr<int> runPhases(const PhasePlan& plan) {
  FARHOP_ASSIGN_OR_RETURN(const auto commands, phaseCommands(plan));
  if (commands.empty()) return 0;
  FARHOP_ASSIGN_OR_RETURN(FileDescriptor signals, openSignals());
  for (const std::vector<std::string>& words : commands) {
    const bool partitioning = words[1] == "partition";
    PartitionStamp stamp;
    if (partitioning) {
      FARHOP_ASSIGN_OR_RETURN(stamp, makeStamp(plan.flags.raw, {words.begin() + 2, words.end()}, plan.graph));
      if (isStamped(plan.graph, stamp)) {
        std::fprintf(stderr, "farhop: partition: %s was made from %s already\n", plan.graph.c_str(), plan.flags.raw.c_str());
        continue;
      }
    }
    std::fprintf(stderr, "farhop: %s: %s\n", words[1].c_str(), shellLine(words).c_str());
    FARHOP_ASSIGN_OR_RETURN(const int exitCode, runInForeground(words, signals));
    if (exitCode != 0) {
      std::fprintf(stderr, "farhop: %s failed; nothing was started\n", words[1].c_str());
      return exitCode;
    }
    if (partitioning) FARHOP_RETURN_IF_ERROR(putStamp(plan.graph, stamp));
  }
  return 0;
}

}  // namespace farhop::launcher
