// The same batch everywhere: whatever the partitions, machines, threads and transports.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "partition/dataset.h"
#include "sampler/neighbor_service.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

struct Layout {
  int parts;
  int machines;
};
constexpr Layout kLayouts[] = {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {5, 2}, {3, 1}};

sampler::SamplingOptions samplingOptions(const partition::Schema& schema, std::vector<int64_t> fanouts) {
  sampler::SamplingOptions options;
  for (int64_t fanout : fanouts) {
    options.fanouts.emplace_back(schema.relations.size(), fanout);
  }
  options.seed = 7;
  options.edgeIds = true;
  return options;
}

// Samples on every layout, from its first and last machine, with 1 and 4 threads, and expects the same as on one
// partition. Returns that.
std::vector<CanonicalBatch> expectSameEverywhere(const FixtureOptions& fixture, int seedType,
                                                 const std::vector<uint64_t>& seeds, uint64_t batchSize,
                                                 const std::vector<std::vector<int64_t>>& fanouts,
                                                 const std::vector<sampler::RelationKind>& kinds = {},
                                                 sampler::Expand expand = sampler::Expand::kNew) {
  std::vector<CanonicalBatch> reference;
  for (const Layout& layout : kLayouts) {
    TemporaryDirectory directory;
    writeFixtureStore(fixture, layout.parts, directory / "store");
    SamplingCluster cluster(directory / "store", layout.machines, rpc::TransportKind::kInProcess, 256);
    sampler::SamplingOptions options = samplingOptions(cluster.store().schema(), fanouts.front());
    if (fanouts.size() == cluster.store().schema().relations.size() && fanouts.size() > 1) {
      for (size_t hop = 0; hop < options.fanouts.size(); ++hop) {
        for (size_t r = 0; r < fanouts.size(); ++r) options.fanouts[hop][r] = fanouts[r][hop];
      }
    }
    options.kinds = kinds;
    options.expand = expand;
    for (int machine : {0, layout.machines - 1}) {
      for (int threads : {1, 4}) {
        const auto batches = cluster.sampleEpoch(machine, seedType, seeds, batchSize, 3, options, {threads, 3});
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

std::vector<uint64_t> firstIds(uint64_t count) {
  std::vector<uint64_t> ids(count);
  for (uint64_t i = 0; i < count; ++i) ids[i] = (i * 37) % count;
  return ids;
}

// Checks a batch against the data set it was drawn from.
void expectTrueToGraph(const CanonicalBatch& batch, const partition::Dataset& dataset,
                       const std::vector<std::vector<int64_t>>& fanouts) {
  const size_t hops = fanouts.size();
  for (size_t type = 0; type < batch.nodes.size(); ++type) {
    const std::set<uint64_t> distinct(batch.nodes[type].begin(), batch.nodes[type].end());
    ASSERT_EQ(distinct.size(), batch.nodes[type].size()) << "a node is numbered twice";
    const size_t columns = batch.nodes[type].empty() ? 0 : batch.x[type].size() / batch.nodes[type].size();
    for (size_t i = 0; i < batch.nodes[type].size(); ++i) {
      for (size_t c = 0; c < columns; ++c) {
        ASSERT_EQ(batch.x[type][i * columns + c], fixtureFeature(static_cast<int>(type), batch.nodes[type][i], c));
      }
    }
  }
  for (size_t r = 0; r < batch.relations.size(); ++r) {
    const partition::Relation& relation = dataset.schema.relations[r];
    std::map<uint64_t, std::vector<uint64_t>> inEdges;  // destination -> edge ids
    const partition::EdgeList& edges = dataset.edges[r];
    for (uint64_t e = 0; e < relation.count; ++e) inEdges[edges.destination[e]].push_back(e);
    const auto& sampled = batch.relations[r];
    for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
      const uint64_t destination = batch.nodes[relation.destination][row];
      size_t hop = 0;
      while (batch.nodesByHop[relation.destination][hop] <= row) ++hop;
      ASSERT_LT(hop, hops);
      const uint64_t degree = inEdges[destination].size();
      const int64_t fanout = fanouts[hop][r];
      const uint64_t expected = fanout < 0 ? degree : std::min<uint64_t>(degree, static_cast<uint64_t>(fanout));
      const uint32_t from = sampled.indptr[row], to = sampled.indptr[row + 1];
      ASSERT_EQ(to - from, expected) << "destination " << destination;
      std::set<uint64_t> distinct;
      for (uint32_t i = from; i < to; ++i) {
        const uint64_t edge = sampled.edgeIds[i];
        ASSERT_LT(edge, relation.count);
        ASSERT_TRUE(distinct.insert(edge).second) << "edge " << edge << " drawn twice";
        ASSERT_EQ(edges.destination[edge], destination);
        ASSERT_EQ(edges.source[edge], batch.nodes[relation.source][sampled.indices[i]]);
      }
    }
  }
}

// The CSRs of one hop of a batch that expands all nodes, as a batch of one hop.
CanonicalBatch hopOf(const CanonicalBatch& batch, size_t hop, size_t relations) {
  CanonicalBatch one = batch;
  const auto first = batch.relations.begin() + static_cast<ptrdiff_t>(hop * relations);
  one.relations.assign(first, first + static_cast<ptrdiff_t>(relations));
  for (auto& nodes : one.nodesByHop) nodes = {nodes[hop], nodes[hop + 1]};
  return one;
}

// Every sampled edge is one of the graph, between the nodes that its row and column say.
void expectEdgesOfGraph(const CanonicalBatch& batch, const partition::Dataset& dataset) {
  for (size_t r = 0; r < batch.relations.size(); ++r) {
    const partition::Relation& relation = dataset.schema.relations[r];
    const auto& sampled = batch.relations[r];
    for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
      for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i) {
        ASSERT_LT(sampled.edgeIds[i], relation.count);
        ASSERT_EQ(dataset.edges[r].destination[sampled.edgeIds[i]], batch.nodes[relation.destination][row]);
        ASSERT_EQ(dataset.edges[r].source[sampled.edgeIds[i]], batch.nodes[relation.source][sampled.indices[i]]);
      }
    }
  }
}

std::vector<std::vector<int64_t>> sameForAll(const std::vector<int64_t>& byHop, size_t relations) {
  std::vector<std::vector<int64_t>> fanouts;
  for (int64_t fanout : byHop) fanouts.emplace_back(relations, fanout);
  return fanouts;
}

TEST(SameBatch, HoldsOnAnyPartitioning_Homogeneous) {
  FixtureOptions fixture;
  fixture.nodes = 200;
  fixture.edges = 3000;
  const auto batches = expectSameEverywhere(fixture, 0, firstIds(200), 32, {{4, 3, 2}});
  ASSERT_EQ(batches.size(), 7u);
  const auto dataset = makeFixtureDataset(fixture);
  for (const auto& batch : batches) expectTrueToGraph(batch, dataset, sameForAll({4, 3, 2}, 1));
}

TEST(SameBatch, HoldsOnAnyPartitioning_TwoNodeTypesThreeRelations) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.nodes = 150;
  fixture.edges = 1500;
  const std::vector<std::vector<int64_t>> byRelation = {{5, 3}, {2, -1}, {0, 4}};
  const auto batches = expectSameEverywhere(fixture, 1, firstIds(76), 20, byRelation);
  ASSERT_EQ(batches.size(), 4u);
  const auto dataset = makeFixtureDataset(fixture);
  for (const auto& batch : batches) expectTrueToGraph(batch, dataset, {{5, 2, 0}, {3, -1, 4}});
}

