// Random walks, importance neighbours and induced subgraphs: the same everywhere, true to the graph, of the right
// distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "partition/dataset.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using sampler::WalkPlan;

struct Layout {
  int parts;
  int machines;
};
constexpr Layout kLayouts[] = {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {5, 2}, {3, 1}};

std::vector<uint64_t> firstIds(uint64_t count) {
  std::vector<uint64_t> ids(count);
  for (uint64_t i = 0; i < count; ++i) ids[i] = (i * 37) % count;
  return ids;
}

sampler::SamplingOptions walkOptions(const WalkPlan& plan, uint32_t walksPerSeed = 1) {
  sampler::SamplingOptions options;
  options.walks = {plan, walksPerSeed};
  options.seed = 7;
  return options;
}

// Batches as one cluster's machine samples them.
struct Job {
  FixtureOptions fixture;
  int seedType = 0;
  std::vector<uint64_t> seeds;
  uint64_t batchSize = 16;
  sampler::SamplingOptions options;
};

// A store of a fixture, written once for all tests.
std::string storeOf(const FixtureOptions& fixture, int parts) {
  static TemporaryDirectory directory;
  static std::set<std::string> written;
  const std::string path = directory / absl::StrCat("store-", parts, fixture.heterogeneous ? "-heterogeneous" : "",
                                                    fixture.addReverse ? "-reverse" : "",
                                                    fixture.declaredWeights ? "-weights" : "");
  if (written.insert(path).second) writeFixtureStore(fixture, parts, path);
  return path;
}

// Samples on every layout, from its first and last machine, with 1 and 4 threads, and expects the same as on one
// partition. Returns that.
std::vector<CanonicalBatch> expectSameEverywhere(const Job& job) {
  std::vector<CanonicalBatch> reference;
  for (const Layout& layout : kLayouts) {
    SamplingCluster cluster(storeOf(job.fixture, layout.parts), layout.machines, rpc::TransportKind::kInProcess, 256);
    for (int machine : {0, layout.machines - 1}) {
      for (int threads : {1, 4}) {
        const auto batches = cluster.sampleEpoch(machine, job.seedType, job.seeds, job.batchSize, 3, job.options, {threads, 3});
        if (reference.empty()) reference = batches;
        EXPECT_EQ(batches.size(), reference.size());
        for (size_t i = 0; i < std::min(batches.size(), reference.size()); ++i) {
          EXPECT_TRUE(batches[i] == reference[i]) << "batch " << i << " differs on " << layout.parts << " partitions of "
                                                  << layout.machines << " machines, machine " << machine << ", "
                                                  << threads << " threads";
        }
      }
    }
  }
  return reference;
}

// In-edges by destination: source -> how often.
using InEdges = std::vector<std::map<uint64_t, std::map<uint64_t, double>>>;

// `reverses`: relations with an index of num relations + r are the reverse of relation r.
InEdges inEdgesOf(const partition::Dataset& dataset) {
  const size_t relations = dataset.edges.size();
  InEdges in(2 * relations);
  for (size_t r = 0; r < relations; ++r) {
    const partition::EdgeList& edges = dataset.edges[r];
    for (uint64_t e = 0; e < edges.source.size(); ++e) {
      in[r][edges.destination[e]][edges.source[e]] += 1;
      in[relations + r][edges.source[e]][edges.destination[e]] += 1;
    }
  }
  return in;
}

// Every step goes along an in-edge, from the node before or after a return from the start; a walk ends only where there
// is none. `steps[i]` are the in-edges that step i of the metapath follows, `types` the node types it passes.
void expectTrueWalks(const CanonicalBatch& batch, const std::vector<std::map<uint64_t, std::map<uint64_t, double>>>& steps,
                     const std::vector<size_t>& types, size_t length) {
  const size_t walks = batch.walks.size() / (length + 1);
  ASSERT_EQ(batch.walks.size(), walks * (length + 1));
  ASSERT_EQ(batch.restarted.size(), walks * length);
  const auto nodeAt = [&](size_t walk, size_t step) {
    const int64_t number = batch.walks[walk * (length + 1) + step];
    return number < 0 ? int64_t{-1} : static_cast<int64_t>(batch.nodes[types[step % types.size()]].at(static_cast<size_t>(number)));
  };
  for (size_t walk = 0; walk < walks; ++walk) {
    ASSERT_EQ(nodeAt(walk, 0), static_cast<int64_t>(batch.seeds[walk / (walks / batch.seeds.size())]));
    for (size_t step = 0; step < length; ++step) {
      const bool restarted = batch.restarted[walk * length + step] != 0;
      ASSERT_TRUE(!restarted || (step > 0 && step % steps.size() == 0));
      const int64_t from = nodeAt(walk, restarted ? 0 : step), to = nodeAt(walk, step + 1);
      if (nodeAt(walk, step) < 0) {
        ASSERT_EQ(to, -1);
        continue;
      }
      const auto row = steps[step % steps.size()].find(static_cast<uint64_t>(from));
      if (row == steps[step % steps.size()].end()) {
        ASSERT_EQ(to, -1);
      } else {
        ASSERT_TRUE(to >= 0 && row->second.count(static_cast<uint64_t>(to)) == 1) << from << " -> " << to;
      }
    }
  }
}

