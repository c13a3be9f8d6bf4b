// Which remote rows partitions keep, and what trainers make of them: the same bytes, with less on the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <numeric>
#include <set>

#include "base/file.h"
#include "base/random.h"
#include "partition/cache_plan.h"
#include "partition/layout.h"
#include "partition/store_writer.h"
#include "sampler/feature_cache.h"
#include "sampler/feature_service.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop {
namespace {

using partition::CacheOptions;
using partition::CachePlanner;
using partition::CachePolicy;
using partition::GraphShard;
using partition::GraphStore;
using testing::FixtureOptions;
using testing::SamplingCluster;
using testing::TemporaryDirectory;
using testing::writeFixtureStore;

constexpr auto kTransport = rpc::TransportKind::kInProcess;

struct OpenedStore {
  std::shared_ptr<const GraphStore> store;
  std::vector<GraphShard> shards;
};

OpenedStore openStore(const std::string& path) {
  OpenedStore opened{GraphStore::open(path).value(), {}};
  for (int k = 0; k < opened.store->numPartitions(); ++k) opened.shards.push_back(*opened.store->openPartition(k));
  return opened;
}

std::vector<int> allTypes(const GraphStore& store) {
  std::vector<int> types(store.schema().nodeTypes.size());
  std::iota(types.begin(), types.end(), 0);
  return types;
}

// Nodes 0 to 6, one relation: 1 -> 0, 2 -> 0, 3 -> 1, 3 -> 2, 4 -> 3, 5 -> 3, 6 -> 3, and 0 -> 0. Node 0 is the only
// train seed, alone in partition 0.
std::string writeTree(const CacheOptions& cache, const std::string& directory) {
  using namespace partition;
  Dataset dataset;
  dataset.schema.nodeTypes = {{"n", 7, {{"x", DType::kInt64, {}}}}};
  dataset.schema.relations = {{"to", 0, 0, 8, -1, {}}};
  dataset.edges = {{IdColumn({1, 2, 3, 3, 4, 5, 6, 0}), IdColumn({0, 0, 1, 2, 3, 3, 3, 0}), "edges.npy"}};
  auto rows = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{10, 11, 12, 13, 14, 15, 16});
  dataset.nodeFeatures = {{{reinterpret_cast<const std::byte*>(rows->data()), rows->size(), rows, "x.npy"}}};
  dataset.edgeFeatures.resize(1);
  dataset.splits = {{"train", 0, {0}}};
  StoreWriterOptions writer;
  writer.directory = directory;
  writer.cache = cache;
  const absl::Status written = writeStore(dataset, {2, {{0, 1, 1, 1, 1, 1, 1}}}, writer);
  EXPECT_TRUE(written.ok()) << written;
  return directory;
}

TEST(VertexInclusion, IsWhatOneComputesByHand) {
  const TemporaryDirectory directory;
  CacheOptions options;
  options.fraction = 1;
  options.fanouts = {2, 2};
  const OpenedStore opened = openStore(writeTree(options, directory / "store"));
  const CachePlanner planner(opened.store->directory(), opened.store->manifest(), options, {0});
  const auto score = planner.inclusion(0).value()[0];  // gids are original ids here
  EXPECT_EQ(score[0], 1.0);
  // Hop 1: 1 and 2 with 2/3 each. Hop 2: 3 through both, and 1 and 2 again through 0's edge to itself.
  const double first = 2.0 / 3, again = first * (2.0 / 3);
  EXPECT_DOUBLE_EQ(score[1], 1 - (1 - first) * (1 - again));
  EXPECT_DOUBLE_EQ(score[3], 1 - (1 - first) * (1 - first));
  EXPECT_EQ(score[4], 0.0);
  const auto plan = planner.plan(0).value();
  EXPECT_THAT(plan.gids[0], ::testing::ElementsAre(1, 2, 3));  // 3.5 rows; 4 and others have no chance
  EXPECT_DOUBLE_EQ(plan.expectedRows, score[1] + score[2] + score[3]);
  EXPECT_DOUBLE_EQ(plan.expectedHits, plan.expectedRows);
  // Partition 1 has no seeds: nothing is expected, nothing is kept.
  EXPECT_THAT(planner.plan(1).value().gids[0], ::testing::IsEmpty());
}

