// The farhop command. Under the name hoprun it is `farhop run`.
#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "launcher/agent_command.h"
#include "launcher/clean_command.h"
#include "launcher/dispatch_command.h"
#include "launcher/doctor_command.h"
#include "launcher/ps_command.h"
#include "launcher/receive_command.h"
#include "launcher/run_command.h"
#ifdef FARHOP_WITH_PARTITION_COMMANDS
#include "launcher/export_command.h"
#include "launcher/import_command.h"
#include "launcher/inspect_command.h"
#include "launcher/partition_command.h"
#endif

namespace {

constexpr char kFooter[] = R"(Examples:
  farhop run --graph STORE --machines 2 --procs 2 -- ./farhop-sage --epochs 10
  farhop run --help)";

// The command line, with what belongs to the trainer cut off.
struct CommandLine {
  std::vector<std::string> words;
  std::optional<std::vector<std::string>> trainer;  // after the first `--` of `run`
};

CommandLine split(int argc, char** argv) {
  CommandLine line;
  line.words.assign(argv + 1, argv + argc);
  const bool isHoprun = argc > 0 && std::filesystem::path(argv[0]).filename() == "hoprun";
  const bool asksVersion = !line.words.empty() && line.words[0] == "--version";
  if (isHoprun && !asksVersion) line.words.insert(line.words.begin(), "run");
  if (line.words.empty() || line.words[0] != "run") return line;
  const auto separator = std::find(line.words.begin(), line.words.end(), "--");
  if (separator != line.words.end()) {
    line.trainer.emplace(separator + 1, line.words.end());
    line.words.erase(separator, line.words.end());
  }
  // torchrun writes its flags with hyphens or underscores.
  for (std::string& word : line.words) {
    if (word.rfind("--", 0) != 0) continue;
    const auto end = word.begin() + static_cast<ptrdiff_t>(std::min(word.size(), word.find('=')));
    std::replace(word.begin(), end, '_', '-');
  }
  return line;
}

// Descriptors 0 to 2 exist from here on, so that no file or pipe of ours gets one of these numbers.
void openStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

int runFarhop(int argc, char** argv) {
  CommandLine line = split(argc, argv);
  const bool withoutTrainer = !line.trainer;
  CLI::App app("Farhop: distributed graph sampling for GNN training", "farhop");
  app.set_version_flag("--version", "farhop " FARHOP_VERSION);
  app.require_subcommand(0, 1);  // none is our own error, below, so that an unknown flag is named first
  app.footer(kFooter);
  int exitCode = 0;
  farhop::launcher::addRunCommand(app, std::move(line.trainer), FARHOP_VERSION, &exitCode);
  farhop::launcher::addDispatchCommand(app, &exitCode);
  farhop::launcher::addCheckCommand(app, &exitCode);
  farhop::launcher::addAgentCommand(app, FARHOP_VERSION, &exitCode);
  farhop::launcher::addReceiveCommand(app, &exitCode);
  farhop::launcher::addPsCommand(app, &exitCode);
  farhop::launcher::addCleanCommand(app, &exitCode);
  farhop::launcher::addDoctorCommand(app, FARHOP_VERSION, &exitCode);
#ifdef FARHOP_WITH_PARTITION_COMMANDS
  farhop::launcher::addImportCommand(app, &exitCode);
  farhop::launcher::addPartitionCommand(app, &exitCode);
  farhop::launcher::addInspectCommand(app, &exitCode);
  farhop::launcher::addExportCommand(app, &exitCode);
#endif
  const std::string command = line.words.empty() ? "" : line.words[0];
  std::reverse(line.words.begin(), line.words.end());  // CLI11 takes a vector from its end
  try {
    app.parse(line.words);
    if (app.get_subcommands().empty()) throw CLI::RequiredError::Subcommand(1);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "farhop: %s\n", error.what());
    if (command == "run" && withoutTrainer) {
      std::fprintf(
          stderr,
          "The trainer and its arguments follow `--`: farhop run [OPTIONS] -- TRAINER [ARGUMENTS...]\n");
    }
    const std::vector<CLI::App*> parsed = app.get_subcommands();
    const bool known = !parsed.empty() && parsed.front()->get_name() == command;
    std::fprintf(stderr, "Run `farhop %s--help` for help.\n", known ? (command + " ").c_str() : "");
    return farhop::launcher::kUsageExitCode;
  }
  return exitCode;
}

}  // namespace

int main(int argc, char** argv) {
  openStandardStreams();
  try {
    return runFarhop(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or a broken option definition
    std::fprintf(stderr, "farhop: %s\n", error.what());
    return farhop::launcher::kFailedExitCode;
  }
}