double chiSquareLimit(double k) { return k * std::pow(1 - 2 / (9 * k) + 3.09 * std::sqrt(2 / (9 * k)), 3); }

// Chi-square of counts against weights; categories that hardly occur are put together.
void expectDistribution(const std::map<uint64_t, double>& weights, const std::map<uint64_t, int>& counts, const char* what) {
  double sum = 0, drawn = 0;
  for (const auto& [node, weight] : weights) sum += weight;
  for (const auto& [node, count] : counts) {
    drawn += count;
    ASSERT_GT(weights.count(node) == 1 ? weights.at(node) : 0, 0) << what << ": " << node;
  }
  double chi = 0, restExpected = 0, restCount = 0;
  int categories = 0;
  for (const auto& [node, weight] : weights) {
    const double expected = weight / sum * drawn, count = counts.count(node) == 1 ? counts.at(node) : 0;
    if (expected < 5) {
      restExpected += expected;
      restCount += count;
      continue;
    }
    chi += std::pow(count - expected, 2) / expected;
    ++categories;
  }
  if (restExpected >= 5) {
    chi += std::pow(restCount - restExpected, 2) / restExpected;
    ++categories;
  }
  ASSERT_GT(categories, 1) << what;
  EXPECT_LT(chi, chiSquareLimit(categories - 1)) << what;
}

FixtureOptions smallGraph() {
  FixtureOptions fixture;
  fixture.nodes = 80;
  fixture.edges = 600;
  return fixture;
}

TEST(RandomWalks, AreTheSameEverywhere_AndFollowInEdges) {
  const FixtureOptions fixture = smallGraph();
  const auto in = inEdgesOf(makeFixtureDataset(fixture));
  WalkPlan plain{{{0}}, 12}, restart = plain, second = plain, weighted = plain, all = plain;
  restart.restart = 0.3;
  second.p = 0.25;
  second.q = 4;
  weighted.metapath[0] = {0, true, 0};
  all = weighted;
  all.restart = 0.2;
  all.p = 4;
  all.q = 0.25;
  std::set<std::vector<int64_t>> distinct;
  for (const WalkPlan& plan : {plain, restart, second, weighted, all}) {
    for (const auto& batch : expectSameEverywhere({fixture, 0, firstIds(80), 30, walkOptions(plan, 3)})) {
      expectTrueWalks(batch, {in[0]}, {0}, plan.length);
      if (batch.seeds.size() == 30) distinct.insert(batch.walks);
      const auto restarts = std::count(batch.restarted.begin(), batch.restarted.end(), 1);
      EXPECT_EQ(restarts > 0, plan.restart > 0);
    }
  }
  EXPECT_EQ(distinct.size(), 10u);  // two full batches of each kind
}

TEST(RandomWalks, FollowAMetapath_AcrossNodeTypes) {
  FixtureOptions fixture = smallGraph();
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  const auto in = inEdgesOf(makeFixtureDataset(fixture));
  const auto store = partition::GraphStore::open(storeOf(fixture, 1));
  const int likes = *(*store)->schema().relationIndex("likes"), reverse = *(*store)->schema().relationIndex("rev_likes");
  WalkPlan plan{{{likes}, {reverse}}, 9, 0.4};
  for (const auto& batch : expectSameEverywhere({fixture, 1, firstIds(40), 16, walkOptions(plan, 2)})) {
    expectTrueWalks(batch, {in[1], in[3 + 1]}, {1, 0}, plan.length);
  }
  // A metapath that is walked once need not lead back.
  const int follows = *(*store)->schema().relationIndex("follows");
  plan = {{{likes}, {follows}}, 2};
  for (const auto& batch : expectSameEverywhere({fixture, 1, firstIds(40), 16, walkOptions(plan)})) {
    expectTrueWalks(batch, {in[1], in[0]}, {1, 0, 0}, plan.length);
  }
}