TEST(VertexInclusion, KeepsTheLowerOriginalId_WhenScoresAreTheSame) {
  const TemporaryDirectory directory;
  CacheOptions options;
  options.fraction = 0.3;
  options.fanouts = {3};
  const OpenedStore opened = openStore(writeTree(options, directory / "store"));
  EXPECT_EQ(opened.shards[0].cache(0)->gids.size(), 1u);
  EXPECT_EQ(opened.shards[0].cache(0)->gids[0], 1u);
  int64_t row = 0;
  std::memcpy(&row, opened.shards[0].cache(0)->features.at("x").row(0), sizeof(row));
  EXPECT_EQ(row, 11);
}

class CachePlan : public ::testing::TestWithParam<std::tuple<bool, int>> {
 protected:
  void SetUp() override {
    fixture_.heterogeneous = std::get<0>(GetParam());
    fixture_.addReverse = true;
    fixture_.edgeSplits = true;
    fixture_.nodes = 150;
    fixture_.edges = 900;
    // Written once for all tests of a case: a store is synced, which takes its time.
    static const TemporaryDirectory directory;
    const int parts = std::get<1>(GetParam());
    const std::string path = directory / absl::StrCat(fixture_.heterogeneous ? "several" : "one", "-", parts);
    if (!std::filesystem::exists(path)) writeFixtureStore(fixture_, parts, path);
    opened_ = openStore(path);
  }

  // The formulas of cache_plan.h, with products of complements, over edges in any order.
  std::vector<std::vector<double>> scores(int partition, const CacheOptions& options) const {
    const partition::Schema& schema = opened_.store->schema();
    std::vector<std::vector<double>> missed;  // prod of (1 - p_h)
    for (const auto& type : schema.nodeTypes) missed.emplace_back(type.count, 1.0);
    auto start = missed;
    const GraphShard& own = opened_.shards[partition];
    const auto batch = static_cast<double>(options.batch);
    const auto seeds = own.split("train", 0);
    for (uint64_t gid : seeds) start[0][gid] *= 1 - std::min(1.0, batch / static_cast<double>(seeds.size()));
    const auto edges = own.edgeSplit("train", 0);
    for (uint64_t gid : edges.ends) start[0][gid] *= 1 - std::min(1.0, batch / static_cast<double>(edges.size()));
    auto complement = start;
    for (size_t hop = 0;; ++hop) {
      for (size_t t = 0; t < missed.size(); ++t) {
        for (size_t i = 0; i < missed[t].size(); ++i) missed[t][i] *= complement[t][i];
      }
      if (hop == options.fanouts.size()) break;
      complement = nextHop(options.fanouts[hop], complement);
    }
    for (auto& type : missed) {
      for (double& value : type) value = 1 - value;
    }
    return missed;
  }

  std::vector<std::vector<double>> nextHop(int64_t fanout, const std::vector<std::vector<double>>& before) const {
    const partition::Schema& schema = opened_.store->schema();
    std::vector<std::vector<double>> after;
    for (const auto& type : schema.nodeTypes) after.emplace_back(type.count, 1.0);
    for (size_t r = 0; r < schema.relations.size(); ++r) {
      const int destination = schema.relations[r].destination;
      for (const GraphShard& shard : opened_.shards) {
        const auto& csr = shard.relation(static_cast<int>(r));
        for (uint64_t row = 0; row < csr.rows(); ++row) {
          const auto degree = static_cast<double>(csr.indptr[row + 1] - csr.indptr[row]);
          const double p = 1 - before[destination][opened_.store->book().begin(destination, shard.index()) + row];
          const double drawn = fanout < 0 ? 1 : std::min(1.0, static_cast<double>(fanout) / degree);
          for (uint64_t e = csr.indptr[row]; e < csr.indptr[row + 1]; ++e) {
            after[schema.relations[r].source][csr.neighbors32[e]] *= 1 - drawn * p;
          }
        }
      }
    }
    return after;
  }

  // Out-edges over all relations, counted edge by edge.
  std::vector<double> degrees(int nodeType) const {
    std::vector<double> counts(opened_.store->schema().nodeTypes[nodeType].count, 0);
    for (size_t r = 0; r < opened_.store->schema().relations.size(); ++r) {
      if (opened_.store->schema().relations[r].source != nodeType) continue;
      for (const GraphShard& shard : opened_.shards) {
        for (uint32_t gid : shard.relation(static_cast<int>(r)).neighbors32) ++counts[gid];
      }
    }
    return counts;
  }