TEST(SameBatch, HoldsForRepeatedSeeds_OneSeed_AndIsolatedSeeds) {
  FixtureOptions fixture;  // the last tenth of the 60 nodes is isolated
  const auto repeated = expectSameEverywhere(fixture, 0, {5, 5, 2, 5, 2, 0}, 6, {{3, 3}});
  EXPECT_EQ(repeated[0].seedIndex, (std::vector<uint32_t>{0, 0, 1, 0, 1, 2}));
  const auto one = expectSameEverywhere(fixture, 0, {1}, 6, {{3, 3}});
  EXPECT_EQ(one[0].seeds, (std::vector<uint64_t>{1}));
  const auto isolated = expectSameEverywhere(fixture, 0, {59, 58}, 6, {{3, 3}});
  EXPECT_EQ(isolated[0].nodes[0], (std::vector<uint64_t>{59, 58}));
  EXPECT_EQ(isolated[0].relations[0].indices.size(), 0u);
}

TEST(SameBatch, HoldsForRepeatedSeeds_OneSeed_AndFanoutsBeyondTheDegree_OfSeveralRelations) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  const std::vector<std::vector<int64_t>> byRelation = {{3, 1000}, {1000, -1}, {-1, 2}};
  const auto dataset = makeFixtureDataset(fixture);
  const auto repeated = expectSameEverywhere(fixture, 1, {5, 5, 2, 5, 2, 0}, 6, byRelation);
  EXPECT_EQ(repeated[0].seedIndex, (std::vector<uint32_t>{0, 0, 1, 0, 1, 2}));
  expectTrueToGraph(repeated[0], dataset, {{3, 1000, -1}, {1000, -1, 2}});
  const auto one = expectSameEverywhere(fixture, 1, {1}, 6, byRelation);
  EXPECT_EQ(one[0].seeds, (std::vector<uint64_t>{1}));
  expectTrueToGraph(one[0], dataset, {{3, 1000, -1}, {1000, -1, 2}});
}

