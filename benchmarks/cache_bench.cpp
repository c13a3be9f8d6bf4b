#include "benchmarks/cache_bench.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "base/random.h"
#include "benchmarks/report.h"
#include "partition/store_writer.h"
#include "sampler/batch_stream.h"
#include "sampler/partitioned_graph.h"
#include "sampler/seed_dealer.h"

namespace farhop::benchmarks {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct CacheBenchOptions {
  std::string graph;
  int machines = 0;  // 0: one per partition
  std::vector<int64_t> fanouts = {15, 10};
  uint64_t batchSize = 1024;
  int epochs = 3;
  uint64_t seed = 1;
  bool small = false;
  std::string json;
};

// A graph of eight clusters with a feature, in four partitions with caches, for tests.
absl::Status writeSmallStore(const std::string& directory) {
  constexpr uint64_t kNodes = 4000, kEdges = 24'000, kClusters = 8, kCluster = kNodes / kClusters;
  KeyedRandom random(combineKey(7, static_cast<uint64_t>(Purpose::kTest)));
  std::vector<uint64_t> sources, destinations;
  for (uint64_t e = 0; e < kEdges; ++e) {
    destinations.push_back(random.below(kNodes));
    const uint64_t cluster = destinations.back() / kCluster * kCluster;
    // The first nodes of a cluster are the neighbours of most.
    const uint64_t hub = random.below(1 + random.below(kCluster));
    sources.push_back(random.below(5) > 0 ? cluster + hub : random.below(kClusters) * kCluster + hub);
  }
  partition::Dataset dataset;
  dataset.schema.nodeTypes = {{"node", kNodes, {{"x", DType::kFloat32, {8}}}}};
  dataset.schema.relations = {{"edge", 0, 0, kEdges, -1, {}}};
  dataset.edges = {{partition::IdColumn(std::move(sources)), partition::IdColumn(std::move(destinations)), "edges"}};
  const auto rows = std::make_shared<const std::vector<float>>(kNodes * 8, 1.0F);
  dataset.nodeFeatures = {{{reinterpret_cast<const std::byte*>(rows->data()), kNodes, rows, "x"}}};
  dataset.edgeFeatures.resize(1);
  partition::SplitSeeds train{"train", 0, {}};
  for (uint64_t id = 0; id < kNodes; id += 3) train.ids.push_back(id);
  dataset.splits = {std::move(train)};
  partition::PartitionOptions how;
  how.parts = 4;
  FARHOP_ASSIGN_OR_RETURN(const auto assignment, partition::assignPartitions(dataset, how));
  partition::StoreWriterOptions writer;
  writer.directory = directory;
  writer.cache.fraction = 0.25;
  writer.cache.fanouts = {5, 3};
  writer.cache.batch = 64;
  return partition::writeStore(dataset, assignment, writer);
}

// What one machine pulls in its batches.
struct Pulled {
  uint64_t batches = 0;
  uint64_t own = 0, remote = 0, cached = 0;  // rows; cached ones are among the remote
  uint64_t checksum = 0;                     // of the ids of all nodes
  std::chrono::nanoseconds lookups{0};
};

class CacheBench {
 public:
  CacheBench(std::shared_ptr<const partition::GraphStore> store, CacheBenchOptions options)
      : store_(std::move(store)), options_(std::move(options)) {}

  absl::Status run() {
    // Batches do not depend on the partitioning: one process samples them for all machines.
    FARHOP_ASSIGN_OR_RETURN(whole_, sampler::PartitionedGraph::open(store_, 0, 1));
    const int machines = options_.machines > 0 ? options_.machines : store_->numPartitions();
    for (int m = 0; m < machines; ++m) {
      FARHOP_ASSIGN_OR_RETURN(const auto graph, sampler::PartitionedGraph::open(store_, m, machines));
      for (int t = 0; t < types(); ++t) cachedRows_ += graph->featureCache().rows(t);
      privateBytes_ += graph->featureCache().privateBytes();
      for (const partition::SplitInfo& split : store_->splits()) {
        if (split.name == "train") FARHOP_RETURN_IF_ERROR(runMachine(*graph, split.nodeType));
      }
    }
    if (total_.batches == 0) {
      return absl::FailedPreconditionError(absl::StrCat(store_->directory(), " has no split 'train' of nodes"));
    }
    return report();
  }

 private:
  int types() const { return static_cast<int>(store_->schema().nodeTypes.size()); }

  absl::Status runMachine(const sampler::PartitionedGraph& graph, int nodeType) {
    sampler::SeedSet set;
    set.nodeType = nodeType;
    for (int k : graph.ownPartitions()) {
      const auto seeds = graph.shard(k)->split("train", nodeType);
      set.all.insert(set.all.end(), seeds.begin(), seeds.end());
    }
    if (set.all.empty()) return absl::OkStatus();
    sampler::DealOptions deal;
    deal.batchSize = options_.batchSize;
    deal.deal = sampler::Deal::kGlobal;
    deal.tail = sampler::Tail::kUneven;
    deal.seed = options_.seed;
    FARHOP_ASSIGN_OR_RETURN(sampler::SeedDealer dealer, sampler::SeedDealer::make(std::move(set), deal));
    sampler::SamplingOptions sampling;
    for (int64_t fanout : options_.fanouts) {
      sampling.fanouts.emplace_back(store_->schema().relations.size(), fanout);
    }
    sampling.seed = options_.seed;
    Metrics metrics;
    sampler::BatchStream stream(whole_, nullptr, std::move(dealer), sampling, {},
                                std::make_shared<sampler::SamplerMetrics>(&metrics));
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
      stream.start(static_cast<uint64_t>(epoch));
      for (;;) {
        FARHOP_ASSIGN_OR_RETURN(const std::unique_ptr<sampler::SampledBatch> batch, stream.next());
        if (batch == nullptr) break;
        ++total_.batches;
        for (int t = 0; t < types(); ++t) count(graph, t, batch->nodes[static_cast<size_t>(t)]);
      }
    }
    return absl::OkStatus();
  }

