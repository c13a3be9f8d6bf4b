#include "launcher/clean_command.h"

#include <CLI/CLI.hpp>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/strings/str_split.h"

#include "launcher/farhop_on_hosts.h"
#include "launcher/job_processes.h"
#include "launcher/run_command.h"
#include "launcher/run_options.h"

namespace farhop::launcher {
namespace {

constexpr std::chrono::milliseconds kKillTime{5'000};
constexpr std::chrono::milliseconds kLookAgain{50};
constexpr std::chrono::milliseconds kCleanAnswerTime{30'000};
// Processes may start others while they are ended; a job that goes on doing so is not waited for.
constexpr int kRounds = 20;

std::string describe(const FoundProcess& process) {
  std::string text = absl::StrCat("process ", process.pid, " (", process.command, ", job ", process.jobId);
  if (process.machine >= 0 && process.proc >= 0) absl::StrAppend(&text, ", m", process.machine, " p", process.proc);
  return text + ")";
}

void waitForEnd(const std::vector<HeldProcess>& held, Deadline deadline) {
  for (const HeldProcess& process : held) {
    pollfd entry{process.fd(), POLLIN, 0};
    (void)::poll(&entry, 1, deadline.remainingMs());
  }
}

std::vector<HeldProcess> holdAll(const std::string& jobId) {
  std::vector<HeldProcess> held;
  for (const FoundProcess& process : findJobProcesses(jobId)) {
    if (auto one = HeldProcess::hold(process); one.ok()) held.push_back(*std::move(one));
  }
  return held;
}

// Signals all that there are now and waits for their end. Returns how many there were.
size_t endOnce(const CleanOptions& options, int signal, Deadline deadline, CleanResult* result,
               std::set<std::string>* files) {
  const std::vector<HeldProcess> held = holdAll(options.jobId);
  for (const HeldProcess& process : held) {
    files->merge(sharedMemoryFilesOf(process.process().pid));
    if (absl::Status sent = process.signal(signal); !sent.ok()) {
      result->failures.push_back(std::string(sent.message()));
    }
  }
  waitForEnd(held, deadline);
  for (const HeldProcess& process : held) {
    if (process.ended()) result->ended.push_back(describe(process.process()));
  }
  return held.size();
}

void endProcesses(const CleanOptions& options, CleanResult* result, std::set<std::string>* files) {
  const Deadline grace = Deadline::after(options.grace);
  // A launcher or a script may start something while its job is being ended.
  while (!grace.expired() && endOnce(options, SIGTERM, grace, result, files) > 0) {
  }
  const Deadline last = Deadline::after(kKillTime);
  for (int round = 0; round < kRounds && !last.expired(); ++round) {
    if (endOnce(options, SIGKILL, last, result, files) == 0) return;
    (void)::poll(nullptr, 0, static_cast<int>(kLookAgain.count()));
  }
  for (const FoundProcess& process : findJobProcesses(options.jobId)) {
    result->failures.push_back(absl::StrCat(describe(process), " cannot be killed"));
  }
}

void removeAll(const std::set<std::string>& files, const std::vector<std::string>& directories, CleanResult* result) {
  for (const std::string& file : files) {
    if (::unlink(file.c_str()) == 0) {
      result->removed.push_back(file);
    } else if (errno != ENOENT) {
      result->failures.push_back(std::string(errnoStatus(absl::StrCat("removing ", file), errno).message()));
    }
  }
  for (const std::string& directory : directories) {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
    if (error) {
      result->failures.push_back(absl::StrCat("removing ", directory, ": ", error.message()));
    } else {
      result->removed.push_back(directory);
    }
  }
}

CleanResult lookOnly(const CleanOptions& options) {
  CleanResult result;
  std::set<std::string> files;
  for (const FoundProcess& process : findJobProcesses(options.jobId)) {
    result.ended.push_back(describe(process));
    files.merge(sharedMemoryFilesOf(process.pid));
  }
  if (options.jobId.empty()) files.merge(filesOfDeadProcesses());
  result.removed.assign(files.begin(), files.end());
  const std::vector<std::string> directories = findRunDirectories(options.jobId);
  result.removed.insert(result.removed.end(), directories.begin(), directories.end());
  return result;
}

struct CleanFlags {
  HostFlags hosts;
  CleanOptions options;
  bool all = false;
  std::string grace = "5";
};

// What each host says, behind its name.
int cleanHosts(const CleanFlags& typed) {
  std::vector<std::string> words = {"clean", "--grace", typed.grace};
  if (typed.all) words.push_back("--all");
  if (!typed.all) words.insert(words.end(), {"--job", typed.options.jobId});
  if (typed.options.dryRun) words.push_back("--dry-run");
  const auto answers = runFarhopOnHosts(typed.hosts, words, typed.options.grace + kCleanAnswerTime);
  if (!answers.ok()) {
    std::fprintf(stderr, "farhop clean: %s\n", std::string(answers.status().message()).c_str());
    return kFailedExitCode;
  }
  int exitCode = 0;
  for (const AnswerOfHost& host : *answers) {
    const bool well = host.answer.ok() && !host.answer->end.failed();
    if (!well) exitCode = kFailedExitCode;
    if (host.answer.ok()) {
      for (absl::string_view line : absl::StrSplit(host.answer->out, '\n', absl::SkipEmpty())) {
        std::printf("%s: %s\n", host.label.c_str(), std::string(line).c_str());
      }
    }
    if (well) continue;
    const std::string why = host.answer.ok() ? host.answer->errors : std::string(host.answer.status().message());
    std::fprintf(stderr, "farhop clean: %s: %s\n", host.label.c_str(), why.c_str());
  }
  return exitCode;
}

int executeClean(CleanFlags typed) {
  if (typed.all == !typed.options.jobId.empty()) {
    std::fprintf(stderr, "farhop clean: say --job ID (its first line of output has it) or --all\n");
    return kUsageExitCode;
  }
  const auto grace = parseSeconds(typed.grace, 0);
  if (!grace.ok()) {
    std::fprintf(stderr, "farhop clean: --grace %s\n", std::string(grace.status().message()).c_str());
    return kUsageExitCode;
  }
  typed.options.grace = *grace;
  if (!typed.hosts.hostFile.empty()) return cleanHosts(typed);
  const CleanResult result = cleanJob(typed.options);
  const bool dry = typed.options.dryRun;
  for (const std::string& process : result.ended) std::printf("%s %s\n", dry ? "would end" : "ended", process.c_str());
  for (const std::string& path : result.removed) std::printf("%s %s\n", dry ? "would remove" : "removed", path.c_str());
  for (const std::string& failure : result.failures) std::fprintf(stderr, "farhop clean: %s\n", failure.c_str());
  if (result.nothing()) {
    std::printf("nothing of %s is left on this machine\n",
                typed.all ? "any job" : absl::StrCat("job ", typed.options.jobId).c_str());
  }
  return result.failures.empty() ? 0 : kFailedExitCode;
}

}  // namespace

CleanResult cleanJob(const CleanOptions& options) {
  if (options.dryRun) return lookOnly(options);
  CleanResult result;
  std::set<std::string> files;
  endProcesses(options, &result, &files);
  files = unusedFiles(files);
  if (options.jobId.empty()) files.merge(filesOfDeadProcesses());
  // Whoever could not be ended may still write there.
  const bool ended = findJobProcesses(options.jobId).empty();
  removeAll(files, ended ? findRunDirectories(options.jobId) : std::vector<std::string>{}, &result);
  return result;
}

void addCleanCommand(CLI::App& app, int* exitCode) {
  auto typed = std::make_shared<CleanFlags>();
  CLI::App* clean = app.add_subcommand(
      "clean", "End what a job has left, on this machine or on those of --hosts, and remove its files.\nProcesses of this user are found by the "
               "job's id in their environment, never by a name.");
  addHostFlags(*clean, typed->hosts);
  clean->add_option("--job", typed->options.jobId, "The job's id")->type_name("ID");
  clean->add_flag("--all", typed->all, "All jobs of this user, also those that run well");
  clean->add_option("--grace", typed->grace, "Seconds between SIGTERM and SIGKILL")->type_name("SECONDS")->capture_default_str();
  clean->add_flag("--dry-run,--dry_run", typed->options.dryRun, "Only say what there is");
  clean->callback([typed, exitCode] { *exitCode = executeClean(*typed); });
}

}  // namespace farhop::launcher