// Reverse relations have weights in files of their own, of no feature.
TEST(RandomWalks, FollowStoredWeights_OnAnyPartitioning) {
  FixtureOptions fixture = smallGraph();
  fixture.addReverse = true;
  fixture.declaredWeights = true;
  const auto in = inEdgesOf(makeFixtureDataset(fixture));
  WalkPlan plan{{{1, true, sampler::kStoredWeights}}, 6}, uniform{{{1}}, 6};
  const Job job{fixture, 0, firstIds(80), 30, walkOptions(plan, 3)};
  const auto batches = expectSameEverywhere(job);
  for (const auto& batch : batches) expectTrueWalks(batch, {in[1]}, {0}, plan.length);
  SamplingCluster cluster(storeOf(fixture, 2), 2, rpc::TransportKind::kInProcess);
  EXPECT_NE(batches[0].walks, cluster.sampleEpoch(0, 0, job.seeds, 30, 3, walkOptions(uniform, 3), {1, 1})[0].walks);
  sampler::SamplingOptions importance;
  importance.fanouts = {{4}, {3}};
  importance.importance = {plan, 12};
  expectSameEverywhere({fixture, 0, firstIds(80), 16, importance});
}

TEST(RandomWalks, AreTheSameOverTcp) {
  WalkPlan plan{{{0}}, 8, 0.1, 0.5, 2};
  std::vector<CanonicalBatch> reference;
  for (auto transport : {rpc::TransportKind::kInProcess, rpc::TransportKind::kUv, rpc::TransportKind::kShm}) {
    SamplingCluster cluster(storeOf(smallGraph(), 2), 2, transport);
    const auto batches = cluster.sampleEpoch(1, 0, firstIds(80), 16, 0, walkOptions(plan), {2, 2});
    if (reference.empty()) reference = batches;
    EXPECT_TRUE(batches == reference);
  }
}

TEST(RandomWalks, OfRepeatedSeedsDiffer_AndEndAtOnceAtIsolatedNodes) {
  WalkPlan plan{{{0}}, 10};
  const auto repeated = expectSameEverywhere({smallGraph(), 0, std::vector<uint64_t>(8, 2), 8, walkOptions(plan, 2)});
  ASSERT_EQ(repeated.size(), 1u);
  std::set<std::vector<int64_t>> distinct;
  for (size_t walk = 0; walk < 16; ++walk) {
    distinct.insert({repeated[0].walks.begin() + static_cast<ptrdiff_t>(walk * 11),
                     repeated[0].walks.begin() + static_cast<ptrdiff_t>((walk + 1) * 11)});
  }
  EXPECT_GT(distinct.size(), 13u);
  plan.restart = 0.5;
  const auto isolated = expectSameEverywhere({smallGraph(), 0, {79, 78}, 8, walkOptions(plan)});
  for (size_t i = 0; i < 22; ++i) EXPECT_EQ(isolated[0].walks[i], i % 11 == 0 ? static_cast<int64_t>(i / 11) : -1);
  EXPECT_EQ(isolated[0].nodes[0].size(), 2u);
}

TEST(RandomWalks, MayBeVeryLong) {
  SamplingCluster cluster(storeOf(smallGraph(), 1), 1, rpc::TransportKind::kInProcess);
  for (double q : {1.0, 2.0}) {
    const WalkPlan plan{{{0}}, sampler::kMaxWalkLength, 0.1, 1, q};
    const auto batch = cluster.sampleEpoch(0, 0, {3}, 1, 0, walkOptions(plan), {1, 1})[0];
    EXPECT_EQ(batch.walks.size(), sampler::kMaxWalkLength + size_t{1});
  }
}

