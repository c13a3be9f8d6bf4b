#include "benchmarks/sampler_cases.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "base/random.h"
#include "benchmarks/rmat_graph.h"
#include "benchmarks/unordered_map_sampler.h"

namespace farhop::benchmarks {
namespace {

using sampler::PartitionedGraph;
using sampler::SampledBatch;

class SamplerMaker : public BatchMaker {
 public:
  SamplerMaker(std::shared_ptr<const PartitionedGraph> graph, sampler::SamplingOptions options,
               Executor* executor, bool timed)
      : timed_(timed), workspace_(*graph), sampler_(graph, nullptr, executor, std::move(options)) {}

  BatchResult make(sampler::BatchRequest request) override {
    if (timed_) {
      KeyedRandom random(combineKey(hashName("seed times"), request.number));
      for (size_t i = 0; i < request.seeds.size(); ++i) {
        request.treeTimes.push_back(static_cast<int64_t>(random.below(kRmatTimes)));
      }
    }
    std::optional<BatchResult> result;
    startTask<BatchResult>(sampler_.sample(std::move(request), &workspace_, pool_.take()),
                           [&](BatchResult batch) { result.emplace(std::move(batch)); });
    // With no other machine to ask, the task ends on this thread before startTask returns.
    if (!result)
      return absl::InternalError("the sampler waited for a reply, although all partitions are here");
    return *std::move(result);
  }
  void over(std::unique_ptr<SampledBatch> batch) override { pool_.giveBack(std::move(batch)); }

 private:
  bool timed_;
  sampler::BatchPool pool_{4};
  sampler::BatchWorkspace workspace_;
  sampler::BatchSampler sampler_;
};

class UnorderedMapMaker : public BatchMaker {
 public:
  UnorderedMapMaker(std::shared_ptr<const PartitionedGraph> graph, sampler::SamplingOptions options)
      : graph_(std::move(graph)), options_(std::move(options)) {}

  BatchResult make(sampler::BatchRequest request) override {
    return sampleOverUnorderedMap(*graph_, options_, request);
  }

