#include "benchmarks/exchange_bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/exchange_machine.h"
#include "benchmarks/machine.h"
#include "benchmarks/report.h"
#include "sampler/stage_clock.h"

namespace farhop::benchmarks {
namespace {

// Making the large graph takes minutes; nothing else does.
constexpr std::chrono::milliseconds kRoundTimeout{900'000};
constexpr int kMaxMachines = 64;

struct ExchangeBenchOptions {
  ExchangeOptions exchange;
  int mainUnderWay = 4;
  std::string json;
};

// Turns what the processes measured into rows.
class ExchangeReport {
 public:
  ExchangeReport(const ExchangeBenchOptions& options, std::vector<MachineResult> machines)
      : options_(options.exchange),
        mainUnderWay_(options.mainUnderWay),
        machines_(std::move(machines)),
        report_("exchange", options_.graph.parameters(), options_.seed, options_.small) {}

  const Report& build() {
    const MachineResult& first = machines_[0];
    const Series smallPages(first.smallPageReads), hugePages(first.hugePageReads);
    limit_ = std::max(smallPages.median(), hugePages.median());
    report_.add({"random 64-byte reads, 4 KiB pages", smallPages, "reads/s", 1, limit_, first.limitChecksum});
    report_.add({"random 64-byte reads, huge pages", hugePages, "reads/s", 1, limit_, first.limitChecksum});
    for (const MachineResult& machine : machines_) checksum_ += machine.checksum;
    report_.add({"local", Series(first.localEdgesPerSecond), "edges/s", 1, limit_, std::nullopt});
    for (size_t at = 0; at < options_.underWay.size(); ++at) addCase(at);
    for (size_t at = 0; at < options_.underWay.size(); ++at) {
      if (options_.underWay[at] == mainUnderWay_) addBreakdown(at);
    }
    return report_;
  }

 private:
  int processes() const { return static_cast<int>(machines_.size()); }

  // One value per repetition, from the passes of all processes in it.
  template <typename Quantity>
  Series over(size_t at, const Quantity& quantity) const {
    Series series;
    for (size_t repetition = 0; repetition < machines_[0].passes[at].size(); ++repetition) {
      std::vector<const ExchangePass*> passes;
      for (const MachineResult& machine : machines_) passes.push_back(&machine.passes[at][repetition]);
      series.add(quantity(passes, repetition));
    }
    return series;
  }

  template <typename Field>
  static double sum(const std::vector<const ExchangePass*>& passes, const Field& field) {
    double total = 0;
    for (const ExchangePass* pass : passes) total += static_cast<double>(field(*pass));
    return total;
  }

  // sum of `one` over sum of `other`, both over all processes.
  template <typename One, typename Other>
  Series ratio(size_t at, const One& one, const Other& other) const {
    return over(at, [&](const auto& passes, size_t) {
      const double denominator = sum(passes, other);
      return denominator > 0 ? sum(passes, one) / denominator : 0;
    });
  }

  // From the first start to the last end.
  static double seconds(const std::vector<const ExchangePass*>& passes) {
    int64_t start = passes[0]->startNs, end = passes[0]->endNs;
    for (const ExchangePass* pass : passes) {
      start = std::min(start, pass->startNs);
      end = std::max(end, pass->endNs);
    }
    return static_cast<double>(end - start) * 1e-9;
  }

  static double edges(const ExchangePass& pass) { return static_cast<double>(pass.edges); }
  static double batches(const ExchangePass& pass) { return static_cast<double>(pass.batches); }
  static double processor(const ExchangePass& pass) { return static_cast<double>(pass.processorNs); }
  static double remoteEdges(const ExchangePass& pass) { return static_cast<double>(pass.remoteEdges); }

  void addCase(size_t at) {
    const std::string name = absl::StrCat("exchange, ", options_.underWay[at], " under way");
    auto row = [&](Series values, const char* unit, std::optional<double> limit = std::nullopt) {
      report_.add({name, std::move(values), unit, processes(), limit, checksum_});
    };
    row(over(at, [](const auto& passes, size_t) { return sum(passes, edges) / seconds(passes); }), "edges/s",
        limit_ * processes());
    row(over(at,
             [this](const auto& passes, size_t repetition) {
               return sum(passes, edges) / seconds(passes) / processes() /
                      machines_[0].localEdgesPerSecond[repetition];
             }),
        "x local per core");
    row(over(at,
             [this](const auto& passes, size_t repetition) {
               return sum(passes, edges) / (sum(passes, processor) * 1e-9) /
                      machines_[0].localEdgesPerProcessorSecond[repetition];
             }),
        "x local per processor time");
    row(over(at, [](const auto& passes, size_t) { return sum(passes, batches) / seconds(passes); }),
        "batches/s");
    row(ratio(at, remoteEdges, edges), "remote share");
    row(ratio(
            at, [](const ExchangePass& pass) { return pass.payloadBytes; }, remoteEdges),
        "payload bytes/remote edge");
    row(ratio(
            at, [](const ExchangePass& pass) { return pass.bytesSent; }, remoteEdges),
        "bytes/remote edge");
    row(ratio(
            at, [](const ExchangePass& pass) { return pass.requestsSent; }, batches),
        "requests/batch");
    row(ratio(
            at, [](const ExchangePass& pass) { return pass.messagesSent; }, batches),
        "messages/batch");
    row(over(at, [this](const auto& passes,
                        size_t) { return sum(passes, processor) * 1e-9 / seconds(passes) / processes(); }),
        "share of core");
    row(ratio(
            at, [](const ExchangePass& pass) { return pass.faults; }, batches),
        "faults/batch");
  }

  // Microseconds per batch of its own, in the mean over all processes: a process serves as many as it
  // samples.
  template <typename Nanoseconds>
  void addTime(size_t at, const std::string& name, const Nanoseconds& nanoseconds) {
    Series values = ratio(
        at, [&](const ExchangePass& pass) { return static_cast<double>(nanoseconds(pass)) * 1e-3; }, batches);
    report_.add({name, std::move(values), "us/batch"});
  }

  void addBreakdown(size_t at) {
    for (int process = 0; process < processes(); ++process) {
      const std::vector<ExchangePass>& passes = machines_[static_cast<size_t>(process)].passes[at];
      Series rates;
      for (const ExchangePass& pass : passes) rates.add(edges(pass) / pass.seconds());
      report_.add({absl::StrCat("process ", process), std::move(rates), "edges/s", 1, limit_, std::nullopt});
    }
    const size_t stages = sampler::kStageNames.size();
    for (size_t stage = 0; stage < stages; ++stage) {
      addTime(at, absl::StrCat("stage ", sampler::kStageNames[stage]),
              [stage](const ExchangePass& pass) { return pass.stagesNs[stage]; });
    }
    // All processor time that no stage has: the transport, mostly.
    addTime(at, "stage none", [stages](const ExchangePass& pass) {
      int64_t rest = pass.processorNs;
      for (size_t stage = 0; stage < stages; ++stage) {
        if (stage != static_cast<size_t>(sampler::Stage::kWait)) rest -= pass.stagesNs[stage];
      }
      return std::max<int64_t>(rest, 0);
    });
    addTime(at, "processor time", processor);
    for (const auto& entry : machines_[0].passes[at][0].threadsNs) {
      addTime(at, absl::StrCat("thread ", entry.first), [&entry](const ExchangePass& pass) {
        const auto found = pass.threadsNs.find(entry.first);
        return found == pass.threadsNs.end() ? 0 : found->second;
      });
    }
  }

  const ExchangeOptions& options_;
  const int mainUnderWay_;
  const std::vector<MachineResult> machines_;
  Report report_;
  double limit_ = 0;
  uint64_t checksum_ = 0;
};

absl::Status checkOptions(const ExchangeOptions& options) {
  if (options.fanouts.empty()) return absl::InvalidArgumentError("--fanouts is empty; give one per hop");
  if (options.graph.parts < options.machines) {
    return absl::InvalidArgumentError(
        absl::StrCat("--parts ", options.graph.parts, " are too few for ", options.machines, " machines"));
  }
  return absl::OkStatus();
}

absl::Status runExchange(ExchangeBenchOptions options) {
  ExchangeOptions& exchange = options.exchange;
  if (exchange.small) {
    exchange.graph.nodesLog2 = 12;
    exchange.graph.edges = 60'000;
    exchange.batchSize = 128;
    exchange.batches = 4;
    exchange.repetitions = 2;
    exchange.limitReads = 100'000;
  }
  if (exchange.graph.parts == 1) exchange.graph.parts = exchange.machines;
  FARHOP_RETURN_IF_ERROR(checkOptions(exchange));
  if (std::find(exchange.underWay.begin(), exchange.underWay.end(), options.mainUnderWay) ==
      exchange.underWay.end()) {
    exchange.underWay.push_back(options.mainUnderWay);
  }
  std::sort(exchange.underWay.begin(), exchange.underWay.end());
  exchange.underWay.erase(std::unique(exchange.underWay.begin(), exchange.underWay.end()),
                          exchange.underWay.end());

  const std::vector<int> cores = usableCores();
  if (cores.empty()) return absl::InternalError("the kernel does not say which CPUs this process may use");
  if (cores.size() < static_cast<size_t>(exchange.machines) && !exchange.small) {
    return absl::FailedPreconditionError(
        absl::StrCat(exchange.machines, " machines need as many cores; this process may use ", cores.size()));
  }
  const auto body = [&](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    FARHOP_ASSIGN_OR_RETURN(
        const MachineResult result,
        runExchangeMachine(exchange, rank, cores[static_cast<size_t>(rank) % cores.size()], channel));
    return encodeMachineResult(result);
  };
  FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          runProcesses(exchange.machines, kRoundTimeout, body));
  std::vector<MachineResult> machines;
  for (const std::string& text : texts) {
    FARHOP_ASSIGN_OR_RETURN(MachineResult machine, decodeMachineResult(text));
    machines.push_back(std::move(machine));
  }
  ExchangeReport report(options, std::move(machines));
  return publish(report.build(), options.json);
}

}  // namespace

void addExchangeBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<ExchangeBenchOptions>();
  ExchangeOptions* const exchange = &options->exchange;
  CLI::App* const command = app.add_subcommand(
      "exchange", "Sampled edges per second of several processes that draw for each other");
  addRmatOptions(*command, &exchange->graph);
  command->add_option("--machines", exchange->machines, "Processes, each on a core of its own")
      ->capture_default_str()
      ->check(CLI::Range(2, kMaxMachines));
  command->add_option("--under-way", options->mainUnderWay, "Batches under way whose time is broken down")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--compare", exchange->underWay, "Batches under way to compare it with")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--fanouts", exchange->fanouts, "Per hop, the one next to the seeds first")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--batch-size", exchange->batchSize, "Seeds per batch")->capture_default_str();
  command->add_option("--batches", exchange->batches, "Batches per process and repetition")
      ->capture_default_str();
  command->add_option("--repetitions", exchange->repetitions, "Medians are over so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", exchange->seed, "Seed of the order of seeds and of the draws")
      ->capture_default_str();
  command->add_flag("--small", exchange->small, "A size for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runExchange(*options); });
}

}  // namespace farhop::benchmarks