TEST(RandomWalks, ChangeWithSeedEpochAndBatchNumber) {
  SamplingCluster cluster(storeOf(smallGraph(), 1), 1, rpc::TransportKind::kInProcess);
  auto options = walkOptions({{{0}}, 6});
  const std::vector<uint64_t> seeds = {0, 1, 2, 3, 0, 1, 2, 3};
  const auto base = cluster.sampleEpoch(0, 0, seeds, 4, 0, options, {1, 1});
  EXPECT_NE(base[0].walks, base[1].walks);
  EXPECT_NE(cluster.sampleEpoch(0, 0, seeds, 4, 1, options, {1, 1})[0].walks, base[0].walks);
  options.seed = 8;
  EXPECT_NE(cluster.sampleEpoch(0, 0, seeds, 4, 0, options, {1, 1})[0].walks, base[0].walks);
}

// All messages of a step leave together: one per machine and step, whatever the number of walks.
TEST(RandomWalks, SendOneRequestPerStepAndMachine) {
  SamplingCluster cluster(storeOf(smallGraph(), 3), 3, rpc::TransportKind::kInProcess);
  cluster.sampleEpoch(0, 0, firstIds(72), 72, 0, walkOptions({{{0}}, 5}, 20), {1, 1});
  EXPECT_EQ(cluster.machine(0).metrics->neighborMessages.value(), 10);
}

// Steps from nodes that another machine owns are drawn there.
TEST(RandomWalks, CountTheStepsThatOtherMachinesDraw) {
  for (int machines : {1, 3}) {
    SamplingCluster cluster(storeOf(smallGraph(), 3), machines, rpc::TransportKind::kInProcess);
    const WalkPlan plan{{{0}}, 5, 0.2, 0.5, 2};
    const auto batch = cluster.sampleEpoch(0, 0, firstIds(80), 80, 0, walkOptions(plan, 4), {1, 1})[0];
    double steps = 0, remote = 0;
    for (size_t i = 0; i < batch.walks.size(); ++i) {
      if (i % 6 == 0 || batch.walks[i] < 0) continue;
      const size_t walk = i / 6, step = i % 6 - 1;
      const int64_t from = batch.walks[batch.restarted[walk * 5 + step] != 0 ? walk * 6 : i - 1];
      const uint64_t gid = cluster.gid(0, batch.nodes[0][static_cast<size_t>(from)]);
      steps += 1;
      remote += cluster.machine(0).graph->isOwn(cluster.store().book().partitionOf(0, gid)) ? 0 : 1;
    }
    EXPECT_EQ(cluster.machine(0).metrics->sampledEdges.value(), steps);
    EXPECT_EQ(cluster.machine(0).metrics->remoteEdges.value(), remote);
    EXPECT_EQ(remote > 0, machines > 1);
  }
}

// Many walks from one node, on two machines, one of which owns the node.
class ManyWalks {
 public:
  ManyWalks()
      : dataset_(makeFixtureDataset(smallGraph())),
        in_(inEdgesOf(dataset_)),
        cluster_(std::make_unique<SamplingCluster>(storeOf(smallGraph(), 2), 2, rpc::TransportKind::kInProcess)) {}
  const std::map<uint64_t, double>& neighborsOf(uint64_t node) { return in_[0][node]; }
  // Sum of fixture weights of the edges, by source.
  std::map<uint64_t, double> weightsOf(uint64_t node) {
    std::map<uint64_t, double> weights;
    const partition::EdgeList& edges = dataset_.edges[0];
    for (uint64_t e = 0; e < edges.source.size(); ++e) {
      if (edges.destination[e] == node) weights[edges.source[e]] += static_cast<double>(fixtureEdgeFeature(0, e));
    }
    return weights;
  }
  // Walks as lists of original ids.
  std::vector<std::vector<uint64_t>> walks(int machine, uint64_t start, const WalkPlan& plan, uint32_t count) {
    const auto batch = cluster_->sampleEpoch(machine, 0, {start}, 1, 0, walkOptions(plan, count), {1, 1})[0];
    std::vector<std::vector<uint64_t>> walks(count);
    for (size_t i = 0; i < batch.walks.size(); ++i) {
      if (batch.walks[i] >= 0) walks[i / (plan.length + 1)].push_back(batch.nodes[0][static_cast<size_t>(batch.walks[i])]);
    }
    restarted = batch.restarted;
    return walks;
  }
  std::vector<uint8_t> restarted;

 private:
  partition::Dataset dataset_;
  InEdges in_;
  std::unique_ptr<SamplingCluster> cluster_;
};