 private:
  std::shared_ptr<const PartitionedGraph> graph_;
  sampler::SamplingOptions options_;
};

class Digest {
 public:
  template <typename Values>
  void addAll(const Values& values) {
    value_ = mix64(value_ ^ values.size()) + kGoldenGamma;
    for (const auto value : values) add(static_cast<uint64_t>(value));
  }
  void add(uint64_t value) { value_ = mix64(value_ ^ value) + kGoldenGamma; }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

void addBatch(const PartitionedGraph& graph, const SampledBatch& batch, Digest* digest) {
  digest->add(batch.number);
  digest->addAll(batch.seedIndex);
  for (size_t type = 0; type < batch.nodes.size(); ++type) {
    const int t = static_cast<int>(type);
    digest->addAll(batch.nodesByHop[type]);
    if (type < batch.trees.size() && !batch.trees[type].empty()) digest->addAll(batch.trees[type]);
    for (uint64_t gid : batch.nodes[type]) {
      const int partition = graph.book().partitionOf(t, gid);
      digest->add(graph.shard(partition)->originalIds(t)[gid - graph.book().begin(t, partition)]);
    }
  }
  for (const sampler::SampledRelation& relation : batch.relations) {
    digest->addAll(relation.indptr);
    digest->addAll(relation.indices);
    digest->addAll(relation.edgeIds);
    digest->addAll(relation.visits);
  }
  digest->addAll(batch.walks);
}

}  // namespace

std::unique_ptr<BatchMaker> makeBatchSampler(std::shared_ptr<const PartitionedGraph> graph,
                                             sampler::SamplingOptions options, Executor* executor, bool timed) {
  return std::make_unique<SamplerMaker>(std::move(graph), std::move(options), executor, timed);
}

std::unique_ptr<BatchMaker> makeUnorderedMapSampler(std::shared_ptr<const PartitionedGraph> graph,
                                                    sampler::SamplingOptions options) {
  return std::make_unique<UnorderedMapMaker>(std::move(graph), std::move(options));
}

absl::StatusOr<BatchPlan> BatchPlan::make(const PartitionedGraph& graph, uint64_t seed, uint64_t batchSize,
                                          uint64_t batches) {
  const uint64_t nodes = graph.book().numNodes(0);
  if (batchSize == 0 || batches == 0)
    return absl::InvalidArgumentError("--batch-size and --batches must be above 0");
  if (batches > nodes / batchSize) {
    return absl::InvalidArgumentError(absl::StrCat(batches, " batches of ", batchSize,
                                                   " seeds are more than the ", nodes,
                                                   " nodes of the graph; lower --batches or --batch-size"));
  }
  FARHOP_ASSIGN_OR_RETURN(const std::span<const uint64_t> gids, graph.store().gidsByOriginalId(0));
  const KeyedPermutation order(combineKey(seed, static_cast<uint64_t>(Purpose::kShuffle)), nodes);
  BatchPlan plan;
  plan.seeds_.resize(batches);
  for (uint64_t batch = 0; batch < batches; ++batch) {
    for (uint64_t i = 0; i < batchSize; ++i) plan.seeds_[batch].push_back(gids[order(batch * batchSize + i)]);
  }
  return plan;
}

sampler::BatchRequest BatchPlan::request(uint64_t batch) const {
  sampler::BatchRequest request;
  request.step = request.number = batch;
  request.seeds = seeds_[batch];
  return request;
}

absl::Status touchGraph(const PartitionedGraph& graph, bool all) {
  for (int k : graph.ownPartitions()) {
    const partition::RelationShard& edges = graph.shard(k)->relation(0);
    touchPages(std::as_bytes(edges.indptr));
    touchPages(std::as_bytes(edges.neighbors32));
    touchPages(std::as_bytes(edges.neighbors64));
    touchPages(std::as_bytes(graph.shard(k)->originalIds(0)));
    if (!all) continue;
    touchPages(std::as_bytes(edges.edgeIds));
    touchPages(std::as_bytes(edges.times));
    touchPages(std::as_bytes(edges.weights));
  }
  if (!all) return absl::OkStatus();
  FARHOP_ASSIGN_OR_RETURN(const std::span<const uint32_t> ids, graph.sourceIds<uint32_t>(0));
  touchPages(std::as_bytes(ids));
  return absl::OkStatus();
}

uint64_t digestOf(const PartitionedGraph& graph, const SampledBatch& batch) {
  Digest digest;
  addBatch(graph, batch, &digest);
  return digest.value();
}

Pass timePass(BatchMaker& maker, const BatchPlan& plan, BatchRange range, const PerfCounters& counters) {
  Pass pass;
  std::unique_ptr<SampledBatch> held;
  const PerfCounters::Values countersBefore = counters.read();
  const ThreadUsage usageBefore = ThreadUsage::now();
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t number = range.first; number < range.last; ++number) {
    BatchResult batch = maker.make(plan.request(number));
    if (!batch.ok()) {
      pass.status = batch.status();
      return pass;
    }
    if (held) maker.over(std::move(held));
    held = *std::move(batch);
    pass.edges += held->traffic.sampledEdges;
    pass.nodes += held->nodes[0].size();
  }
  if (held) maker.over(std::move(held));
  pass.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  pass.usage = ThreadUsage::now() - usageBefore;
  pass.shareOfCore = std::chrono::duration<double>(pass.usage.cpuTime).count() / pass.seconds;
  pass.counters = PerfCounters::difference(counters.read(), countersBefore);
  pass.batches = range.last - range.first;
  return pass;
}

absl::StatusOr<uint64_t> checksumPass(BatchMaker& maker, const PartitionedGraph& graph, const BatchPlan& plan,
                                      BatchRange range) {
  Digest digest;
  for (uint64_t number = range.first; number < range.last; ++number) {
    FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<SampledBatch> batch, maker.make(plan.request(number)));
    addBatch(graph, *batch, &digest);
    maker.over(std::move(batch));
  }
  return digest.value();
}

}  // namespace farhop::benchmarks