TEST(SameBatch, HoldsForFanoutsBeyondTheDegree_All_AndNone) {
  FixtureOptions fixture;
  const auto dataset = makeFixtureDataset(fixture);
  for (const std::vector<int64_t>& fanouts :
       std::vector<std::vector<int64_t>>{{1000, 1000}, {-1, -1}, {0, 5}, {5, 0}, {-1, 0, 2}, {0}, {1}}) {
    for (const auto& batch : expectSameEverywhere(fixture, 0, firstIds(40), 20, {fanouts})) {
      expectTrueToGraph(batch, dataset, sameForAll(fanouts, 1));
    }
  }
}

// With replacement every node with in-edges gets its fanout, however few they are.
TEST(SameBatch, HoldsWithReplacement) {
  const sampler::RelationKind replace{sampler::DrawKind::kUniformWithReplacement};
  FixtureOptions fixture;
  fixture.nodes = 100;
  for (const auto& batch : expectSameEverywhere(fixture, 0, firstIds(100), 32, {{4, 40, 2}}, {replace})) {
    const auto& edges = batch.relations[0];
    for (size_t row = 0; row < batch.nodesByHop[0][1]; ++row) {
      const uint32_t count = edges.indptr[row + 1] - edges.indptr[row];
      EXPECT_TRUE(count == 0 || count == (row < batch.nodesByHop[0][0] ? 4u : 40u));
    }
  }
  fixture.heterogeneous = true;
  expectSameEverywhere(fixture, 1, firstIds(50), 20, {{5, 3}, {2, -1}, {0, 4}}, {replace, {}, replace});
}

// By the fixture's weights, which are the edge ids: edge 0 of relation 0 weighs nothing.
TEST(SameBatch, HoldsWithWeights) {
  const sampler::RelationKind weighted{sampler::DrawKind::kWeighted}, replace{sampler::DrawKind::kWeightedWithReplacement};
  FixtureOptions fixture;
  fixture.nodes = 100;
  fixture.edges = 1500;
  const auto dataset = makeFixtureDataset(fixture);
  for (const auto kind : {weighted, replace}) {
    for (const auto& batch : expectSameEverywhere(fixture, 0, firstIds(100), 50, {{2, 20, -1}}, {kind})) {
      EXPECT_EQ(std::count(batch.relations[0].edgeIds.begin(), batch.relations[0].edgeIds.end(), 0u), 0);
      expectEdgesOfGraph(batch, dataset);
    }
  }
  fixture.heterogeneous = true;
  expectSameEverywhere(fixture, 1, firstIds(50), 20, {{5, 3}, {2, -1}, {0, 4}}, {weighted, {}, replace});
}

// Reverse relations carry the weights of the forward edges. Rows are sorted by time here, which changes draws, but not
// with the partitioning.
TEST(SameBatch, HoldsWithWeightsOfReverseRelations_WhereRowsAreSortedByTime) {
  FixtureOptions fixture;
  fixture.heterogeneous = fixture.addReverse = fixture.declaredWeights = fixture.edgeTimes = fixture.nodeTimes = true;
  fixture.nodes = 100;
  fixture.edges = 600;
  const sampler::RelationKind forward{sampler::DrawKind::kWeighted, 0};
  const sampler::RelationKind weighted{sampler::DrawKind::kWeighted, sampler::kStoredWeights};
  const sampler::RelationKind replace{sampler::DrawKind::kWeightedWithReplacement, sampler::kStoredWeights};
  const auto dataset = makeFixtureDataset(fixture);
  uint64_t drawn = 0;
  for (const auto& batch : expectSameEverywhere(fixture, 0, firstIds(40), 20, {{3, 2}, {2, 2}, {0, 4}, {3, -1}, {2, 3}, {2, 0}},
                                                {forward, {}, forward, weighted, replace, weighted})) {
    for (size_t r = 3; r < 6; ++r) {
      const partition::Relation& relation = dataset.schema.relations[r - 3];
      const auto& sampled = batch.relations[r];
      for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
        for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i, ++drawn) {
          const uint64_t edge = sampled.edgeIds[i];
          ASSERT_TRUE(r != 3 || edge != 0) << "edge 0 of relation 0 weighs nothing";
          ASSERT_EQ(dataset.edges[r - 3].source[edge], batch.nodes[relation.source][row]);
          ASSERT_EQ(dataset.edges[r - 3].destination[edge], batch.nodes[relation.destination][sampled.indices[i]]);
        }
      }
    }
  }
  EXPECT_GT(drawn, 200u);
}

