// Features of sampled edges: pulled after the batch is there, they are those of the edges that were drawn.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <map>

#include "sampler/edge_chunks.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using sampler::DrawKind;
using sampler::EdgeRange;
using sampler::Expand;
using std::chrono::milliseconds;

struct Layout {
  int parts;
  int machines;
  rpc::TransportKind transport = rpc::TransportKind::kInProcess;
  size_t chunkBytes = 100;
};
constexpr Layout kLayouts[] = {{1, 1, rpc::TransportKind::kInProcess, size_t{1} << 20},
                               {2, 2, rpc::TransportKind::kUv},
                               {3, 3, rpc::TransportKind::kShm},
                               {5, 5},
                               {5, 2, rpc::TransportKind::kInProcess, 1}};

// Batches of machine `machine`, shared as a loader shares them.
std::vector<std::shared_ptr<const sampler::SampledBatch>> sample(SamplingCluster& cluster, int machine,
                                                                 const std::vector<uint64_t>& seeds,
                                                                 const sampler::SamplingOptions& options) {
  TestMachine& self = cluster.machine(machine);
  sampler::SeedSet set;
  for (uint64_t seed : seeds) {
    set.all.push_back(cluster.gid(0, seed));
    if (options.temporal) set.times.push_back(fixtureEdgeTime(0, seed * 7));
  }
  sampler::DealOptions deal;
  deal.batchSize = 8;
  deal.shuffle = false;
  deal.deal = sampler::Deal::kGlobal;
  deal.tail = sampler::Tail::kUneven;
  sampler::BatchStream stream(self.graph, self.agent.get(), *sampler::SeedDealer::make(set, deal), options, {1, 2},
                              self.metrics);
  stream.start(5);
  std::vector<std::shared_ptr<const sampler::SampledBatch>> batches;
  for (;;) {
    auto batch = stream.next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || *batch == nullptr) return batches;
    batches.push_back(*std::move(batch));
  }
}

// What one pull brought: ids and features, one entry per edge.
struct PulledEdges {
  std::vector<uint64_t> ids;
  std::vector<float> features;
};