  // `chosen` are the first of all remote nodes by (score, original id), as many as `fraction` gives room for.
  void expectHottest(int partition, int nodeType, const std::set<uint64_t>& chosen, const std::vector<double>& score,
                     double fraction) const {
    const partition::PartitionBook& book = opened_.store->book();
    std::vector<std::pair<double, uint64_t>> ranked;
    std::map<std::pair<double, uint64_t>, uint64_t> gids;
    for (uint64_t gid = 0; gid < score.size(); ++gid) {
      const int owner = book.partitionOf(nodeType, gid);
      if (owner == partition || score[gid] == 0) continue;
      const uint64_t id = opened_.shards[owner].originalIds(nodeType)[gid - book.begin(nodeType, owner)];
      ranked.emplace_back(-score[gid], id);
      gids[ranked.back()] = gid;
    }
    std::sort(ranked.begin(), ranked.end());
    const auto room = static_cast<size_t>(fraction * static_cast<double>(score.size()) / book.numPartitions());
    ranked.resize(std::min(ranked.size(), room));
    std::set<uint64_t> expected;
    for (const auto& entry : ranked) expected.insert(gids[entry]);
    EXPECT_EQ(chosen, expected);
  }

  FixtureOptions fixture_;
  OpenedStore opened_;
};

TEST_P(CachePlan, ScoresAreTheFormulas_OverAllRelations) {
  for (const std::vector<int64_t>& fanouts : {std::vector<int64_t>{3, 2}, {-1}, {2, 0, 4}, {1, 1, 1}}) {
    CacheOptions options;
    options.fanouts = fanouts;
    options.batch = 7;
    const CachePlanner planner(opened_.store->directory(), opened_.store->manifest(), options, {});
    for (const GraphShard& shard : opened_.shards) {
      const auto expected = scores(shard.index(), options);
      const auto found = planner.inclusion(shard.index()).value();
      ASSERT_EQ(found.size(), expected.size());
      for (size_t t = 0; t < found.size(); ++t) {
        for (size_t i = 0; i < found[t].size(); ++i) ASSERT_NEAR(found[t][i], expected[t][i], 1e-12);
      }
    }
  }
}

