#include "launcher/partition_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/peak_memory.h"
#include "importers/direct_source.h"
#include "launcher/progress_display.h"
#include "launcher/store_summary.h"
#include "launcher/text_table.h"
#include "partition/cache_plan.h"
#include "partition/dataset.h"
#include "partition/graph_store.h"
#include "partition/partitioner.h"
#include "partition/sampling_features.h"
#include "partition/store_writer.h"

namespace farhop::launcher {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct PartitionArguments {
  std::string raw;
  std::string out;
  std::string method = "metis";
  std::string task;
  std::string jsonFile;
  partition::SamplingFeatureNames sampling;
  partition::PartitionOptions options;
  partition::CacheOptions cache;
  std::string cachePolicy = "vip";
  std::string order = "id";
  uint64_t memoryBytes = 0;
  int threads = 0;
  bool mergeParallel = false;
  bool addReverse = false;
  bool force = false;
  bool noProgress = false;
};

struct Seconds {
  double read = 0, assign = 0, write = 0;
  uint64_t peakBytes = 0;  // of memory
  double total() const { return read + assign + write; }
};

// Seconds since the last call, or since it was made.
class Stopwatch {
 public:
  double lap() {
    const auto now = SteadyClock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  SteadyClock::time_point last_ = SteadyClock::now();
};

std::string seconds(double value) {
  return formatFixed(value, 2) + " s";
}

void printResult(const PartitionArguments& arguments, const partition::GraphStore& store,
                 const StoreSummary& summary, const Seconds& times) {
  const auto balance = [&](uint64_t PartitionFigures::*figure) {
    return formatFixed(imbalance(summary, figure), 3);
  };
  const PartitionFigures total = summary.total();
  const auto line = [](const std::string& name, const std::string& value) {
    return name + "  " + value + "\n";
  };
  std::cout << line("store      ", arguments.out)
            << line("graph      ",
                    absl::StrCat(store.manifest().dataset, store.manifest().dataset.empty() ? "" : ": ",
                                 formatCount(total.nodes), " nodes, ", formatCount(summary.forwardEdges),
                                 " edges", arguments.addReverse ? ", reverse edges added" : ""))
            << line("partitions ", absl::StrCat(store.numPartitions(), " by ", arguments.method, ", seed ",
                                                arguments.options.seed))
            << line("edge cut   ", absl::StrCat(formatCount(summary.cutEdges), " edges (",
                                                formatShare(summary.cutEdges, summary.forwardEdges), ")"))
            << line("balance    ", absl::StrCat("largest / mean: nodes ", balance(&PartitionFigures::nodes),
                                                ", train seeds ", balance(&PartitionFigures::trainSeeds),
                                                ", in-edges ", balance(&PartitionFigures::edges)))
            << line("time       ",
                    absl::StrCat(seconds(times.total()), " (read ", seconds(times.read), ", assign ",
                                 seconds(times.assign), ", write ", seconds(times.write), ")"))
            << line("peak memory", absl::StrCat(formatBytes(times.peakBytes), " without mapped files")) << "\n"
            << summaryTable(summary) << std::flush;
}

// What was declared for sampling, a line per relation.
void printSamplingFeatures(const partition::GraphStore& store, const std::vector<uint64_t>& zeroWeights) {
  const partition::Schema& schema = store.schema();
  for (int r = 0; r < static_cast<int>(schema.relations.size()); ++r) {
    if (schema.hasTimes(r)) std::cout << "times        " << schema.relationText(r) << ": " << timesText(schema, r) << "\n";
  }
  for (int r = 0; r < static_cast<int>(zeroWeights.size()); ++r) {
    if (!schema.hasWeights(r)) continue;
    std::cout << "weights      " << schema.relationText(r) << ": " << schema.relations[r].weightFeature << ", "
              << formatCount(zeroWeights[static_cast<size_t>(r)]) << " of " << formatCount(schema.relations[r].count)
              << " edges have weight 0 and are never drawn by it\n";
  }
  std::cout << std::flush;
}

void printCache(const partition::GraphStore& store) {
  if (!store.manifest().cache) return;
  std::cout << "cache        " << cacheText(store) << "\n" << std::flush;
}

absl::Status writeJson(const PartitionArguments& arguments, const partition::GraphStore& store,
                       const StoreSummary& summary, const Seconds& times) {
  nlohmann::ordered_json json;
  const PartitionFigures total = summary.total();
  json["store"] = arguments.out;
  json["dataset"] = store.manifest().dataset;
  json["method"] = arguments.method;
  json["seed"] = arguments.options.seed;
  json["parts"] = store.numPartitions();
  json["nodes"] = total.nodes;
  json["edges"] = total.edges;
  json["seconds"] = {
      {"read", times.read}, {"assign", times.assign}, {"write", times.write}, {"total", times.total()}};
  json["peak_memory_bytes"] = times.peakBytes;
  json.update(summaryJson(summary));
  if (store.manifest().cache) json["cache"] = cacheJson(store);
  return writeFileAtomically(
      arguments.jsonFile, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

absl::Status runPartition(PartitionArguments arguments) {
  FARHOP_ASSIGN_OR_RETURN(arguments.options.method, partition::parsePartitionMethod(arguments.method));
  FARHOP_ASSIGN_OR_RETURN(arguments.cache.policy, partition::parseCachePolicy(arguments.cachePolicy));
  PeakMemory peak;
  Seconds times;
  Stopwatch watch;
  std::optional<ProgressDisplay> display;
  display.emplace("farhop partition", arguments.noProgress ? ProgressStyle::kNone : progressStyleOfStderr());
  display->line(absl::StrCat("reading ", arguments.raw));
  FARHOP_ASSIGN_OR_RETURN(const importers::DirectSource source,
                          importers::DirectSource::open(arguments.raw, arguments.out, 2, {}));
  FARHOP_ASSIGN_OR_RETURN(partition::Dataset dataset, partition::readDataset(source.path(), {arguments.task}));
  FARHOP_RETURN_IF_ERROR(partition::declareSamplingFeatures(arguments.sampling, &dataset));
  FARHOP_RETURN_IF_ERROR(partition::checkCacheOptions(dataset, arguments.cache));
  const std::vector<uint64_t> zeroWeights = partition::countZeroWeights(dataset);
  times.read = watch.lap();

  partition::StoreWriterOptions writer;
  writer.directory = arguments.out;
  writer.force = arguments.force;
  writer.addReverse = arguments.addReverse;
  writer.method = arguments.method;
  writer.seed = arguments.options.seed;
  writer.cache = arguments.cache;
  writer.progress = [&](const std::string& line) { display->line(line); };
  writer.meter = display->meter();
  FARHOP_ASSIGN_OR_RETURN(writer.order, partition::parseNodeOrder(arguments.order));
  writer.mergeParallel = arguments.mergeParallel;
  writer.memoryBytes = arguments.memoryBytes;
  writer.threads = arguments.threads;
  writer.resume = true;
  FARHOP_RETURN_IF_ERROR(partition::partitionStore(dataset, arguments.options, writer, &times.assign));
  times.write = watch.lap() - times.assign;
  display.reset();
  times.peakBytes = peak.bytes();

  FARHOP_ASSIGN_OR_RETURN(auto store, partition::GraphStore::open(arguments.out));
  const StoreSummary summary = summarizeStore(*store);
  printResult(arguments, *store, summary, times);
  printSamplingFeatures(*store, zeroWeights);
  printCache(*store);
  return arguments.jsonFile.empty() ? absl::OkStatus() : writeJson(arguments, *store, summary, times);
}

void addCacheOptions(CLI::App* command, PartitionArguments* arguments) {
  partition::CacheOptions& cache = arguments->cache;
  command->add_option("--cache-fraction", cache.fraction,
                      "Every partition keeps copies of hot rows of the others: this fraction of nodes / parts rows per "
                      "node type, so 0.25 adds about a quarter to the features' size. Trainers pull less, and the same")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--cache-policy", arguments->cachePolicy,
                      "vip: the nodes most probably sampled from the partition's train seeds; degree: those with most "
                      "out-edges")
      ->check(CLI::IsMember({"vip", "degree"}))
      ->capture_default_str();
  command->add_option("--cache-fanouts", cache.fanouts, "vip: neighbours per hop that will be sampled, -1 for all")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--cache-batch", cache.batch, "vip: seeds per batch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--cache-features", cache.features, "Node features to keep rows of; all if not given")
      ->delimiter(',');
}

}  // namespace

void addPartitionCommand(CLI::App& app, int* exitCode) {
  auto arguments = std::make_shared<PartitionArguments>();
  CLI::App* command =
      app.add_subcommand("partition", "Cut a data set into partitions and write a graph store");
  command->footer(
      "Examples:\n"
      "  farhop partition data/debian --out store --parts 2 --add-reverse\n"
      "  farhop partition raw/metadata.yaml --out store --parts 8 --method random --json figures.json\n"
      "  farhop partition raw --out store --parts 4 --add-reverse --times timestamp --weights rating\n"
      "  farhop partition raw --out store --parts 4 --cache-fraction 0.25 --cache-fanouts 15,10");
  command->add_option("RAW", arguments->raw, "Data set: a directory with metadata.yaml, or that file")
      ->required();
  command->add_option("--out", arguments->out, "Directory of the store to write")->required();
  command->add_option("--parts", arguments->options.parts, "Number of partitions (at least one per machine)")
      ->required()
      ->check(CLI::Range(1, 65536));
  command->add_option("--method", arguments->method, "metis: few cut edges; random: quick, evenly dealt; range: consecutive ids of the data set, for those that are "
                      "ordered so that neighbours are near")
      ->check(CLI::IsMember({"metis", "random", "range"}))
      ->capture_default_str();
  command->add_option("--seed", arguments->options.seed, "Fixes the result")->capture_default_str();
  command->add_flag("--balance-train,!--no-balance-train", arguments->options.balanceTrain,
                    "Also give every partition its share of the train seeds (the default)");
  command->add_flag("--add-reverse", arguments->addReverse,
                    "Add a relation rev_NAME for every relation NAME");
  command->add_option("--times", arguments->sampling.times,
                      "Edge feature that holds times: relations that have it can be sampled by time. Node types with a "
                      "feature of this name have times too (see --node-times). One integer per row");
  command->add_option("--node-times", arguments->sampling.nodeTimes,
                      "Node feature that holds times: an edge is visible from its own and its source node's time on. "
                      "Without it, the name given to --times");
  command->add_option("--weights", arguments->sampling.weights,
                      "Edge feature that holds sampling weights, one number per edge, checked here: finite and not "
                      "negative. Also makes reverse relations weighted");
  addCacheOptions(command, arguments.get());
  command->add_option("--task", arguments->task,
                      "Task whose sets, of nodes or edges, become splits; the first one if not given, or none");
  command->add_option("--memory", arguments->memoryBytes,
                      "Memory for the writing of the store, such as 8G; half of what is free if not given. Less makes it "
                      "slower, not another store")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--threads", arguments->threads, "One per core if not given")->check(CLI::Range(1, 1024));
  command->add_option("--order", arguments->order,
                      "How the nodes of a partition follow each other: by original id, or train seeds first and then by "
                      "degree. No draw depends on it")
      ->check(CLI::IsMember({"id", "degree"}))
      ->capture_default_str();
  command->add_flag("--merge-parallel", arguments->mergeParallel,
                    "Keep only the first of several edges of a relation between the same two nodes; without it all stay. "
                    "Relations with edge times keep all");
  command->add_flag("--force", arguments->force, "Replace the store if there is one");
  command->add_flag("--no-progress", arguments->noProgress,
                    "Say nothing on the way. Otherwise a terminal gets a bar with rate and time left, other outputs plain "
                    "lines, on standard error");
  command->add_option("--json", arguments->jsonFile, "Also write the figures to this file");
  command->callback([arguments, exitCode] {
    const absl::Status status = runPartition(*arguments);
    *exitCode = status.ok() ? 0 : 1;
    if (!status.ok()) std::cerr << "farhop: " << status.message() << std::endl;
  });
}

}  // namespace farhop::launcher