  // As a pull does it: rows in buckets by owner, then the lookups.
  void count(const sampler::PartitionedGraph& graph, int nodeType, std::span<const uint64_t> gids) {
    const partition::PartitionBook& book = store_->book();
    std::vector<std::vector<uint32_t>> rows(static_cast<size_t>(book.numPartitions())), slots(rows.size());
    for (size_t i = 0; i < gids.size(); ++i) {
      const int k = book.partitionOf(nodeType, gids[i]);
      total_.checksum += mix64(gids[i]);
      if (graph.isOwn(k)) {
        ++total_.own;
        continue;
      }
      rows[static_cast<size_t>(k)].push_back(static_cast<uint32_t>(gids[i] - book.begin(nodeType, k)));
      slots[static_cast<size_t>(k)].push_back(static_cast<uint32_t>(i));
      ++total_.remote;
    }
    const sampler::FeatureCache& cache = graph.featureCache();
    if (cache.rows(nodeType) == 0) return;
    const auto start = SteadyClock::now();
    std::vector<sampler::FeatureCache::Hits> hits = cache.noHits(nodeType);
    for (size_t k = 0; k < rows.size(); ++k) {
      cache.take(nodeType, {book.begin(nodeType, static_cast<int>(k)), &rows[k], &slots[k]}, &hits);
    }
    total_.lookups += SteadyClock::now() - start;
    for (const auto& of : hits) total_.cached += of.rows.size();
  }

  absl::Status report() const {
    Report report("cache", std::nullopt, options_.seed, options_.small);
    const auto add = [&](const std::string& name, double value, const std::string& unit) {
      Row row;
      row.name = name;
      row.values = Series({value});
      row.unit = unit;
      row.checksum = total_.checksum;
      report.add(std::move(row));
    };
    const auto batches = static_cast<double>(total_.batches), remote = static_cast<double>(total_.remote);
    const auto cached = static_cast<double>(total_.cached);
    add("own", static_cast<double>(total_.own) / batches, "rows/batch");
    add("remote without cache", remote / batches, "rows/batch");
    add("remote with cache", (remote - cached) / batches, "rows/batch");
    add("saved", total_.remote > 0 ? cached / remote : 0, "share of remote");
    const auto& info = store_->manifest().cache;
    double expectedRows = 0, expectedHits = 0;
    for (double rows : info->expectedRows) expectedRows += rows;
    for (double hits : info->expectedHits) expectedHits += hits;
    if (expectedRows > 0) add("saved, expected by vip", expectedHits / expectedRows, "share of remote");
    add("lookup", total_.remote > 0 ? static_cast<double>(total_.lookups.count()) / remote : 0, "ns/remote row");
    add("table", cachedRows_ > 0 ? static_cast<double>(privateBytes_) / static_cast<double>(cachedRows_) : 0,
        "bytes/cached row");
    add("cached", static_cast<double>(cachedRows_), "rows");
    return publish(report, options_.json);
  }

  std::shared_ptr<const partition::GraphStore> store_;
  CacheBenchOptions options_;
  std::shared_ptr<const sampler::PartitionedGraph> whole_;
  uint64_t cachedRows_ = 0, privateBytes_ = 0;  // over all machines
  Pulled total_;
};

absl::Status runCache(CacheBenchOptions options) {
  // Given back also when something fails.
  struct Temporary {
    std::filesystem::path path;
    ~Temporary() {
      std::error_code ignored;
      if (!path.empty()) std::filesystem::remove_all(path, ignored);
    }
  } temporary;
  if (options.small) {
    std::string name = (std::filesystem::temp_directory_path() / "farhop-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) return absl::InternalError(absl::StrCat("no temporary directory ", name));
    temporary.path = name;
    options.graph = name + "/store";
    options.fanouts = {5, 3};
    options.batchSize = 64;
    FARHOP_RETURN_IF_ERROR(writeSmallStore(options.graph));
  }
  if (options.graph.empty()) return absl::InvalidArgumentError("cache: name a store with --graph");
  FARHOP_ASSIGN_OR_RETURN(auto store, partition::GraphStore::open(options.graph));
  if (!store->manifest().cache) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.graph, " has no caches; write it with `farhop partition --cache-fraction 0.25`"));
  }
  return CacheBench(std::move(store), std::move(options)).run();
}

}  // namespace

void addCacheBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<CacheBenchOptions>();
  CLI::App* const command =
      app.add_subcommand("cache", "Remote rows that a store's caches save in epochs of its train seeds");
  command->add_option("--graph", options->graph, "A store that was written with --cache-fraction");
  command->add_option("--machines", options->machines, "Machines that share the partitions; one each if not given")
      ->check(CLI::PositiveNumber);
  command->add_option("--fanouts", options->fanouts, "Per hop, the one next to the seeds first")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--batch-size", options->batchSize, "Seeds per batch")->capture_default_str();
  command->add_option("--epochs", options->epochs, "Epochs of every machine's own train seeds")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "Seed of the order of seeds and of the draws")->capture_default_str();
  command->add_flag("--small", options->small, "A graph of its own, for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runCache(*options); });
}

}  // namespace farhop::benchmarks