TEST(RandomWalkSteps, AreUniformOverInEdges_OrFollowTheirWeights) {
  ManyWalks graph;
  for (int machine : {0, 1}) {
    for (bool weighted : {false, true}) {
      std::map<uint64_t, int> first;
      for (const auto& walk : graph.walks(machine, 0, {{{0, weighted, 0}}, 1}, 30'000)) ++first[walk.at(1)];
      expectDistribution(weighted ? graph.weightsOf(0) : graph.neighborsOf(0), first, weighted ? "weighted" : "uniform");
    }
  }
}

// The second step given the first, against its exact probabilities: 1/p back, 1 to neighbours of the node before, 1/q
// elsewhere, each times the number (or weight) of the edges.
TEST(RandomWalkSteps, HaveNode2vecsSecondOrderProbabilities) {
  ManyWalks graph;
  int checked = 0, machine = 0;
  for (const auto& [p, q, weighted] : {std::tuple(0.25, 4.0, false), std::tuple(4.0, 0.25, false), std::tuple(0.1, 1.0, false),
                                       std::tuple(1.0, 3.0, true), std::tuple(20.0, 0.5, true),
                                       std::tuple(1.0, 150.0, false)}) {  // the last takes many tries
    WalkPlan plan{{{0, weighted, 0}}, 2, 0, p, q};
    std::map<uint64_t, std::map<uint64_t, int>> counts;
    const uint64_t start = 0;
    machine = 1 - machine;
    for (const auto& walk : graph.walks(machine, start, plan, q > 100 ? 20'000 : 100'000)) {
      if (walk.size() == 3) ++counts[walk[1]][walk[2]];
    }
    for (const auto& [middle, ends] : counts) {
      std::map<uint64_t, double> weights = weighted ? graph.weightsOf(middle) : graph.neighborsOf(middle);
      if (weights.size() < 3) continue;
      for (auto& [node, weight] : weights) {
        weight *= node == start ? 1 / p : graph.neighborsOf(start).count(node) == 1 ? 1 : 1 / q;
      }
      int total = 0;
      for (const auto& [node, count] : ends) total += count;
      if (total < 1'000) continue;
      expectDistribution(weights, ends, absl::StrCat("p ", p, " q ", q, " over ", middle).c_str());
      ++checked;
    }
  }
  EXPECT_GT(checked, 20);
}

TEST(RandomWalkRestarts, HappenWithTheirProbability) {
  ManyWalks graph;
  const auto walks = graph.walks(0, 0, {{{0}}, 6, 0.3}, 5'000);
  double possible = 0, actual = 0;
  for (size_t walk = 0; walk < walks.size(); ++walk) {
    for (size_t step = 1; step < 6 && step < walks[walk].size(); ++step) {
      possible += 1;
      actual += graph.restarted[walk * 6 + step];
    }
  }
  EXPECT_NEAR(actual / possible, 0.3, 4 * std::sqrt(0.21 / possible));
}

// After a return to the start there is no node before: p and q have no say.
TEST(RandomWalkRestarts, BeginAnew) {
  ManyWalks graph;
  std::map<uint64_t, int> counts;
  for (int machine : {0, 1}) {
    const auto walks = graph.walks(machine, 0, {{{0}}, 3, 0.8, 100, 0.2}, 30'000);
    counts.clear();
    for (size_t walk = 0; walk < walks.size(); ++walk) {
      if (graph.restarted[walk * 3 + 2] != 0) ++counts[walks[walk].at(3)];
    }
    expectDistribution(graph.neighborsOf(0), counts, "after a return");
  }
}

sampler::SamplingOptions importanceOptions(std::vector<int64_t> fanouts, const WalkPlan& plan, uint32_t walksPerNode) {
  sampler::SamplingOptions options;
  for (int64_t fanout : fanouts) options.fanouts.push_back({fanout});
  options.importance = {plan, walksPerNode};
  options.seed = 7;
  return options;
}

// The first hop's walks are those that a batch of walks takes from the same seeds: count their visits by hand.
TEST(ImportanceNeighbors, AreTheNodesVisitedMost) {
  const FixtureOptions fixture = smallGraph();
  const WalkPlan plan{{{0}}, 4, 0.3};
  const uint32_t walksPerNode = 9;
  SamplingCluster cluster(storeOf(fixture, 2), 2, rpc::TransportKind::kInProcess);
  const auto walks = cluster.sampleEpoch(0, 0, firstIds(80), 20, 0, walkOptions(plan, walksPerNode), {1, 1});
  for (int64_t fanout : {3, -1, 1000}) {
    const auto batches = cluster.sampleEpoch(0, 0, firstIds(80), 20, 0, importanceOptions({fanout}, plan, walksPerNode), {1, 1});
    ASSERT_EQ(batches.size(), walks.size());
    for (size_t b = 0; b < batches.size(); ++b) {
      const auto& rows = batches[b].relations.at(0);
      ASSERT_EQ(rows.indptr.size(), 21u);
      for (size_t seed = 0; seed < 20; ++seed) {
        std::vector<std::pair<uint64_t, uint32_t>> visits;  // in order of the first visit
        for (size_t walk = seed * walksPerNode; walk < (seed + 1) * walksPerNode; ++walk) {
          for (size_t step = 1; step <= 4; ++step) {
            const int64_t number = walks[b].walks[walk * 5 + step];
            if (number < 0 || static_cast<size_t>(number) == seed) continue;
            const uint64_t node = walks[b].nodes[0][static_cast<size_t>(number)];
            auto at = std::find_if(visits.begin(), visits.end(), [&](auto& v) { return v.first == node; });
            if (at == visits.end()) at = visits.insert(visits.end(), {node, 0});
            ++at->second;
          }
        }
        std::stable_sort(visits.begin(), visits.end(), [](auto& one, auto& other) { return one.second > other.second; });
        if (fanout >= 0) visits.resize(std::min<size_t>(visits.size(), static_cast<size_t>(fanout)));
        const uint32_t from = rows.indptr[seed];
        ASSERT_EQ(rows.indptr[seed + 1] - from, visits.size());
        for (uint32_t i = 0; i < visits.size(); ++i) {
          EXPECT_EQ(batches[b].nodes[0][rows.indices[from + i]], visits[i].first);
          EXPECT_EQ(rows.visits[from + i], visits[i].second);
        }
      }
    }
  }
}

TEST(ImportanceNeighbors, AreTheSameEverywhere) {
  FixtureOptions fixture = smallGraph();
  const auto batches = expectSameEverywhere({fixture, 0, firstIds(80), 16, importanceOptions({4, 3, 0}, {{{0}}, 3, 0.2}, 12)});
  for (const auto& batch : batches) {
    EXPECT_EQ(batch.relations[0].indptr.size(), batch.nodesByHop[0][2] + 1u);
    EXPECT_EQ(batch.nodesByHop[0].size(), 4u);
    EXPECT_EQ(batch.nodesByHop[0][3], batch.nodes[0].size());
    for (size_t row = 0; row + 1 < batch.relations[0].indptr.size(); ++row) {
      const uint32_t count = batch.relations[0].indptr[row + 1] - batch.relations[0].indptr[row];
      EXPECT_LE(count, row < batch.nodesByHop[0][0] ? 4u : row < batch.nodesByHop[0][1] ? 3u : 0u);
    }
  }
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  const auto store = partition::GraphStore::open(storeOf(fixture, 1));
  const int likes = *(*store)->schema().relationIndex("likes"), reverse = *(*store)->schema().relationIndex("rev_likes");
  for (const auto& batch : expectSameEverywhere(
           {fixture, 1, firstIds(40), 10, importanceOptions({5, 2}, {{{likes}, {reverse}}, 4, 0.5}, 8)})) {
    EXPECT_EQ(batch.nodes[0].size(), 0u);  // users are on the way only
    EXPECT_GT(batch.nodes[1].size(), 10u);
  }
}

// Visits of one-step walks are draws from the in-edges (the start's own self loops do not count).
TEST(ImportanceNeighbors, AreVisitedInProportionToTheirProbability) {
  SamplingCluster cluster(storeOf(smallGraph(), 2), 2, rpc::TransportKind::kInProcess);
  auto weights = inEdgesOf(makeFixtureDataset(smallGraph()))[0][0];
  weights.erase(0);
  const auto batch = cluster.sampleEpoch(0, 0, {0}, 1, 0, importanceOptions({-1}, {{{0}}, 1}, 20'000), {1, 1})[0];
  std::map<uint64_t, int> counts;
  for (size_t i = 0; i < batch.relations[0].indices.size(); ++i) {
    counts[batch.nodes[0][batch.relations[0].indices[i]]] = static_cast<int>(batch.relations[0].visits[i]);
  }
  expectDistribution(weights, counts, "visits");
}

// All edges between the batch's nodes, row by row in order of (original source id, edge id), and no others.
void expectInduced(const CanonicalBatch& batch, const partition::Dataset& dataset) {
  for (size_t r = 0; r < dataset.edges.size(); ++r) {
    const partition::Relation& relation = dataset.schema.relations[r];
    const partition::EdgeList& edges = dataset.edges[r];
    std::map<uint64_t, uint32_t> numberOf;
    const auto& sources = batch.nodes[static_cast<size_t>(relation.source)];
    const auto& destinations = batch.nodes[static_cast<size_t>(relation.destination)];
    for (uint32_t i = 0; i < sources.size(); ++i) numberOf[sources[i]] = i;
    std::map<uint64_t, std::vector<std::pair<uint64_t, uint64_t>>> rows;  // destination -> (source, edge)
    for (uint64_t e = 0; e < edges.source.size(); ++e) {
      if (numberOf.count(edges.source[e]) == 1) rows[edges.destination[e]].push_back({edges.source[e], e});
    }
    const auto& induced = batch.relations[r];
    ASSERT_EQ(induced.indptr.size(), destinations.size() + 1);
    for (size_t row = 0; row < destinations.size(); ++row) {
      auto& expected = rows[destinations[row]];
      std::sort(expected.begin(), expected.end());
      const uint32_t from = induced.indptr[row];
      ASSERT_EQ(induced.indptr[row + 1] - from, expected.size());
      for (uint32_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(induced.indices[from + i], numberOf[expected[i].first]);
        ASSERT_TRUE(induced.edgeIds.empty() || induced.edgeIds[from + i] == expected[i].second);
      }
    }
  }
}

sampler::SamplingOptions inducedOptions(std::vector<std::vector<int64_t>> fanouts, bool edgeIds = true) {
  sampler::SamplingOptions options;
  options.fanouts = std::move(fanouts);
  options.subgraph = sampler::Subgraph::kInduced;
  options.seed = 7;
  options.edgeIds = edgeIds;
  return options;
}

TEST(InducedSubgraphs, HaveAllEdgesBetweenTheirNodes) {
  const FixtureOptions fixture = smallGraph();
  const auto dataset = makeFixtureDataset(fixture);
  for (const auto& fanouts : std::vector<std::vector<std::vector<int64_t>>>{{{3}, {2}}, {}, {{0}}, {{-1}, {-1}}}) {
    for (bool edgeIds : {true, false}) {
      const auto batches = expectSameEverywhere({fixture, 0, firstIds(80), 24, inducedOptions(fanouts, edgeIds)});
      for (const auto& batch : batches) {
        expectInduced(batch, dataset);
        EXPECT_EQ(batch.relations[0].edgeIds.empty(), !edgeIds);
        EXPECT_EQ(batch.nodesByHop[0], (std::vector<uint32_t>(2, static_cast<uint32_t>(batch.nodes[0].size()))));
      }
    }
  }
  // Of all nodes: the whole graph, parallel edges and self loops included.
  const auto all = expectSameEverywhere({fixture, 0, firstIds(80), 80, inducedOptions({})});
  EXPECT_EQ(all[0].relations[0].indices.size(), fixture.edges);
}

TEST(InducedSubgraphs, HaveEveryRelation_AndOneCsrEachWhereHopsHadTheirOwn) {
  FixtureOptions fixture = smallGraph();
  fixture.heterogeneous = true;
  const auto dataset = makeFixtureDataset(fixture);
  for (auto expand : {sampler::Expand::kNew, sampler::Expand::kAll}) {
    auto options = inducedOptions({{2, 3, 1}, {1, 0, 2}});
    options.expand = expand;
    for (const auto& batch : expectSameEverywhere({fixture, 1, firstIds(40), 12, options})) {
      ASSERT_EQ(batch.relations.size(), 3u);
      expectInduced(batch, dataset);
    }
  }
  // Users alone: relations that end or begin at items have no edges, but rows where there are nodes.
  const auto users = expectSameEverywhere({fixture, 0, firstIds(40), 40, inducedOptions({})});
  expectInduced(users[0], dataset);
  EXPECT_EQ(users[0].relations[1].indptr.size(), 1u);
}

}  // namespace
}  // namespace farhop::testing
