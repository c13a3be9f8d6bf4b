#include "benchmarks/loader_bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/loader_machine.h"
#include "benchmarks/machine.h"
#include "benchmarks/report.h"

namespace farhop::benchmarks {
namespace {

// Making the large graph takes a minute; nothing else does.
constexpr std::chrono::milliseconds kRoundTimeout{900'000};
constexpr int kMaxMachines = 64;

struct LoaderBenchOptions {
  LoaderOptions loader;
  std::string json;
};

constexpr size_t indexOf(LoaderWork work) { return static_cast<size_t>(work); }
constexpr const char* kWorkNames[] = {"sampling alone", "pulling alone", "sampling and pulling"};

// Turns what the processes measured into rows.
class LoaderReport {
 public:
  LoaderReport(const LoaderOptions& options, std::vector<std::vector<LoaderCase>> processes)
      : options_(options),
        processes_(std::move(processes)),
        report_("loader", options_.graph.parameters(), options_.seed, options_.small) {}

  const Report& build() {
    const LoaderCase& first = processes_[0][0];
    for (size_t at = 0; at < processes_[0].size(); ++at) addCase(at);
    for (size_t at = 0; at < processes_[0].size(); ++at) addTimes(at);
    const auto perBatch = [&](const auto& field) {
      const LoaderPass& pass = first.passes[indexOf(LoaderWork::kBoth)][0];
      return Series({static_cast<double>(field(pass)) / static_cast<double>(std::max<uint64_t>(1, pass.batches))});
    };
    report_.add({"batch", perBatch([](const LoaderPass& pass) { return pass.nodes; }), "nodes/batch"});
    return report_;
  }

 private:
  using Passes = std::vector<const LoaderPass*>;
  int numProcesses() const { return static_cast<int>(processes_.size()); }

  // One value per repetition, from the passes of all processes in it.
  template <typename Quantity>
  Series over(size_t at, LoaderWork work, const Quantity& quantity) const {
    Series series;
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      Passes passes;
      for (const auto& process : processes_) {
        passes.push_back(&process[at].passes[indexOf(work)][static_cast<size_t>(repetition)]);
      }
      series.add(quantity(passes));
    }
    return series;
  }

  template <typename Field>
  static double sum(const Passes& passes, const Field& field) {
    double total = 0;
    for (const LoaderPass* pass : passes) total += static_cast<double>(field(*pass));
    return total;
  }
  static double batches(const Passes& passes) {
    return std::max(1.0, sum(passes, [](const LoaderPass& pass) { return pass.batches; }));
  }
  // From the first start to the last end.
  static double seconds(const Passes& passes) {
    int64_t start = passes[0]->startNs, end = passes[0]->endNs;
    for (const LoaderPass* pass : passes) {
      start = std::min(start, pass->startNs);
      end = std::max(end, pass->endNs);
    }
    return static_cast<double>(end - start) * 1e-9;
  }
  Series rates(size_t at, LoaderWork work) const {
    return over(at, work, [](const Passes& passes) { return batches(passes) / seconds(passes); });
  }

  void addCase(size_t at) {
    uint64_t checksum = 0;
    for (const auto& process : processes_) checksum += process[at].checksum;
    const std::string& name = processes_[0][at].name;
    const double limit = rates(0, LoaderWork::kBoth).median();
    for (LoaderWork work : kLoaderWorks) {
      Row row{absl::StrCat(name, ", ", kWorkNames[indexOf(work)]), rates(at, work), "batches/s", numProcesses(), std::nullopt, {}};
      if (work == LoaderWork::kBoth) {
        row.checksum = checksum;
        if (at > 0) row.limit = limit;  // everything the processes' own
      }
      report_.add(std::move(row));
    }
    const auto both = absl::StrCat(name, ", ", kWorkNames[indexOf(LoaderWork::kBoth)]);
    const Series sampling = rates(at, LoaderWork::kSample), pulling = rates(at, LoaderWork::kPull), together = rates(at, LoaderWork::kBoth);
    Series gain;
    for (size_t i = 0; i < together.size(); ++i) {
      gain.add(together.values()[i] * (1 / sampling.values()[i] + 1 / pulling.values()[i]));
    }
    report_.add({both, std::move(gain), "x one after the other", numProcesses(), std::nullopt, {}});
    report_.add({both, over(at, LoaderWork::kBoth, [this](const Passes& passes) {
                   const double bytes = static_cast<double>(options_.graph.floats * sizeof(float));
                   return sum(passes, [](const LoaderPass& pass) { return pass.nodes; }) * bytes / seconds(passes) * 1e-9;
                 }), "GB/s", numProcesses(), std::nullopt, {}});
    report_.add({both, over(at, LoaderWork::kBoth, [](const Passes& passes) {
                   return sum(passes, [](const LoaderPass& pass) { return pass.remoteRows; }) /
                          std::max(1.0, sum(passes, [](const LoaderPass& pass) { return pass.nodes; }));
                 }), "remote share", numProcesses(), std::nullopt, {}});
    report_.add({both, over(at, LoaderWork::kBoth, [](const Passes& passes) {
                   return sum(passes, [](const LoaderPass& pass) { return pass.prefetched; }) / batches(passes);
                 }), "prefetched share", numProcesses(), std::nullopt, {}});
  }

  // Where the time of sampling and pulling goes, per batch, in the mean over all processes: a process serves as much as it
  // asks for.
  void addTimes(size_t at) {
    const std::string name = absl::StrCat(processes_[0][at].name, ", ");
    const auto time = [&](const std::string& what, const auto& nanoseconds) {
      report_.add({absl::StrCat(name, what), over(at, LoaderWork::kBoth, [&](const Passes& passes) {
                     return sum(passes, nanoseconds) * 1e-3 / batches(passes);
                   }), "us/batch", numProcesses(), std::nullopt, {}});
    };
    time("processor time", [](const LoaderPass& pass) { return pass.processorNs; });
    time("of it in the kernel", [](const LoaderPass& pass) { return pass.systemNs; });
    std::set<std::string> threads;
    for (const auto& [thread, nanoseconds] : processes_[0][at].passes[indexOf(LoaderWork::kBoth)][0].threadsNs) {
      if (nanoseconds > 0) threads.insert(thread);
    }
    for (const std::string& thread : threads) {
      time(absl::StrCat("thread ", thread), [&](const LoaderPass& pass) {
        const auto found = pass.threadsNs.find(thread);
        return found == pass.threadsNs.end() ? 0 : found->second;
      });
    }
    report_.add({absl::StrCat(name, "page faults"), over(at, LoaderWork::kBoth, [](const Passes& passes) {
                   return sum(passes, [](const LoaderPass& pass) { return pass.faults; }) / batches(passes);
                 }), "faults/batch", numProcesses(), std::nullopt, {}});
    report_.add({absl::StrCat(name, "cores in use"), over(at, LoaderWork::kBoth, [this](const Passes& passes) {
                   return sum(passes, [](const LoaderPass& pass) { return pass.processorNs; }) * 1e-9 / seconds(passes) / numProcesses();
                 }), "share of core", numProcesses(), std::nullopt, {}});
  }

  const LoaderOptions& options_;
  const std::vector<std::vector<LoaderCase>> processes_;  // [process][case]
  Report report_;
};

absl::Status checkOptions(const LoaderOptions& options, size_t cores) {
  if (options.fanouts.empty()) return absl::InvalidArgumentError("--fanouts is empty; give one per hop");
  if (options.transports.empty()) return absl::InvalidArgumentError("--transports is empty; name at least one");
  if (std::set<std::string>(options.transports.begin(), options.transports.end()).size() != options.transports.size()) {
    return absl::InvalidArgumentError("--transports names one twice");
  }
  if (options.graph.parts < options.machines) {
    return absl::InvalidArgumentError(
        absl::StrCat("--parts ", options.graph.parts, " are too few for ", options.machines, " machines"));
  }
  if (cores == 0) return absl::InternalError("the kernel does not say which CPUs this process may use");
  if (cores < static_cast<size_t>(options.machines) && !options.small) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.machines, " machines need as many cores; this process may use ", cores));
  }
  return absl::OkStatus();
}