TEST(SameBatch, HoldsWithWeights_WhereEveryHopExpandsAllNodes) {
  const sampler::RelationKind weighted{sampler::DrawKind::kWeighted}, replace{sampler::DrawKind::kWeightedWithReplacement};
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.nodes = 80;
  fixture.edges = 800;
  const auto dataset = makeFixtureDataset(fixture);
  for (const auto& batch : expectSameEverywhere(fixture, 1, firstIds(20), 10, {{2, 3}, {4, 2}, {3, 3}},
                                                {weighted, replace, weighted}, sampler::Expand::kAll)) {
    ASSERT_EQ(batch.relations.size(), 6u);
    for (size_t hop = 0; hop < 2; ++hop) expectEdgesOfGraph(hopOf(batch, hop, 3), dataset);
  }
}

// Every hop draws for all nodes known before it, so hop h's CSR has all of their rows, full fanouts in each, and nodes
// that are new are those that no hop before had found.
TEST(SameBatch, HoldsWhereEveryHopExpandsAllNodes) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.nodes = 150;
  fixture.edges = 1500;
  const auto dataset = makeFixtureDataset(fixture);
  const std::vector<std::vector<int64_t>> byRelation = {{5, 3, 2}, {2, -1, 1}, {0, 4, 2}};
  const auto batches = expectSameEverywhere(fixture, 1, firstIds(76), 20, byRelation, {}, sampler::Expand::kAll);
  size_t redrawn = 0;
  for (const auto& batch : batches) {
    ASSERT_EQ(batch.relations.size(), 9u);
    for (size_t hop = 0; hop < 3; ++hop) {
      const CanonicalBatch one = hopOf(batch, hop, 3);
      std::vector<int64_t> fanouts;
      for (size_t r = 0; r < 3; ++r) {
        fanouts.push_back(byRelation[r][hop]);
        const auto rows = one.nodesByHop[static_cast<size_t>(dataset.schema.relations[r].destination)][0];
        ASSERT_EQ(one.relations[r].indptr.size(), rows + 1u);
        for (uint32_t source : one.relations[r].indices) {
          ASSERT_LT(source, one.nodesByHop[static_cast<size_t>(dataset.schema.relations[r].source)][1]);
        }
      }
      expectTrueToGraph(one, dataset, {fanouts});
    }
    // A seed draws anew in each hop: relation 2 takes 4 and 2, not always the same.
    redrawn += batch.relations[5].edgeIds[0] != batch.relations[8].edgeIds[0] ? 1 : 0;
  }
  EXPECT_GT(redrawn, 0u);
}

// The same first hop as without, and kinds of draws do not matter to it.
TEST(ExpandAll, SharesItsFirstHopWithExpandNew) {
  FixtureOptions fixture;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 1, directory / "store");
  SamplingCluster cluster(directory / "store", 1, rpc::TransportKind::kInProcess);
  auto options = samplingOptions(cluster.store().schema(), {3, 3});
  options.kinds = {{sampler::DrawKind::kWeighted}};
  const auto once = cluster.sampleEpoch(0, 0, firstIds(20), 20, 0, options, {1, 1});
  options.expand = sampler::Expand::kAll;
  const auto all = cluster.sampleEpoch(0, 0, firstIds(20), 20, 0, options, {1, 1});
  ASSERT_EQ(all[0].relations.size(), 2u);
  const auto& first = all[0].relations[0];
  ASSERT_EQ(first.indptr.size(), 21u);
  const auto& prefix = once[0].relations[0];
  EXPECT_TRUE(std::equal(first.indptr.begin(), first.indptr.end(), prefix.indptr.begin()));
  EXPECT_TRUE(std::equal(first.edgeIds.begin(), first.edgeIds.end(), prefix.edgeIds.begin()));
}