absl::Status pull(SamplingCluster& cluster, int machine, const EdgeRange& range, bool ids, bool features,
                  PulledEdges* pulled, milliseconds timeout = milliseconds(20'000)) {
  const sampler::PartitionedGraph& graph = *cluster.machine(machine).graph;
  const uint64_t count = sampler::edgeCount(graph, range);
  sampler::EdgePullRequest request;
  request.range = range;
  if (ids) {
    pulled->ids.assign(count, ~uint64_t{0});
    request.targets.push_back({sampler::kEdgeIdFeature, reinterpret_cast<std::byte*>(pulled->ids.data())});
  }
  if (features) {
    pulled->features.assign(count, -1);
    request.targets.push_back({*sampler::edgeFeatureIndex(graph, range.relation, "w"),
                               reinterpret_cast<std::byte*>(pulled->features.data())});
  }
  request.deadline = Deadline::after(timeout);
  std::promise<absl::Status> done;
  cluster.machine(machine).edgePuller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

struct Kinds {
  DrawKind kind = DrawKind::kUniform;
  std::vector<int64_t> fanouts;  // by hop
  Expand expand = Expand::kNew;
  bool temporal = false;
  bool disjoint = false;  // as temporal ones are anyway
};

sampler::SamplingOptions optionsOf(const partition::Schema& schema, const Kinds& kinds) {
  sampler::SamplingOptions options;
  for (int64_t fanout : kinds.fanouts) options.fanouts.emplace_back(schema.relations.size(), fanout);
  options.kinds.resize(schema.relations.size());
  for (size_t r = 0; r < options.kinds.size(); ++r) {
    const bool weighs = sampler::drawsByWeight(kinds.kind);
    if (!weighs || schema.relations[r].reverseOf < 0) options.kinds[r].kind = kinds.kind;
  }
  options.expand = kinds.expand;
  options.temporal = kinds.temporal;
  options.disjoint = kinds.disjoint || kinds.temporal;
  options.seed = 11;
  return options;
}

// Pulls features of all relations, for whole batches and for prefixes (or hops), with and without carried edge ids.
void expectFeaturesOfDrawnEdges(SamplingCluster& cluster, int machine, const Kinds& kinds) {
  const partition::Schema& schema = cluster.store().schema();
  const std::vector<uint64_t> seeds = {0, 1, 2, 3, 3, 17, 40, 59, 20, 21, 22, 0};
  auto plain = std::make_shared<sampler::SamplingOptions>(optionsOf(schema, kinds));
  auto carrying = std::make_shared<sampler::SamplingOptions>(*plain);
  carrying->edgeIds = true;
  const auto batches = sample(cluster, machine, seeds, *plain), truths = sample(cluster, machine, seeds, *carrying);
  ASSERT_EQ(batches.size(), 2u);
  const sampler::PartitionedGraph& graph = *cluster.machine(machine).graph;
  const size_t hops = kinds.fanouts.size();
  uint64_t edges = 0;
  for (size_t b = 0; b < batches.size(); ++b) {
    for (size_t r = 0; r < schema.relations.size(); ++r) {
      for (size_t end = 1; end <= hops; ++end) {
        const size_t first = kinds.expand == Expand::kAll && end < hops ? end - 1 : 0;
        const EdgeRange range{batches[b], plain, static_cast<int>(r), first, end};
        const EdgeRange truth{truths[b], carrying, static_cast<int>(r), first, end};
        const std::vector<uint64_t> expected = sampler::carriedEdgeIds(graph, truth);
        edges += expected.size();
        PulledEdges drawn, onlyFeatures, carried, byId;
        absl::Status status = pull(cluster, machine, range, true, true, &drawn);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(drawn.ids, expected) << schema.relationText(static_cast<int>(r));
        const int forward = schema.relations[r].reverseOf >= 0 ? schema.relations[r].reverseOf : static_cast<int>(r);
        for (size_t e = 0; e < expected.size(); ++e) {
          ASSERT_EQ(drawn.features[e], fixtureEdgeFeature(forward, expected[e])) << schema.relationText(static_cast<int>(r));
        }
        if (end < hops) continue;
        status = pull(cluster, machine, range, false, true, &onlyFeatures);
        ASSERT_TRUE(status.ok()) << status;
        status = pull(cluster, machine, truth, true, true, &carried);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(carried.ids, expected);
        EdgeRange undrawn = truth;
        undrawn.drawn = false;
        status = pull(cluster, machine, undrawn, true, true, &byId);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(byId.ids, expected);
        for (const PulledEdges* pulled : {&onlyFeatures, &carried, &byId}) EXPECT_EQ(pulled->features, drawn.features);
      }
    }
  }
  EXPECT_GT(edges, 0u);
}

class EdgeFeaturesByLayout : public ::testing::TestWithParam<Layout> {
 protected:
  std::unique_ptr<SamplingCluster> cluster(const FixtureOptions& fixture) {
    writeFixtureStore(fixture, GetParam().parts, directory_ / "store");
    return std::make_unique<SamplingCluster>(directory_ / "store", GetParam().machines, GetParam().transport,
                                             GetParam().chunkBytes);
  }
  int last() const { return GetParam().machines - 1; }
  TemporaryDirectory directory_;
};

TEST_P(EdgeFeaturesByLayout, AreThoseOfTheDrawnEdges_InEveryKindOfDraw) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  fixture.edges = 120;
  fixture.edgeTimes = true;
  const auto machines = cluster(fixture);
  const Kinds cases[] = {{DrawKind::kUniform, {3, 2}},
                         {DrawKind::kUniform, {-1, 0, 2}},
                         {DrawKind::kUniform, {3, 2}, Expand::kAll},
                         {DrawKind::kUniformWithReplacement, {4, 2}},
                         {DrawKind::kWeighted, {3, 2}},
                         {DrawKind::kWeightedWithReplacement, {3, 2}, Expand::kAll},
                         {DrawKind::kUniform, {3, 2}, Expand::kNew, true},
                         {DrawKind::kMostRecent, {3, 2}, Expand::kAll, true},
                         {DrawKind::kLabor, {3, 2}},
                         {DrawKind::kLaborPoisson, {3, 2}},
                         {DrawKind::kUniform, {3, 2}, Expand::kNew, false, true},
                         {DrawKind::kLabor, {3, 2}, Expand::kAll, false, true},
                         {DrawKind::kUniformWithReplacement, {3, 2}, Expand::kNew, true},
                         {DrawKind::kWeighted, {3, 2}, Expand::kNew, true},
                         {DrawKind::kWeightedWithReplacement, {3, 2}, Expand::kNew, true},
                         {DrawKind::kLabor, {3, 2}, Expand::kNew, true},
                         {DrawKind::kLaborPoisson, {3, 2}, Expand::kNew, true}};
  for (const Kinds& kinds : cases) expectFeaturesOfDrawnEdges(*machines, last(), kinds);
}

TEST_P(EdgeFeaturesByLayout, AreFound_WhereNodesHaveThousandsOfEdges) {
  FixtureOptions fixture;
  fixture.addReverse = true;
  fixture.edges = GetParam().chunkBytes == 1 ? 2500 : 5000;
  const auto machines = cluster(fixture);
  expectFeaturesOfDrawnEdges(*machines, 0, {DrawKind::kUniform, {-1}});
  expectFeaturesOfDrawnEdges(*machines, last(), {DrawKind::kUniform, {40, 3}});
}

TEST_P(EdgeFeaturesByLayout, GiveRangesOfEdges_AsAllTogetherHaveThem) {
  FixtureOptions fixture;
  fixture.addReverse = true;
  fixture.edges = 600;
  const auto machines = cluster(fixture);
  const std::vector<uint64_t> seeds = {0, 1, 2, 3, 17, 40, 59, 20};
  KeyedRandom random(20'261'130);
  const Kinds cases[] = {{DrawKind::kUniform, {12, 2}}, {DrawKind::kUniformWithReplacement, {5, 3}, Expand::kAll}};
  for (const Kinds& kinds : cases) {
    auto options = std::make_shared<sampler::SamplingOptions>(optionsOf(machines->store().schema(), kinds));
    auto carrying = std::make_shared<sampler::SamplingOptions>(*options);
    carrying->edgeIds = true;
    const auto batch = sample(*machines, last(), seeds, *options).front(), carried = sample(*machines, last(), seeds, *carrying).front();
    for (int relation : {0, 1}) {
      PulledEdges all;
      ASSERT_TRUE(pull(*machines, last(), {batch, options, relation, 0, 2}, true, true, &all).ok());
      const uint64_t edges = all.ids.size();
      for (int round = 0; round < 12; ++round) {
        const uint64_t begin = random.below(edges + 1), end = begin + random.below(edges + 1 - begin);
        const bool carries = round % 3 == 0;
        EdgeRange range{carries ? carried : batch, carries ? carrying : options, relation, 0, 2};
        range.drawn = round % 6 != 0;
        range.firstEdge = begin;
        range.maxEdges = end - begin;
        ASSERT_EQ(sampler::edgeCount(*machines->machine(last()).graph, range), end - begin);
        PulledEdges part;
        const absl::Status status = pull(*machines, last(), range, true, true, &part);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(std::equal(part.ids.begin(), part.ids.end(), all.ids.begin() + static_cast<ptrdiff_t>(begin),
                               all.ids.begin() + static_cast<ptrdiff_t>(end)));
        EXPECT_TRUE(std::equal(part.features.begin(), part.features.end(), all.features.begin() + static_cast<ptrdiff_t>(begin),
                               all.features.begin() + static_cast<ptrdiff_t>(end)));
      }
    }
  }
}

// Samples one batch of three seeds without the edges `excluded`.
std::shared_ptr<const sampler::SampledBatch> sampleWithout(SamplingCluster& cluster, int machine,
                                                           const std::vector<sampler::ExcludedPair>& excluded,
                                                           const sampler::SamplingOptions& options) {
  TestMachine& self = cluster.machine(machine);
  Executor executor("test", 1);
  const sampler::BatchSampler sampler(self.graph, self.agent.get(), &executor, options);
  sampler::BatchWorkspace workspace(*self.graph);
  sampler::BatchRequest request;
  for (uint64_t id : {0, 1, 2}) request.seeds.push_back(cluster.gid(0, id));
  request.excluded = excluded;
  using Result = absl::StatusOr<std::unique_ptr<sampler::SampledBatch>>;
  std::promise<Result> done;
  startTask<Result>(sampler.sample(std::move(request), &workspace), [&](Result result) { done.set_value(std::move(result)); });
  Result result = done.get_future().get();
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : nullptr;
}

// Of each seed's edges every second one.
std::vector<sampler::ExcludedPair> everySecondEdge(const sampler::SampledBatch& batch) {
  std::vector<sampler::ExcludedPair> excluded;
  for (uint32_t row = 0; row < 3; ++row) {
    for (uint32_t e = batch.relations[0].indptr[row]; e < batch.relations[0].indptr[row + 1]; e += 2) {
      excluded.push_back({0, batch.nodes[0][row], batch.nodes[0][batch.relations[0].indices[e]]});
    }
  }
  return excluded;
}

TEST_P(EdgeFeaturesByLayout, LeaveOutWhatTheBatchLeftOut) {
  const auto machines = cluster({});
  const sampler::PartitionedGraph& graph = *machines->machine(last()).graph;
  for (DrawKind kind : {DrawKind::kUniform, DrawKind::kLabor, DrawKind::kLaborPoisson, DrawKind::kWeighted}) {
    auto plain = std::make_shared<sampler::SamplingOptions>(optionsOf(machines->store().schema(), {kind, {6, 3}}));
    auto carrying = std::make_shared<sampler::SamplingOptions>(*plain);
    carrying->edgeIds = true;
    const auto whole = sampleWithout(*machines, last(), {}, *carrying);
    ASSERT_NE(whole, nullptr);
    const auto excluded = everySecondEdge(*whole);
    const EdgeRange range{sampleWithout(*machines, last(), excluded, *plain), plain, 0, 0, 2};
    const EdgeRange truth{sampleWithout(*machines, last(), excluded, *carrying), carrying, 0, 0, 2};
    ASSERT_TRUE(range.batch && truth.batch);
    const std::vector<uint64_t> expected = sampler::carriedEdgeIds(graph, truth);
    EXPECT_NE(expected, sampler::carriedEdgeIds(graph, {whole, carrying, 0, 0, 2}));
    PulledEdges pulled;
    const absl::Status status = pull(*machines, last(), range, true, true, &pulled);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(pulled.ids, expected);
    for (size_t e = 0; e < expected.size(); ++e) ASSERT_EQ(pulled.features[e], fixtureEdgeFeature(0, expected[e]));
  }
}

// Induced edges are no result of draws: their features are found by the ids that the batch carries, of reverse relations
// where their forward edges lie.
TEST_P(EdgeFeaturesByLayout, AreThoseOfInducedEdges) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  fixture.edges = 200;
  const auto machines = cluster(fixture);
  const partition::Schema& schema = machines->store().schema();
  const sampler::PartitionedGraph& graph = *machines->machine(last()).graph;
  auto options = std::make_shared<sampler::SamplingOptions>(optionsOf(schema, {DrawKind::kUniform, {4, 3}}));
  options->subgraph = sampler::Subgraph::kInduced;
  options->edgeIds = true;
  uint64_t edges = 0;
  for (const auto& batch : sample(*machines, last(), {0, 1, 2, 3, 3, 17, 40, 59, 20}, *options)) {
    for (size_t r = 0; r < schema.relations.size(); ++r) {
      EdgeRange range{batch, options, static_cast<int>(r), 0, 2};
      range.drawn = false;
      const auto& ids = batch->relations[r].edgeIds;
      ASSERT_EQ(sampler::edgeCount(graph, range), ids.size());
      PulledEdges pulled;
      const absl::Status status = pull(*machines, last(), range, true, true, &pulled);
      ASSERT_TRUE(status.ok()) << status;
      const int forward = schema.relations[r].reverseOf >= 0 ? schema.relations[r].reverseOf : static_cast<int>(r);
      for (size_t e = 0; e < ids.size(); ++e) {
        ASSERT_EQ(pulled.ids[e], ids[e]);
        ASSERT_EQ(pulled.features[e], fixtureEdgeFeature(forward, ids[e])) << schema.relationText(static_cast<int>(r));
      }
      edges += ids.size();
    }
  }
  EXPECT_GT(edges, 100u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, EdgeFeaturesByLayout, ::testing::ValuesIn(kLayouts), [](const auto& layout) {
  return absl::StrCat(layout.param.parts, "On", layout.param.machines);
});

// A sampled batch of three machines and a pull of its edges.
class EdgeFeatures : public ::testing::Test {
 protected:
  void start(bool reverse = false) {
    FixtureOptions fixture;
    fixture.addReverse = reverse;
    const std::string store = directory_ / (reverse ? "both" : "store");
    writeFixtureStore(fixture, 3, store);
    cluster_ = std::make_unique<SamplingCluster>(store, 3, rpc::TransportKind::kInProcess, 200);
    auto options = std::make_shared<sampler::SamplingOptions>(optionsOf(cluster_->store().schema(), {DrawKind::kUniform, {5, 5}}));
    std::vector<uint64_t> seeds(8);
    for (uint64_t i = 0; i < 8; ++i) seeds[i] = i;
    range_ = {sample(*cluster_, 0, seeds, *options).front(), options, reverse ? 1 : 0, 0, 2};
  }
  absl::Status pullAll(PulledEdges* pulled, milliseconds timeout = milliseconds(20'000)) {
    return pull(*cluster_, 0, range_, true, true, pulled, timeout);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<SamplingCluster> cluster_;
  EdgeRange range_;
};

TEST_F(EdgeFeatures, SendNothing_WhileBatchesAreSampled) {
  start();
  EXPECT_TRUE(range_.batch->relations[0].edgeIds.empty());
  EXPECT_EQ(cluster_->machine(0).metrics->featureBytes.value(), 0);
  // 4 bytes a remote edge, 4 a row asked and 4 a count, and headers: no room for 8 bytes an edge.
  const sampler::BatchTraffic& traffic = range_.batch->traffic;
  EXPECT_GT(traffic.remoteEdges, 50u);
  EXPECT_LE(traffic.neighborBytes, 4 * traffic.remoteEdges + 8 * traffic.requestedNodes + 200 * traffic.messages);
  PulledEdges pulled;
  ASSERT_TRUE(pullAll(&pulled).ok());
  EXPECT_GT(cluster_->machine(0).metrics->featureBytes.value(), 0);
}

TEST_F(EdgeFeatures, NameTheLostOwner) {
  for (bool reverse : {false, true}) {
    start(reverse);
    cluster_->machine(2).agent->close(absl::CancelledError("gone"));
    PulledEdges pulled;
    const absl::Status status = pullAll(&pulled);
    ASSERT_FALSE(status.ok());
    ASSERT_TRUE(peerOf(status).has_value()) << status;
    EXPECT_EQ(peerOf(status)->machine, 2);
  }
}

TEST_F(EdgeFeatures, EndAtTheirDeadline) {
  start();
  PulledEdges pulled;
  EXPECT_EQ(pullAll(&pulled, milliseconds(0)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(EdgeFeatures, AreNotAskedFor_WhenNobodyWantsThemAnyMore) {
  start();
  std::vector<float> rows(sampler::edgeCount(*cluster_->machine(0).graph, range_));
  sampler::EdgePullRequest request;
  request.range = range_;
  request.targets = {{0, reinterpret_cast<std::byte*>(rows.data())}};
  request.deadline = Deadline::after(milliseconds(20'000));
  request.cancelled = std::make_shared<std::atomic<bool>>(true);
  std::promise<absl::Status> done;
  cluster_->machine(0).edgePuller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
  EXPECT_EQ(done.get_future().get().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cluster_->machine(0).metrics->featureBytes.value(), 0);
}

TEST_F(EdgeFeatures, ComeInPartsAndWider_WhenAskedFor) {
  start();
  const sampler::PartitionedGraph& graph = *cluster_->machine(0).graph;
  PulledEdges whole;
  ASSERT_TRUE(pullAll(&whole).ok());
  std::vector<double> wide(sampler::edgeCount(graph, range_));
  std::vector<std::byte> upper(wide.size() * 2);
  sampler::EdgePullRequest request;
  request.range = range_;
  request.targets = {{0, reinterpret_cast<std::byte*>(wide.data()), {{}, DType::kFloat64}}};
  request.deadline = Deadline::after(milliseconds(20'000));
  std::promise<absl::Status> done;
  cluster_->machine(0).edgePuller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
  const absl::Status status = done.get_future().get();
  ASSERT_TRUE(status.ok()) << status;
  for (size_t e = 0; e < wide.size(); ++e) ASSERT_EQ(wide[e], static_cast<double>(whole.features[e]));
  // A part that cuts a number in two is refused.
  request.range = range_;
  request.targets = {{0, upper.data(), {sampler::RowPart{2, 2}, {}}}};
  request.deadline = Deadline::after(milliseconds(20'000));
  std::promise<absl::Status> refused;
  cluster_->machine(0).edgePuller->pull(std::move(request), [&](absl::Status result) { refused.set_value(std::move(result)); });
  EXPECT_EQ(refused.get_future().get().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EdgeFeatures, AreRefused_WhenTheDrawMadeAgainIsAnother) {
  start();
  // Options that the batch was not sampled with: as many edges, but others.
  auto others = std::make_shared<sampler::SamplingOptions>(*range_.sampling);
  others->seed += 1;
  range_.sampling = others;
  PulledEdges pulled;
  const absl::Status status = pullAll(&pulled);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_NE(status.message().find("again"), std::string::npos) << status;
}

TEST_F(EdgeFeatures, NeedCarriedIds_WhereNoDrawsMadeTheEdges) {
  start();
  range_.drawn = false;
  PulledEdges pulled;
  EXPECT_EQ(pullAll(&pulled).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EdgeFeatures, ListWhatExists_WhenTheNameIsUnknown) {
  start(true);
  const sampler::PartitionedGraph& graph = *cluster_->machine(0).graph;
  for (int relation : {0, 1}) {
    const auto index = sampler::edgeFeatureIndex(graph, relation, "y");
    ASSERT_FALSE(index.ok());
    EXPECT_NE(index.status().message().find("'w', 'edge_id'"), std::string::npos) << index.status();
  }
}

}  // namespace
}  // namespace farhop::testing
