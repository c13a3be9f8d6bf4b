#include "benchmarks/startup_bench.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "benchmarks/report.h"
#include "benchmarks/watched_start.h"

namespace farhop::benchmarks {
namespace {

// What is to hold, of 16 processes on two cores.
constexpr double kReadyLimitSeconds = 15;
constexpr double kPeakLimit = 1.05;

struct StartupBenchOptions {
  WatchedStartOptions start;
  double sleepSeconds = 2;
  int repetitions = 1;
  bool small = false;
  std::string json;
};

// Beside this program.
std::string programBeside(const char* name) {
  std::error_code error;
  return (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / name).string();
}

struct Case {
  std::string name, start;
  bool hasLimits;
};

absl::Status addCase(const Case& one, const StartupBenchOptions& options, Report* report) {
  Series seconds, peak, settled, ratio, descriptors, connections;
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    WatchedStartOptions start = options.start;
    start.start = one.start;
    const auto watched = watchStart(start);
    if (!watched.ok()) return annotate(watched.status(), one.name);
    seconds.add(watched->readySeconds);
    peak.add(static_cast<double>(watched->peakBytes));
    settled.add(static_cast<double>(watched->settledBytes));
    ratio.add(static_cast<double>(watched->peakBytes) / static_cast<double>(watched->settledBytes));
    descriptors.add(watched->descriptors);
    connections.add(watched->connections);
  }
  const int processes = options.start.machines * options.start.procs;
  const auto limit = [&](double value) { return one.hasLimits ? std::optional<double>(value) : std::nullopt; };
  report->add({one.name, seconds, "s until ready", processes, limit(kReadyLimitSeconds), std::nullopt});
  report->add({one.name, ratio, "x settled memory", processes, limit(kPeakLimit), std::nullopt});
  report->add({one.name, peak, "bytes at peak", processes, std::nullopt, std::nullopt});
  report->add({one.name, settled, "bytes settled", processes, std::nullopt, std::nullopt});
  report->add({one.name, descriptors, "descriptors/process", processes, std::nullopt, std::nullopt});
  report->add({one.name, connections, "connections/process", processes, std::nullopt, std::nullopt});
  return absl::OkStatus();
}

absl::Status runStartup(StartupBenchOptions options) {
  if (options.small) {
    options.start.procs = std::min(options.start.procs, 2);
    options.start.settled = std::chrono::milliseconds(200);
    options.sleepSeconds = 0.2;
  }
  if (!pathExists(options.start.trainer)) {
    return absl::NotFoundError(absl::StrCat("no ", options.start.trainer, ": it needs libtorch (FARHOP_WITH_TORCH); build it, or "
                                            "name another with --trainer"));
  }
  if (!options.start.graph.empty()) options.start.graph = std::filesystem::absolute(options.start.graph).string();
  Report report("startup", std::nullopt, 0, options.small);
  const std::vector<Case> cases = {{"gate", "gate", true},
                                   {absl::StrFormat("sleep:%g", options.sleepSeconds), absl::StrFormat("sleep:%g", options.sleepSeconds), false},
                                   {"at once", "sleep:0", false}};
  for (const Case& one : cases) FARHOP_RETURN_IF_ERROR(addCase(one, options, &report));
  return publish(report, options.json);
}

}  // namespace

void addStartupBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<StartupBenchOptions>();
  WatchedStartOptions* const start = &options->start;
  start->farhop = programBeside("farhop");
  start->trainer = programBeside("farhop-startup-trainer");
  CLI::App* const command = app.add_subcommand("startup", "The start of a job of many processes: gate, pauses, all at once");
  command->add_option("--machines", start->machines, "Machines, which this one plays")->capture_default_str()->check(CLI::Range(1, 64));
  command->add_option("--procs", start->procs, "Processes per machine")->capture_default_str()->check(CLI::Range(1, 256));
  command->add_option("--graph", start->graph, "Store that each process opens; without it none");
  command->add_option("--sleep", options->sleepSeconds, "Seconds of the pauses")->capture_default_str()->check(CLI::NonNegativeNumber);
  command->add_option("--repetitions", options->repetitions, "Medians are over so many")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--farhop", start->farhop, "The farhop program")->capture_default_str();
  command->add_option("--trainer", start->trainer, "The trainer's program")->capture_default_str();
  command->add_flag("--small", options->small, "A size for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runStartup(*options); });
}

}  // namespace farhop::benchmarks