// Forward and reverse relations draw, each with fanouts of its own (Direction::kBoth), or reverse ones alone
// (Direction::kOut): against the data set, in which a reverse relation's edges are the forward ones turned round.
TEST(SameBatch, HoldsOnAnyPartitioning_WithReverseRelations) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  fixture.nodes = 90;
  fixture.edges = 700;
  auto dataset = makeFixtureDataset(fixture);
  const size_t forward = dataset.schema.relations.size();
  for (size_t r = 0; r < forward; ++r) {
    partition::Relation reverse = dataset.schema.relations[r];
    std::swap(reverse.source, reverse.destination);
    dataset.schema.relations.push_back(reverse);
    auto& edges = dataset.edges.emplace_back();
    edges.source = dataset.edges[r].destination;
    edges.destination = dataset.edges[r].source;
  }
  const std::vector<std::vector<int64_t>> both = {{4, 2, 1}, {3, 2, 2}, {2, -1, 1}, {4, 2, 1}, {3, 2, 2}, {2, -1, 1}};
  std::vector<std::vector<int64_t>> out = both;
  for (size_t r = 0; r < forward; ++r) out[r] = {0, 0, 0};
  for (const auto& byRelation : {both, out}) {
    std::vector<std::vector<int64_t>> byHop(3);
    for (size_t hop = 0; hop < 3; ++hop) {
      for (const auto& fanouts : byRelation) byHop[hop].push_back(fanouts[hop]);
    }
    const auto batches = expectSameEverywhere(fixture, 0, firstIds(80), 24, byRelation);
    ASSERT_EQ(batches.size(), 4u);
    for (const auto& batch : batches) {
      ASSERT_EQ(batch.relations.size(), 2 * forward);
      expectTrueToGraph(batch, dataset, byHop);
    }
  }
}

TEST(SameBatch, HoldsOverTcpAndSharedMemory) {
  for (const bool heterogeneous : {false, true}) {
    FixtureOptions fixture;
    fixture.heterogeneous = heterogeneous;
    TemporaryDirectory directory;
    writeFixtureStore(fixture, 2, directory / "store");
    std::vector<CanonicalBatch> reference;
    for (auto transport : {rpc::TransportKind::kInProcess, rpc::TransportKind::kUv, rpc::TransportKind::kShm}) {
      SamplingCluster cluster(directory / "store", 2, transport);
      const auto options = samplingOptions(cluster.store().schema(), {5, 5});
      const auto batches = cluster.sampleEpoch(1, heterogeneous ? 1 : 0, firstIds(30), 16, 0, options, {2, 2});
      if (reference.empty()) reference = batches;
      EXPECT_TRUE(batches == reference) << "heterogeneous " << heterogeneous;
    }
  }
}

TEST(SameBatch, ChangesWithSeedEpochAndBatchNumber) {
  FixtureOptions fixture;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 1, directory / "store");
  SamplingCluster cluster(directory / "store", 1, rpc::TransportKind::kInProcess);
  auto options = samplingOptions(cluster.store().schema(), {3, 3});
  const std::vector<uint64_t> seeds = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<uint64_t> twice = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
  const auto base = cluster.sampleEpoch(0, 0, twice, 8, 0, options, {1, 1});
  EXPECT_FALSE(base[0] == base[1]);  // the same seeds in batches 0 and 1
  EXPECT_FALSE(cluster.sampleEpoch(0, 0, seeds, 8, 1, options, {1, 1})[0] == base[0]);
  options.seed = 8;
  EXPECT_FALSE(cluster.sampleEpoch(0, 0, seeds, 8, 0, options, {1, 1})[0] == base[0]);
}

TEST(Exchange, SendsNothing_WhenNoRelationDrawsOrNoNodeIsRemote) {
  FixtureOptions fixture;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  const auto options = samplingOptions(cluster.store().schema(), {0, 0});
  cluster.sampleEpoch(0, 0, firstIds(60), 16, 0, options, {1, 1});
  EXPECT_EQ(cluster.machine(0).metrics->neighborMessages.value(), 0);
  cluster.sampleEpoch(0, 0, firstIds(60), 60, 0, samplingOptions(cluster.store().schema(), {2}), {1, 1});
  EXPECT_EQ(cluster.machine(0).metrics->neighborMessages.value(), 1);  // one message per hop and machine
}