TEST_P(CachePlan, KeepsTheHottestRemoteNodes_ByEitherPolicy) {
  const partition::PartitionBook& book = opened_.store->book();
  for (CachePolicy policy : {CachePolicy::kVip, CachePolicy::kDegree}) {
    CacheOptions options;
    options.policy = policy;
    options.fraction = 0.4;
    options.fanouts = {3, 2};
    options.batch = 7;
    const CachePlanner planner(opened_.store->directory(), opened_.store->manifest(), options, allTypes(*opened_.store));
    for (const GraphShard& shard : opened_.shards) {
      const int k = shard.index();
      auto score = planner.inclusion(k).value();
      double remote = 0, kept = 0;
      const auto plan = planner.plan(k).value();
      for (int t : allTypes(*opened_.store)) {
        const std::set<uint64_t> chosen(plan.gids[t].begin(), plan.gids[t].end());
        for (uint64_t gid = 0; gid < score[t].size(); ++gid) {
          if (book.partitionOf(t, gid) == k) continue;
          remote += score[t][gid];
          kept += chosen.count(gid) > 0 ? score[t][gid] : 0;
        }
        if (policy == CachePolicy::kDegree) score[t] = degrees(t);
        expectHottest(k, t, chosen, score[t], options.fraction);
      }
      EXPECT_NEAR(plan.expectedRows, remote, 1e-9);
      EXPECT_NEAR(plan.expectedHits, kept, 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, CachePlan, ::testing::Combine(::testing::Bool(), ::testing::Values(2, 5)));

// Four partitions by METIS, of which every one keeps half as many rows as it owns.
FixtureOptions clusteredGraph() {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  fixture.nodes = 600;
  fixture.edges = 1500;
  fixture.method = partition::PartitionMethod::kMetis;
  fixture.cache.fraction = 0.5;
  fixture.cache.fanouts = {3, 3};
  fixture.cache.batch = 16;
  return fixture;
}

struct Traffic {
  double own = 0, cached = 0, remote = 0, bytes = 0;
};

Traffic trafficOf(const SamplingCluster& cluster, int machine) {
  const sampler::SamplerMetrics& metrics = *const_cast<SamplingCluster&>(cluster).machine(machine).metrics;
  return {metrics.ownRows.value(), metrics.cachedRows.value(), metrics.remoteRows.value(), metrics.featureBytes.value()};
}

class CachedPull : public ::testing::Test {
 protected:
  static const std::string& store() {
    static const TemporaryDirectory directory;
    static const std::string path = writeFixtureStore(clusteredGraph(), 4, directory / "store");
    return path;
  }
  // Gids of a type with repetitions, in no order.
  static std::vector<uint64_t> someGids(const GraphStore& store, int nodeType, uint64_t seed) {
    KeyedRandom random(seed);
    std::vector<uint64_t> gids(1000);
    for (uint64_t& gid : gids) gid = random.below(store.book().numNodes(nodeType));
    return gids;
  }
};

TEST_F(CachedPull, BringsTheSameBytes_OnAnyNumberOfMachines) {
  for (int machines : {1, 2, 3, 4}) {
    SamplingCluster cluster(store(), machines, kTransport, 256);
    for (int m = 0; m < machines; ++m) {
      for (int type : {0, 1}) {
        const auto gids = someGids(cluster.store(), type, static_cast<uint64_t>(10 * m + type));
        for (const char* feature : {"x", "label", "original_id"}) {
          const Traffic before = trafficOf(cluster, m);
          const auto without = cluster.pull(m, type, feature, gids, false);
          const Traffic between = trafficOf(cluster, m);
          EXPECT_EQ(between.cached, before.cached);
          const auto with = cluster.pull(m, type, feature, gids, true);
          const Traffic after = trafficOf(cluster, m);
          EXPECT_EQ(with, without);
          EXPECT_EQ(after.own - between.own, between.own - before.own);
          EXPECT_EQ(after.own + after.cached + after.remote - between.own - between.cached - between.remote, 1000);
          const bool cachedFeature = machines > 1 && std::string(feature) != "original_id";
          EXPECT_EQ(after.cached > between.cached, cachedFeature);
          EXPECT_EQ(after.bytes - between.bytes < between.bytes - before.bytes, cachedFeature);
        }
        const auto x = cluster.pull(m, type, "x", gids);
        for (size_t i = 0; i < gids.size(); ++i) {
          float value = 0;
          std::memcpy(&value, x.data() + (4 * i + 3) * sizeof(float), sizeof(value));
          ASSERT_EQ(value, testing::fixtureFeature(type, cluster.originalId(type, gids[i]), 3));
        }
      }
    }
  }
}

TEST_F(CachedPull, SendsNothing_WhenAllIsCached) {
  SamplingCluster cluster(store(), 4, kTransport);
  const OpenedStore opened = openStore(store());
  for (const GraphShard& shard : opened.shards) {
    const partition::NodeCache& cache = *shard.cache(0);
    std::vector<uint64_t> gids;
    for (uint64_t i = 0; i < cache.gids.size(); ++i) gids.push_back(cache.gids[i]);
    ASSERT_GT(gids.size(), 10u);
    std::reverse(gids.begin(), gids.end());
    const auto rows = cluster.pull(shard.index(), 0, "label", gids);
    for (size_t i = 0; i < gids.size(); ++i) {
      int64_t label = 0;
      std::memcpy(&label, rows.data() + i * sizeof(label), sizeof(label));
      EXPECT_EQ(label, testing::fixtureLabel(0, cluster.originalId(0, gids[i])));
    }
    const Traffic traffic = trafficOf(cluster, shard.index());
    EXPECT_EQ(traffic.cached, static_cast<double>(gids.size()));
    EXPECT_EQ(traffic.own + traffic.remote + traffic.bytes, 0);
  }
}

// Rows that land in their place (wide ones) and rows that are staged: what is cached is copied here, and its owner neither
// reads nor writes it.
TEST(CachedBulkPull, TakesCachedRowsHere_AndAsksTheOwnersForTheOthersOnly) {
  for (uint64_t floats : {4, 2100}) {
    const TemporaryDirectory directory;
    FixtureOptions fixture = clusteredGraph();
    fixture.nodes = 80;
    fixture.edges = 200;
    fixture.featureDim = floats;
    const std::string path = writeFixtureStore(fixture, 4, directory / "store");
    SamplingCluster plain(path, 4, kTransport), fast(path, 4, testing::BulkCluster{});
    const size_t rowBytes = floats * sizeof(float);
    const auto bytesRead = [&](int machine) { return fast.machine(machine).metrics->featureBytesRead.value(); };
    for (int type : {0, 1}) {
      std::vector<uint64_t> gids(plain.store().book().numNodes(type));
      std::iota(gids.begin(), gids.end(), uint64_t{0});
      std::reverse(gids.begin(), gids.end());
      auto rows = std::make_shared<std::vector<std::byte>>(gids.size() * rowBytes, std::byte{0xEE});
      std::vector<double> before;
      for (int m = 0; m < 4; ++m) before.push_back(bytesRead(m));
      const Traffic trafficBefore = trafficOf(fast, 1);
      sampler::PullRequest request;
      request.nodeType = type;
      request.gids = gids;
      request.targets = {{*sampler::featureIndex(*fast.machine(1).graph, type, "x"), rows->data()}};
      request.keepAlive = rows;
      request.deadline = Deadline::after(std::chrono::seconds(20));
      std::promise<absl::Status> done;
      fast.machine(1).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
      ASSERT_TRUE(done.get_future().get().ok());
      EXPECT_EQ(*rows, plain.pull(1, type, "x", gids, false)) << floats << " floats, type " << type;
      const Traffic after = trafficOf(fast, 1);
      const double cached = after.cached - trafficBefore.cached, remote = after.remote - trafficBefore.remote;
      EXPECT_EQ(cached, static_cast<double>(fast.machine(1).graph->featureCache().rows(type)));
      EXPECT_GT(cached, 0);
      EXPECT_GT(remote, 0);
      double readByOthers = 0;
      for (int m : {0, 2, 3}) readByOthers += bytesRead(m) - before[static_cast<size_t>(m)];
      EXPECT_EQ(readByOthers, remote * static_cast<double>(rowBytes));
      EXPECT_EQ(bytesRead(1) - before[1], (static_cast<double>(gids.size()) - remote) * static_cast<double>(rowBytes));
    }
    EXPECT_GT(fast.machine(1).bulk->traffic().arrivals, 0u);
  }
}

TEST_F(CachedPull, LeavesOutWhatTheMachineOwns_AndSecondCopies) {
  const OpenedStore opened = openStore(store());
  for (int machines : {1, 2, 3, 4}) {
    const std::vector<int> owners = opened.store->assign(machines).value();
    for (int m = 0; m < machines; ++m) {
      const auto graph = sampler::PartitionedGraph::open(opened.store, m, machines).value();
      const sampler::FeatureCache& cache = graph->featureCache();
      uint64_t all = 0;
      for (int t : {0, 1}) {
        std::set<uint64_t> remote;
        for (const GraphShard& shard : opened.shards) {
          if (owners[shard.index()] != m) continue;
          for (uint64_t i = 0; i < shard.cache(t)->gids.size(); ++i) {
            const uint64_t gid = shard.cache(t)->gids[i];
            if (owners[opened.store->book().partitionOf(t, gid)] != m) remote.insert(gid);
          }
        }
        EXPECT_EQ(cache.rows(t), remote.size());
        EXPECT_EQ(cache.has(t, 0), machines > 1);
        EXPECT_FALSE(cache.has(t, sampler::kOriginalIdFeature));
        EXPECT_FALSE(cache.has(t, sampler::JobFeatures::kFirstIndex));
        all += remote.size();
      }
      EXPECT_LE(cache.privateBytes(), 8 * all);
    }
  }
}

TEST_F(CachedPull, FindsAllAndNothingElse) {
  const OpenedStore opened = openStore(store());
  const auto graph = sampler::PartitionedGraph::open(opened.store, 1, 2).value();
  const sampler::FeatureCache& cache = graph->featureCache();
  std::vector<uint32_t> rows, slots;
  for (uint32_t gid = 0; gid < opened.store->book().numNodes(0); ++gid) {
    if (graph->isOwn(opened.store->book().partitionOf(0, gid))) continue;
    rows.push_back(gid);
    slots.push_back(gid);
  }
  const size_t wanted = rows.size();
  auto hits = cache.noHits(0);
  cache.take(0, {0, &rows, &slots}, &hits);
  size_t found = 0;
  for (const auto& of : hits) {
    ASSERT_EQ(of.rows.size(), of.slots.size());
    found += of.rows.size();
    for (size_t i = 0; i < of.rows.size(); ++i) {
      EXPECT_EQ(opened.shards[of.partition].cache(0)->gids[of.rows[i]], of.slots[i]);
    }
  }
  EXPECT_EQ(found, cache.rows(0));
  EXPECT_EQ(rows.size() + found, wanted);
  EXPECT_EQ(rows, slots);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
}

// What is not cached, alone or beside what is, comes from the owners.
TEST(CacheOfSomeFeatures, LeavesTheOthersToTheOwners) {
  const TemporaryDirectory directory;
  FixtureOptions fixture;
  fixture.cache.fraction = 1;
  fixture.cache.features = {"x"};
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, kTransport);
  const std::vector<uint64_t> gids = {59, 0, 31, 30, 29, 40, 59};
  const sampler::PartitionedGraph& graph = *cluster.machine(0).graph;
  const uint32_t x = *sampler::featureIndex(graph, 0, "x"), label = *sampler::featureIndex(graph, 0, "label");
  EXPECT_TRUE(graph.featureCache().has(0, x));
  EXPECT_FALSE(graph.featureCache().has(0, label));
  const auto labels = cluster.pull(0, 0, "label", gids);
  EXPECT_EQ(trafficOf(cluster, 0).cached, 0);
  const auto rows = cluster.pull(0, 0, "x", gids);
  EXPECT_GT(trafficOf(cluster, 0).cached, 0);
  std::vector<std::byte> both[2] = {std::vector<std::byte>(rows.size()), std::vector<std::byte>(labels.size())};
  sampler::PullRequest request;
  request.gids = gids;
  request.targets = {{x, both[0].data()}, {label, both[1].data()}};
  request.deadline = Deadline::after(std::chrono::seconds(20));
  std::promise<absl::Status> done;
  cluster.machine(0).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(status); });
  ASSERT_TRUE(done.get_future().get().ok());
  EXPECT_EQ(both[0], rows);
  EXPECT_EQ(both[1], labels);
}