absl::Status runLoader(LoaderBenchOptions options) {
  LoaderOptions& loader = options.loader;
  if (loader.small) {
    loader.graph.nodesLog2 = 12;
    loader.graph.edges = 60'000;
    loader.graph.floats = 16;
    loader.batchSize = 128;
    loader.batches = 4;
    loader.repetitions = 2;
  }
  if (loader.graph.parts == 1) loader.graph.parts = loader.machines;
  const std::vector<int> cores = usableCores();
  FARHOP_RETURN_IF_ERROR(checkOptions(loader, cores.size()));
  const auto body = [&](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    FARHOP_ASSIGN_OR_RETURN(const std::vector<LoaderCase> cases,
                            runLoaderMachine(loader, rank, cores[static_cast<size_t>(rank) % cores.size()], channel));
    return encodeLoaderCases(cases);
  };
  FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> texts, runProcesses(loader.machines, kRoundTimeout, body));
  std::vector<std::vector<LoaderCase>> processes;
  for (const std::string& text : texts) {
    FARHOP_ASSIGN_OR_RETURN(std::vector<LoaderCase> cases, decodeLoaderCases(text));
    processes.push_back(std::move(cases));
  }
  LoaderReport report(loader, std::move(processes));
  return publish(report.build(), options.json);
}

}  // namespace

void addLoaderBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<LoaderBenchOptions>();
  LoaderOptions* const loader = &options->loader;
  loader->graph.floats = 128;
  CLI::App* const command =
      app.add_subcommand("loader", "Batches with their features per second, of several processes that serve each other");
  addRmatOptions(*command, &loader->graph);
  command->add_option("--floats", loader->graph.floats, "Width of the feature")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--machines", loader->machines, "Processes, each on a core of its own")
      ->capture_default_str()
      ->check(CLI::Range(2, kMaxMachines));
  command->add_option("--transports", loader->transports, "tensorpipe, or what FARHOP_FABRIC may name")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--fanouts", loader->fanouts, "Per hop, the one next to the seeds first")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--batch-size", loader->batchSize, "Seeds per batch")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--batches", loader->batches, "Batches per process and repetition")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--under-way", loader->underWay, "Batches sampled and pulled ahead of the consumer")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--repetitions", loader->repetitions, "Medians are over so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", loader->seed, "Seed of the order of seeds and of the draws")->capture_default_str();
  command->add_flag("--small", loader->small, "A size for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runLoader(*options); });
}

}  // namespace farhop::benchmarks