// All relations of a hop, forward and reverse, of both types, in one message to each machine.
TEST(Exchange, SendsOneMessagePerHopAndOwner_WhateverTheNumberOfRelations) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  fixture.nodes = 120;
  fixture.edges = 1500;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 6, directory / "store");
  SamplingCluster cluster(directory / "store", 3, rpc::TransportKind::kInProcess);
  constexpr int kHops = 3, kBatches = 2, kOthers = 2;
  const auto options = samplingOptions(cluster.store().schema(), {5, 5, 5});
  const auto batches = cluster.sampleEpoch(0, 0, firstIds(80), 40, 0, options, {1, 1});
  ASSERT_EQ(batches.size(), static_cast<size_t>(kBatches));
  // The first hop has rows of both machines in type 0 alone, the others in both types.
  for (const auto& batch : batches) {
    for (const auto& relation : batch.relations) EXPECT_GT(relation.indices.size(), 0u);
  }
  EXPECT_EQ(cluster.machine(0).metrics->neighborMessages.value(), kHops * kBatches * kOthers);
}

// An epoch that an owner's refusal ends: what follows on the same stream is as it would have been.
TEST(Exchange, GoesOnWithTheNextEpoch_AfterABatchHasFailed) {
  FixtureOptions fixture;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  const auto& self = cluster.machine(0);
  const auto options = samplingOptions(cluster.store().schema(), {4, 4});
  const auto expected = cluster.sampleEpoch(0, 0, firstIds(60), 16, 5, options, {2, 2});
  sampler::SeedSet set;
  for (uint64_t seed : firstIds(60)) set.all.push_back(cluster.gid(0, seed));
  sampler::DealOptions deal;
  deal.batchSize = 16;
  deal.shuffle = false;
  deal.deal = sampler::Deal::kGlobal;
  deal.tail = sampler::Tail::kUneven;
  sampler::BatchStream stream(self.graph, self.agent.get(), *sampler::SeedDealer::make(set, deal), options, {2, 2}, self.metrics);
  cluster.machine(1).agent->handle(sampler::kNeighborMethod, [](rpc::Request, rpc::Responder responder) {
    responder.fail(absl::ResourceExhaustedError("no room today"));
  });
  stream.start(4);
  const auto failed = stream.next();
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("no room today"), absl::string_view::npos) << failed.status();
  sampler::registerNeighborService(cluster.machine(1).agent.get(), cluster.machine(1).graph);
  stream.start(5);
  for (const CanonicalBatch& batch : expected) {
    const auto next = stream.next();
    ASSERT_TRUE(next.ok()) << next.status();
    ASSERT_NE(*next, nullptr);
    EXPECT_TRUE(cluster.canonical(0, **next) == batch);
  }
}

TEST(Exchange, AsksOnlyMachinesThatOwnAPartOfTheFrontier) {
  FixtureOptions fixture;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 5, directory / "store");
  SamplingCluster cluster(directory / "store", 5, rpc::TransportKind::kInProcess);
  const auto options = samplingOptions(cluster.store().schema(), {4});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int owner = cluster.store().book().partitionOf(0, cluster.gid(0, seed));
    const double before = cluster.machine(0).metrics->neighborMessages.value();
    cluster.sampleEpoch(0, 0, {seed}, 1, 0, options, {1, 1});
    EXPECT_EQ(cluster.machine(0).metrics->neighborMessages.value() - before, owner == 0 ? 0 : 1) << "seed " << seed;
  }
}

TEST(Features, OfNodesThatAreNotPulled_AreNeverRead) {
  FixtureOptions fixture;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  sampler::SeedSet set;
  set.all = firstIds(60);
  sampler::DealOptions deal;
  deal.deal = sampler::Deal::kGlobal;
  auto& self = cluster.machine(0);
  sampler::BatchStream stream(self.graph, self.agent.get(), *sampler::SeedDealer::make(set, deal),
                              samplingOptions(cluster.store().schema(), {5, 5}), {1, 2}, self.metrics);
  stream.start(0);
  auto batch = stream.next();
  ASSERT_TRUE(batch.ok());
  EXPECT_GT((*batch)->traffic.sampledEdges, 0u);
  for (int m : {0, 1}) EXPECT_EQ(cluster.machine(m).metrics->featureBytesRead.value(), 0);
  cluster.pull(0, 0, "x", (*batch)->nodes[0]);
  EXPECT_GT(cluster.machine(0).metrics->featureBytesRead.value(), 0);
  EXPECT_GT(cluster.machine(1).metrics->featureBytesRead.value(), 0);
}

}  // namespace
}  // namespace farhop::testing