// The proof of the whole: batches as without, and fewer rows from other machines.
TEST(CachedBatches, AreTheSame_AndPullFewerRemoteRows) {
  const TemporaryDirectory directory;
  FixtureOptions fixture = clusteredGraph();
  writeFixtureStore(fixture, 4, directory / "cached");
  fixture.cache = {};
  writeFixtureStore(fixture, 4, directory / "plain");
  SamplingCluster cached(directory / "cached", 4, kTransport), plain(directory / "plain", 4, kTransport);
  sampler::SamplingOptions options;
  options.fanouts.assign(2, std::vector<int64_t>(cached.store().schema().relations.size(), 3));
  double without = 0, with = 0;
  for (int m = 0; m < 4; ++m) {
    // As seeds are dealt by owner.
    const auto& store = cached.store();
    std::vector<uint64_t> seeds;
    const GraphShard shard = *store.openPartition(m);
    for (uint64_t gid : shard.split("train", 0)) seeds.push_back(cached.originalId(0, gid));
    const auto expected = plain.sampleEpoch(m, 0, seeds, 16, 1, options, {1, 2});
    EXPECT_TRUE(cached.sampleEpoch(m, 0, seeds, 16, 1, options, {1, 2}) == expected);
    const Traffic a = trafficOf(plain, m), b = trafficOf(cached, m);
    EXPECT_EQ(a.cached, 0);
    EXPECT_EQ(a.own, b.own);
    EXPECT_EQ(a.remote, b.remote + b.cached);
    without += a.remote;
    with += b.remote;
  }
  EXPECT_GT(without, 1000);
  EXPECT_LT(with, 0.75 * without);
  std::printf("remote rows: %.0f without a cache, %.0f with\n", without, with);
}

TEST(CachedStores, AreTheSameBytesEachTime) {
  const TemporaryDirectory directory;
  for (CachePolicy policy : {CachePolicy::kVip, CachePolicy::kDegree}) {
    FixtureOptions fixture;
    fixture.cache.fraction = 0.5;
    fixture.cache.policy = policy;
    const std::string name(partition::cachePolicyName(policy));
    const std::string first = writeFixtureStore(fixture, 3, directory / ("1" + name));
    const std::string second = writeFixtureStore(fixture, 3, directory / ("2" + name));
    EXPECT_EQ(readFile(first + "/graph.json").value(), readFile(second + "/graph.json").value());
  }
}

}  // namespace
}  // namespace farhop
