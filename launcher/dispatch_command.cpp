#include "launcher/dispatch_command.h"

#include <CLI/CLI.hpp>
#include <signal.h>

#include <cstdio>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "launcher/host_commands.h"
#include "launcher/host_flags.h"
#include "launcher/receive_command.h"
#include "launcher/run_command.h"
#include "launcher/store_copy.h"
#include "launcher/supervisor.h"
#include "launcher/text_table.h"
#include "partition/layout.h"

namespace farhop::launcher {
namespace {

constexpr char kRsyncProgram[] = "/usr/bin/rsync";
constexpr size_t kShownPaths = 3;

struct DispatchArguments {
  std::string store, to;
  HostFlags hosts;
  int machines = 0;  // 0: as many as there are hosts
};

// rsync cuts the text of -e at spaces; between single quotes two of them are one.
std::string rsyncQuote(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

// Of one machine, from the first question to the last.
struct Copy {
  std::vector<std::string> wrong;
  absl::Status status;
  bool complete = false, told = false;
};

class Dispatch {
 public:
  explicit Dispatch(const DispatchArguments& arguments) : arguments_(arguments) {}

  absl::Status prepare() {
    FARHOP_ASSIGN_OR_RETURN(store_, absolutePath(arguments_.store));
    to_ = store_;
    if (!arguments_.to.empty()) {
      FARHOP_ASSIGN_OR_RETURN(to_, absolutePath(arguments_.to));
    }
    auto text = readFile(absl::StrCat(store_, "/", partition::kManifestFile));
    if (!text.ok()) {
      return absl::NotFoundError(absl::StrCat(store_, " is no graph store: graph.json cannot be read (",
                                              text.status().message(), "); `farhop partition` makes one"));
    }
    text_ = *std::move(text);
    FARHOP_ASSIGN_OR_RETURN(manifest_, partition::parseManifest(text_));
    if (!arguments_.hosts.hostFile.empty()) {
      FARHOP_ASSIGN_OR_RETURN(hosts_, readHostFile(arguments_.hosts.hostFile));
      FARHOP_ASSIGN_OR_RETURN(ssh_, sshOptionsOf(arguments_.hosts));
    }
    machines_ = arguments_.machines > 0 ? arguments_.machines : std::max<int>(1, static_cast<int>(hosts_.size()));
    if (!hosts_.empty() && machines_ > static_cast<int>(hosts_.size())) {
      return absl::InvalidArgumentError(absl::StrCat("--machines ", machines_, ": the host file names ", hosts_.size(), " hosts"));
    }
    if (!hosts_.empty()) hosts_.resize(static_cast<size_t>(machines_));
    if (machines_ > manifest_.numPartitions()) {
      return absl::InvalidArgumentError(absl::StrCat(store_, " has ", manifest_.numPartitions(), " partitions, too few for ",
                                                     machines_, " machines; partition it again with --parts ", machines_));
    }
    copies_.resize(static_cast<size_t>(machines_));
    return absl::OkStatus();
  }

  bool local() const { return hosts_.empty(); }
  absl::Status checkLocally() {
    for (int m = 0; m < machines_; ++m) {
      FARHOP_ASSIGN_OR_RETURN(const CopyState state,
                              compareCopy(to_, manifest_, text_, filesOfMachine(manifest_, m, machines_)));
      copies_[static_cast<size_t>(m)].wrong = state.wrong;
      copies_[static_cast<size_t>(m)].complete = state.complete();
    }
    return absl::OkStatus();
  }

  // Asks every machine what it lacks. Without `check` they make ready for it.
  absl::Status ask(bool check, FileDescriptor& signals) {
    std::vector<HostCommand> commands;
    const std::vector<size_t> asked = open();
    for (const size_t m : asked) {
      std::vector<std::string> words{farhopOf(arguments_.hosts), "receive", to_, "--machine", std::to_string(m), "--machines",
                                     std::to_string(machines_)};
      if (check) words.push_back("--check");
      commands.push_back({sshCommand(ssh_, hosts_[m], words), &text_});
    }
    HostCommandsOptions options;
    options.signals = &signals;
    FARHOP_ASSIGN_OR_RETURN(const auto answers, runOnHosts(commands, options));
    for (size_t i = 0; i < asked.size(); ++i) takeAnswer(copies_[asked[i]], answers[i]);
    return absl::OkStatus();
  }

  absl::Status send(FileDescriptor& signals) {
    const std::vector<size_t> open = this->open();
    std::vector<std::string> lists(open.size());
    std::vector<HostCommand> commands;
    for (size_t i = 0; i < open.size(); ++i) {
      const Copy& copy = copies_[open[i]];
      uint64_t bytes = 0;
      for (const std::string& path : copy.wrong) {
        absl::StrAppend(&lists[i], path, "\n");
        bytes += manifest_.files.at(path).bytes;
      }
      say(absl::StrCat(name(open[i]), ": ", copy.wrong.size(), " files, ", formatBytes(bytes), ", to ", to_));
      commands.push_back({rsyncCommand(hosts_[open[i]]), &lists[i]});
    }
    HostCommandsOptions options;
    options.signals = &signals;
    FARHOP_ASSIGN_OR_RETURN(const auto answers, runOnHosts(commands, options));
    for (size_t i = 0; i < open.size(); ++i) {
      Copy& copy = copies_[open[i]];
      if (!answers[i].ok()) copy.status = answers[i].status();
      else if (answers[i]->end.failed()) {
        copy.status = absl::UnavailableError(
            absl::StrCat("rsync ended with ", answers[i]->end.text(), ": ", answers[i]->errors));
      }
    }
    return absl::OkStatus();
  }

  // A line for every machine that has become complete since the last call.
  void sayCompleted(absl::string_view what) {
    for (size_t m = 0; m < copies_.size(); ++m) {
      if (!copies_[m].complete || copies_[m].told) continue;
      say(absl::StrCat(name(m), ": ", what));
      copies_[m].told = true;
    }
  }
  // A line for every other one, and an error when there are any.
  absl::Status sayFailed() const {
    int failed = 0;
    for (size_t m = 0; m < copies_.size(); ++m) {
      if (copies_[m].complete) continue;
      ++failed;
      say(absl::StrCat(name(m), ": ", copies_[m].status.ok() ? missing(copies_[m]) : std::string(copies_[m].status.message())));
    }
    if (failed == 0) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(failed, " of ", machines_, " machines do not have their partitions"));
  }

  bool anyOpen() const { return !open().empty(); }

 private:
  static void say(const std::string& line) { std::fprintf(stderr, "farhop: %s\n", line.c_str()); }

  std::string name(size_t machine) const {
    return hosts_.empty() ? absl::StrCat("machine ", machine) : absl::StrCat("machine ", machine, " (", hosts_[machine].label, ")");
  }

  static std::string missing(const Copy& copy) {
    if (copy.wrong.empty()) return "graph.json is missing or another store's";
    const auto end = copy.wrong.begin() + static_cast<ptrdiff_t>(std::min(kShownPaths, copy.wrong.size()));
    const std::vector<std::string> shown(copy.wrong.begin(), end);
    return absl::StrCat(copy.wrong.size(), " files are missing or differ: ", absl::StrJoin(shown, ", "),
                        copy.wrong.size() > kShownPaths ? ", ..." : "");
  }

  // Machines that are neither complete nor failed.
  std::vector<size_t> open() const {
    std::vector<size_t> result;
    for (size_t m = 0; m < copies_.size(); ++m) {
      if (!copies_[m].complete && copies_[m].status.ok()) result.push_back(m);
    }
    return result;
  }

  void takeAnswer(Copy& copy, const absl::StatusOr<HostAnswer>& answer) {
    if (!answer.ok()) {
      copy.status = answer.status();
      return;
    }
    if (answer->end.failed()) {
      const bool ssh = answer->end.code == 255 || answer->end.code == 126 || answer->end.code == 127;
      copy.status = ssh ? explainSshEnd(answer->end, answer->errors, true) : absl::UnavailableError(answer->errors);
      return;
    }
    copy.wrong.clear();
    // What a login shell prints comes before; nothing but known paths counts.
    const std::vector<std::string> lines = absl::StrSplit(answer->out, '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      if (manifest_.files.count(line) > 0) copy.wrong.push_back(line);
    }
    const std::string last = lines.empty() ? "" : lines.back();
    copy.complete = last == kReceiveComplete;
    if (!copy.complete && last != kReceiveIncomplete) {
      copy.status = absl::UnavailableError("its farhop gave no answer; is it of the same version?");
    }
  }

  std::vector<std::string> rsyncCommand(const Host& host) const {
    std::string shell;
    for (const std::string& word : sshWords(ssh_, host)) absl::StrAppend(&shell, shell.empty() ? "" : " ", rsyncQuote(word));
    const bool v6 = host.name.find(':') != std::string::npos;
    // Only what differs is listed, so times say nothing; what was cut off goes on where it stopped.
    return {kRsyncProgram, "--protect-args", "--times", "--perms", "--ignore-times", "--partial-dir=.farhop-partial",
            "--timeout=60", "--files-from=-", "-e", shell, "--", store_ + "/",
            absl::StrCat(v6 ? "[" : "", host.name, v6 ? "]" : "", ":", to_, "/")};
  }

  const DispatchArguments& arguments_;
  std::string store_, to_, text_;
  partition::Manifest manifest_;
  std::vector<Host> hosts_;
  SshOptions ssh_;
  int machines_ = 1;
  std::vector<Copy> copies_;
};

absl::Status dispatch(const DispatchArguments& arguments) {
  Dispatch run(arguments);
  FARHOP_RETURN_IF_ERROR(run.prepare());
  ::signal(SIGPIPE, SIG_IGN);
  FARHOP_ASSIGN_OR_RETURN(FileDescriptor signals, openSignals());
  FARHOP_RETURN_IF_ERROR(run.ask(false, signals));
  run.sayCompleted("has its partitions already");
  if (run.anyOpen()) {
    FARHOP_RETURN_IF_ERROR(run.send(signals));
    // Looks at all again: what came is what was meant.
    FARHOP_RETURN_IF_ERROR(run.ask(false, signals));
  }
  run.sayCompleted("has its partitions");
  return run.sayFailed();
}

absl::Status check(const DispatchArguments& arguments) {
  Dispatch run(arguments);
  FARHOP_RETURN_IF_ERROR(run.prepare());
  if (run.local()) {
    FARHOP_RETURN_IF_ERROR(run.checkLocally());
    run.sayCompleted("has its partitions");
    return run.sayFailed();
  }
  ::signal(SIGPIPE, SIG_IGN);
  FARHOP_ASSIGN_OR_RETURN(FileDescriptor signals, openSignals());
  FARHOP_RETURN_IF_ERROR(run.ask(true, signals));
  run.sayCompleted("has its partitions");
  return run.sayFailed();
}

void finish(const char* command, const absl::Status& status, int* exitCode) {
  *exitCode = status.ok() ? 0 : absl::IsInvalidArgument(status) ? kUsageExitCode : kFailedExitCode;
  if (!status.ok()) std::fprintf(stderr, "farhop %s: %s\n", command, std::string(status.message()).c_str());
}

void addArguments(CLI::App* command, DispatchArguments* arguments) {
  command->add_option("STORE", arguments->store, "Graph store on this machine")->required();
  command->add_option("--to", arguments->to, "Its place on the hosts; without it the path that it has here")->type_name("DIR");
  command->add_option("--machines,--nnodes", arguments->machines, "Machines of the job: the first M of the hosts, or all")
      ->check(wholeNumber(1, kMaxHosts))
      ->type_name("M");
  addHostFlags(*command, arguments->hosts);
}

}  // namespace

void addDispatchCommand(CLI::App& app, int* exitCode) {
  auto arguments = std::make_shared<DispatchArguments>();
  CLI::App* command = app.add_subcommand("dispatch", "Copy every machine's partitions of a store to it, by rsync over ssh");
  command->footer(
      "Only files that are missing there, or whose checksums differ, are copied; a machine that has them all, as on a shared\n"
      "file system, is left alone. Broken off and called again, it goes on where it was.\n\n"
      "Example:\n  farhop dispatch store --hosts hosts.txt --to /data/store");
  addArguments(command, arguments.get());
  command->get_option("--hosts")->required();
  command->callback([arguments, exitCode] { finish("dispatch", dispatch(*arguments), exitCode); });
}

void addCheckCommand(CLI::App& app, int* exitCode) {
  auto arguments = std::make_shared<DispatchArguments>();
  CLI::App* command =
      app.add_subcommand("check", "Check by checksums that every machine has its partitions of a store");
  command->footer("Without --hosts the store on this machine is checked.\n\nExample:\n  farhop check store --hosts hosts.txt");
  addArguments(command, arguments.get());
  command->callback([arguments, exitCode] { finish("check", check(*arguments), exitCode); });
}

}  // namespace farhop::launcher
