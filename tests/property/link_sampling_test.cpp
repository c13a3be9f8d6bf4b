// Seed edges: the same batches on any partitioning, negatives that are none, seed edges that no neighbourhood shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "partition/layout.h"
#include "tests/fixture_graphs.h"
#include "tests/link_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using Pair = std::pair<uint64_t, uint64_t>;

struct Layout {
  int parts;
  int machines;
};
constexpr Layout kLayouts[] = {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {5, 2}, {3, 1}};

// The 99.9 % quantile of chi-square with k degrees of freedom (Wilson, Hilferty).
double chiSquareLimit(double k) { return k * std::pow(1 - 2 / (9 * k) + 3.09 * std::sqrt(2 / (9 * k)), 3); }

LinkEpoch epochOf(size_t relations, std::vector<int64_t> fanouts, uint64_t batchSize) {
  LinkEpoch epoch;
  for (int64_t fanout : fanouts) epoch.sampling.fanouts.emplace_back(relations, fanout);
  epoch.sampling.seed = 7;
  epoch.sampling.edgeIds = true;
  epoch.deal.batchSize = batchSize;
  epoch.deal.deal = sampler::Deal::kGlobal;
  epoch.deal.tail = sampler::Tail::kUneven;
  return epoch;
}

// Every `step`th edge of a relation, and a pair that is none.
LinkSeedsOf someEdges(const partition::Dataset& dataset, int relation, uint64_t step) {
  std::vector<int64_t> ends;
  const partition::EdgeList& edges = dataset.edges[static_cast<size_t>(relation)];
  for (uint64_t e = 0; e < edges.source.size(); e += step) {
    ends.push_back(static_cast<int64_t>(edges.source[e]));
    ends.push_back(static_cast<int64_t>(edges.destination[e]));
  }
  ends.insert(ends.end(), {0, static_cast<int64_t>(dataset.schema.nodeTypes[dataset.schema.relations[relation].destination].count) - 1});
  return [ends, relation](std::shared_ptr<const sampler::PartitionedGraph> graph, sampler::Deal deal) {
    return sampler::linkSeedsOfPairs(std::move(graph), relation, ends, deal);
  };
}

LinkSeedsOf splitOf(int relation, const std::string& name) {
  return [=](std::shared_ptr<const sampler::PartitionedGraph> graph, sampler::Deal deal) {
    return sampler::linkSeedsOfSplit(std::move(graph), relation, name, deal);
  };
}

LinkSeedsOf allEdges(int relation) {
  return [=](std::shared_ptr<const sampler::PartitionedGraph> graph, sampler::Deal deal) {
    return sampler::linkSeedsOfRelation(std::move(graph), relation, deal);
  };
}

// A fixture's stores by number of partitions, each written once.
class Stores {
 public:
  explicit Stores(const FixtureOptions& fixture) : fixture_(fixture) {}
  std::string of(int parts) {
    const std::string store = directory_ / absl::StrCat("store-", parts);
    if (written_.insert(parts).second) writeFixtureStore(fixture_, parts, store);
    return store;
  }

 private:
  FixtureOptions fixture_;
  TemporaryDirectory directory_;
  std::set<int> written_;
};

std::vector<CanonicalLinks> expectSameEverywhere(Stores* stores, const LinkSeedsOf& seeds, LinkEpoch epoch) {
  std::vector<CanonicalLinks> reference;
  for (const Layout& layout : kLayouts) {
    SamplingCluster cluster(stores->of(layout.parts), layout.machines, rpc::TransportKind::kInProcess, 256);
    for (int machine : {0, layout.machines - 1}) {
      for (int threads : {1, 4}) {
        epoch.stream = {threads, 3};
        const auto batches = sampleLinks(&cluster, machine, seeds, epoch);
        if (reference.empty()) reference = batches;
        EXPECT_TRUE(batches == reference) << layout.parts << " partitions of " << layout.machines << " machines, machine "
                                          << machine << ", " << threads << " threads";
      }
    }
  }
  return reference;
}

// What a data set says of a relation, by brute force. A reverse relation is the forward one turned round.
struct Edges {
  Edges(const partition::Dataset& dataset, int relation, bool reversed = false) {
    const partition::EdgeList& edges = dataset.edges[static_cast<size_t>(relation)];
    for (uint64_t e = 0; e < edges.source.size(); ++e) {
      const Pair pair = reversed ? Pair(edges.destination[e], edges.source[e]) : Pair(edges.source[e], edges.destination[e]);
      pairs.insert(pair);
      ++inEdges[pair.second][pair.first];
    }
  }
  uint64_t degree(uint64_t node, const std::set<uint64_t>& without) const {
    const auto found = inEdges.find(node);
    uint64_t count = 0;
    if (found == inEdges.end()) return 0;
    for (const auto& [source, edges] : found->second) count += without.count(source) > 0 ? 0 : edges;
    return count;
  }
  std::set<Pair> pairs;
  std::map<uint64_t, std::map<uint64_t, uint64_t>> inEdges;  // destination -> source -> parallel edges
};

// No row of `relation` shows an edge of `forbidden`, and each has min(fanout, what is left) edges.
void expectExcluded(const CanonicalLinks& links, const partition::Relation& schema, size_t relation, const Edges& edges,
                    const std::set<Pair>& forbidden, const std::vector<int64_t>& fanouts) {
  std::map<uint64_t, std::set<uint64_t>> without;
  for (const Pair& pair : forbidden) without[pair.second].insert(pair.first);
  const auto& sampled = links.batch.relations[relation];
  const auto& destinations = links.batch.nodes[static_cast<size_t>(schema.destination)];
  const auto& byHop = links.batch.nodesByHop[static_cast<size_t>(schema.destination)];
  for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
    const uint64_t node = destinations[row];
    size_t hop = 0;
    while (byHop[hop] <= row) ++hop;
    const uint64_t left = edges.degree(node, without[node]);
    const uint32_t drawn = sampled.indptr[row + 1] - sampled.indptr[row];
    ASSERT_EQ(drawn, fanouts[hop] < 0 ? left : std::min<uint64_t>(left, static_cast<uint64_t>(fanouts[hop]))) << "node " << node;
    for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i) {
      const uint64_t source = links.batch.nodes[static_cast<size_t>(schema.source)][sampled.indices[i]];
      ASSERT_EQ(forbidden.count({source, node}), 0U) << source << " -> " << node;
      ASSERT_EQ(edges.pairs.count({source, node}), 1U);
    }
  }
}

// Ends are numbered as their lists say; strict negatives are no edges.
void expectLinks(const CanonicalLinks& links, const partition::Relation& schema, const Edges& edges, bool strict) {
  std::set<Pair> own;
  for (uint64_t i = 0; i < links.edges; ++i) own.insert(links.seed(i));
  for (size_t i = 0; i < links.batch.seeds.size(); ++i) {
    ASSERT_EQ(links.batch.nodes[static_cast<size_t>(schema.source)][links.batch.seedIndex[i]], links.batch.seeds[i]);
  }
  ASSERT_EQ(links.destinations.size(), links.edges + links.negatives);
  for (size_t i = 0; i < links.destinations.size(); ++i) {
    ASSERT_EQ(links.batch.nodes[static_cast<size_t>(schema.destination)][links.destinationIndex[i]], links.destinations[i]);
  }
  ASSERT_TRUE(links.unresolved.empty());
  for (uint64_t j = 0; j < links.negatives && strict; ++j) {
    ASSERT_EQ(edges.pairs.count(links.negative(j)) + own.count(links.negative(j)), 0U);
  }
}

std::set<Pair> seedPairs(const CanonicalLinks& links, bool reversed) {
  std::set<Pair> pairs;
  for (uint64_t i = 0; i < links.edges; ++i) {
    const auto [source, destination] = links.seed(i);
    pairs.insert(reversed ? Pair(destination, source) : Pair(source, destination));
  }
  return pairs;
}

// One type, one relation: the reverse of a seed edge is an edge of the same relation.
TEST(SameLinks, HoldOnAnyPartitioning_Homogeneous) {
  FixtureOptions fixture;
  fixture.nodes = 120;
  fixture.edges = 2500;
  const auto dataset = makeFixtureDataset(fixture);
  const Edges edges(dataset, 0);
  Stores stores(fixture);
  for (const bool drawSources : {false, true}) {
    LinkEpoch epoch = epochOf(1, {6, -1}, 32);
    epoch.link.negativesPerEdge = drawSources ? 1.5 : 2;
    epoch.link.drawSources = drawSources;
    epoch.link.nodes = drawSources ? sampler::NegativeNodes::kDegree : sampler::NegativeNodes::kUniform;
    epoch.link.strict = true;
    epoch.link.excludeSeeds = true;
    epoch.link.reverseRelation = 0;
    epoch.edgeFeatures = true;
    const auto batches = expectSameEverywhere(&stores, someEdges(dataset, 0, 7), epoch);
    ASSERT_EQ(batches.size(), 12U);
    for (const CanonicalLinks& links : batches) {
      ASSERT_EQ(links.negatives, static_cast<uint64_t>(std::ceil(static_cast<double>(links.edges) * epoch.link.negativesPerEdge)));
      expectLinks(links, dataset.schema.relations[0], edges, true);
      std::set<Pair> forbidden = seedPairs(links, false);
      forbidden.merge(seedPairs(links, true));
      expectExcluded(links, dataset.schema.relations[0], 0, edges, forbidden, {6, -1});
    }
  }
}

// Two types, and reverse relations: relation 1 is user:likes:item, 4 its reverse. Other relations are not touched.
TEST(SameLinks, HoldOnAnyPartitioning_TwoTypesWithReverses) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  fixture.nodes = 80;
  fixture.edges = 900;
  const auto dataset = makeFixtureDataset(fixture);
  const Edges edges(dataset, 1), reversed(dataset, 1, true);
  LinkEpoch epoch = epochOf(6, {3, 2}, 25);
  epoch.link.negativesPerEdge = 1;
  epoch.link.strict = true;
  epoch.link.excludeSeeds = true;
  epoch.link.reverseRelation = 4;
  epoch.edgeFeatures = true;
  Stores stores(fixture);
  const partition::Relation back{"rev_likes", 1, 0, 0, 1, {}};
  const auto batches = expectSameEverywhere(&stores, someEdges(dataset, 1, 11), epoch);
  for (const CanonicalLinks& links : batches) {
    expectLinks(links, dataset.schema.relations[1], edges, true);
    expectExcluded(links, dataset.schema.relations[1], 1, edges, seedPairs(links, false), {3, 2});
    expectExcluded(links, back, 4, reversed, seedPairs(links, true), {3, 2});
    expectExcluded(links, dataset.schema.relations[0], 0, Edges(dataset, 0), {}, {3, 2});
  }
}

// No row of `sampled` shows a seed edge of the batch.
void expectNoSeedEdge(const CanonicalLinks& links, const sampler::SampledRelation& sampled) {
  const std::set<Pair> forbidden = seedPairs(links, false);
  for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
    for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i) {
      ASSERT_EQ(forbidden.count({links.batch.nodes[0][sampled.indices[i]], links.batch.nodes[0][row]}), 0U);
    }
  }
}

TEST(SameLinks, HoldForEveryKindOfDraw_WithExclusion) {
  FixtureOptions fixture;
  fixture.nodes = 60;
  fixture.edges = 1500;
  const auto dataset = makeFixtureDataset(fixture);
  using Kind = sampler::DrawKind;
  Stores stores(fixture);
  for (Kind kind : {Kind::kUniformWithReplacement, Kind::kWeighted, Kind::kWeightedWithReplacement}) {
    for (const auto expand : {sampler::Expand::kNew, sampler::Expand::kAll}) {
      LinkEpoch epoch = epochOf(1, {3, 5}, 40);
      epoch.sampling.kinds = {{kind}};
      epoch.sampling.expand = expand;
      epoch.link.excludeSeeds = true;
      epoch.edgeFeatures = expand == sampler::Expand::kNew;
      for (const CanonicalLinks& links : expectSameEverywhere(&stores, someEdges(dataset, 0, 13), epoch)) {
        for (const auto& sampled : links.batch.relations) expectNoSeedEdge(links, sampled);
      }
    }
  }
}

// What LABOR-0 says of rows without `forbidden` edges: a source's one number decides, so it is taken in all rows of a hop
// whose f / d is above some bound, with all parallel edges, and in no others. `dependent`: the bound is that of all hops.
void expectLaborBounds(const CanonicalLinks& links, const Edges& edges, const std::set<Pair>& forbidden,
                       const std::vector<int64_t>& fanouts, bool dependent) {
  std::map<uint64_t, std::set<uint64_t>> without;
  for (const Pair& pair : forbidden) without[pair.second].insert(pair.first);
  std::map<std::pair<size_t, uint64_t>, std::pair<double, double>> bounds;  // lowest taken, highest left, by hop and source
  const auto& sampled = links.batch.relations[0];
  size_t taken = 0, left = 0;
  for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
    const uint64_t node = links.batch.nodes[0][row];
    size_t hop = 0;
    while (links.batch.nodesByHop[0][hop] <= row) ++hop;
    std::map<uint64_t, uint64_t> drawn;
    for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i) ++drawn[links.batch.nodes[0][sampled.indices[i]]];
    const double share = static_cast<double>(fanouts[hop]) / static_cast<double>(edges.degree(node, without[node]));
    const auto row0 = edges.inEdges.find(node);
    if (row0 == edges.inEdges.end()) continue;
    for (const auto& [source, parallel] : row0->second) {
      if (without[node].count(source) > 0) continue;
      auto& [lowest, highest] = bounds.try_emplace({dependent ? 0 : hop, source}, 2.0, 0.0).first->second;
      const auto found = drawn.find(source);
      if (found == drawn.end()) {
        ASSERT_LT(share, 1) << "a row that is to be taken whole lacks " << source << " -> " << node;
        highest = std::max(highest, share);
        ++left;
      } else {
        ASSERT_EQ(found->second, parallel);
        if (share < 1) lowest = std::min(lowest, share);
        ++taken;
      }
    }
  }
  EXPECT_GT(taken, 30U);
  EXPECT_GT(left, 30U);
  for (const auto& [source, bound] : bounds) EXPECT_GT(bound.first, bound.second) << "source " << source.second;
}

TEST(SameLinks, HoldForLabor_WithExclusion) {
  FixtureOptions fixture;
  fixture.nodes = 60;
  fixture.edges = 1500;
  const auto dataset = makeFixtureDataset(fixture);
  const Edges edges(dataset, 0);
  Stores stores(fixture);
  using Kind = sampler::DrawKind;
  for (Kind kind : {Kind::kLaborPoisson, Kind::kLabor}) {
    for (const bool dependent : {false, true}) {
      LinkEpoch epoch = epochOf(1, {3, 5}, 40);
      epoch.sampling.kinds = {{kind}};
      epoch.sampling.layerDependency = dependent;
      epoch.link.excludeSeeds = true;
      epoch.edgeFeatures = true;
      for (const CanonicalLinks& links : expectSameEverywhere(&stores, someEdges(dataset, 0, 13), epoch)) {
        const std::set<Pair> forbidden = seedPairs(links, false);
        if (kind == Kind::kLabor) {
          expectExcluded(links, dataset.schema.relations[0], 0, edges, forbidden, {3, 5});
        } else {
          expectNoSeedEdge(links, links.batch.relations[0]);
          expectLaborBounds(links, edges, forbidden, {3, 5}, dependent);
        }
      }
    }
  }
}

// The induced subgraph of a batch is without its seed edges and their reverses too, parallel ones, and all others are there.
TEST(SameLinks, InduceNoExcludedEdge) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.addReverse = true;
  fixture.nodes = 60;
  fixture.edges = 900;
  const auto dataset = makeFixtureDataset(fixture);
  LinkEpoch epoch = epochOf(6, {3}, 25);
  epoch.sampling.subgraph = sampler::Subgraph::kInduced;
  epoch.link.excludeSeeds = true;
  epoch.link.reverseRelation = 4;
  Stores stores(fixture);
  for (const CanonicalLinks& links : expectSameEverywhere(&stores, someEdges(dataset, 1, 11), epoch)) {
    const std::set<Pair> own = seedPairs(links, false);
    for (const size_t relation : {0U, 1U, 4U}) {
      const bool reversed = relation == 4;
      const auto& nodes = links.batch.nodes;
      const size_t sourceType = reversed ? 1 : 0, destinationType = relation == 1 ? 1 : 0;
      const std::set<uint64_t> sources(nodes[sourceType].begin(), nodes[sourceType].end());
      const std::set<uint64_t> destinations(nodes[destinationType].begin(), nodes[destinationType].end());
      const partition::EdgeList& edges = dataset.edges[reversed ? 1 : relation];
      std::set<uint64_t> expected, found;
      for (uint64_t e = 0; e < edges.source.size(); ++e) {
        const uint64_t source = reversed ? edges.destination[e] : edges.source[e];
        const uint64_t destination = reversed ? edges.source[e] : edges.destination[e];
        const bool isSeed = relation > 0 && own.count({edges.source[e], edges.destination[e]}) > 0;
        if (!isSeed && sources.count(source) > 0 && destinations.count(destination) > 0) expected.insert(e);
      }
      const auto& induced = links.batch.relations[relation];
      ASSERT_EQ(induced.indptr.back(), induced.indices.size());
      for (size_t row = 0; row + 1 < induced.indptr.size(); ++row) {
        for (uint32_t i = induced.indptr[row]; i < induced.indptr[row + 1]; ++i) {
          const uint64_t e = induced.edgeIds[i];
          found.insert(e);
          ASSERT_EQ(nodes[sourceType][induced.indices[i]], reversed ? edges.destination[e] : edges.source[e]);
          ASSERT_EQ(nodes[destinationType][row], reversed ? edges.source[e] : edges.destination[e]);
        }
      }
      ASSERT_EQ(found, expected) << "relation " << relation;
      ASSERT_GT(found.size(), 20U);
    }
  }
}

TEST(SameLinks, HoldOverTcpAndSharedMemory) {
  FixtureOptions fixture;
  fixture.edgeSplits = true;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  LinkEpoch epoch = epochOf(1, {5, 5}, 16);
  epoch.link.negativesPerEdge = 3;
  epoch.link.strict = true;
  epoch.link.excludeSeeds = true;
  std::vector<CanonicalLinks> reference;
  for (auto transport : {rpc::TransportKind::kInProcess, rpc::TransportKind::kUv, rpc::TransportKind::kShm}) {
    SamplingCluster cluster(directory / "store", 2, transport);
    const auto batches = sampleLinks(&cluster, 1, splitOf(0, "train"), epoch);
    if (reference.empty()) reference = batches;
    EXPECT_TRUE(batches == reference);
  }
}

// Each seed of a split, or each edge of a relation, once in an epoch, at the machine that owns its destination.
TEST(SeedEdges, AreEachDealtOnce_ByOwner) {
  FixtureOptions fixture;
  fixture.edgeSplits = true;
  const auto dataset = makeFixtureDataset(fixture);
  Stores stores(fixture);
  for (const bool split : {false, true}) {
    std::multiset<Pair> expected;
    if (split) {
      for (const auto& one : dataset.edgeSplits) {
        if (one.name != "train") continue;
        for (uint64_t i = 0; i < one.source.size(); ++i) expected.insert({one.source[i], one.destination[i]});
      }
    } else {
      for (uint64_t e = 0; e < 400; ++e) expected.insert({dataset.edges[0].source[e], dataset.edges[0].destination[e]});
    }
    ASSERT_GT(expected.size(), 50U);
    for (const Layout& layout : kLayouts) {
      SamplingCluster cluster(stores.of(layout.parts), layout.machines, rpc::TransportKind::kInProcess);
      std::multiset<Pair> found;
      for (int machine = 0; machine < layout.machines; ++machine) {
        LinkEpoch epoch = epochOf(1, {1}, 32);
        epoch.deal.deal = sampler::Deal::kByOwner;
        epoch.deal.machine = machine;
        epoch.deal.numMachines = layout.machines;
        for (const CanonicalLinks& links : sampleLinks(&cluster, machine, split ? splitOf(0, "train") : allEdges(0), epoch)) {
          for (uint64_t i = 0; i < links.edges; ++i) {
            found.insert(links.seed(i));
            const int owner = cluster.store().book().partitionOf(0, cluster.gid(0, links.destinations[i]));
            EXPECT_EQ(cluster.machine(machine).graph->owner(owner), machine);
          }
        }
      }
      EXPECT_EQ(found, expected) << layout.parts << " partitions of " << layout.machines << " machines";
    }
  }
}

// With one machine, edges of a relation come in the same order on any number of partitions.
TEST(SeedEdges, OfARelation_AreDealtInTheSameOrder_OnOneMachine) {
  FixtureOptions fixture;
  fixture.edges = 700;
  std::vector<CanonicalLinks> reference;
  Stores stores(fixture);
  for (int parts : {1, 2, 5}) {
    SamplingCluster cluster(stores.of(parts), 1, rpc::TransportKind::kInProcess);
    const auto batches = sampleLinks(&cluster, 0, allEdges(0), epochOf(1, {2, 2}, 64));
    if (reference.empty()) reference = batches;
    EXPECT_TRUE(batches == reference) << parts;
  }
  SamplingCluster cluster(stores.of(2), 2, rpc::TransportKind::kInProcess);
  EXPECT_EQ(allEdges(0)(cluster.machine(0).graph, sampler::Deal::kGlobal).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SeedEdges, AreRefused_WhenOutOfRangeOrUnknown) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.edgeSplits = true;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 1, directory / "store");
  SamplingCluster cluster(directory / "store", 1, rpc::TransportKind::kInProcess);
  const auto& graph = cluster.machine(0).graph;
  for (const std::vector<int64_t>& ends : std::vector<std::vector<int64_t>>{{0, 31}, {60, 0}, {-1, 0}, {0, -1}, {0, 1, 1, 31}}) {
    const absl::Status refused = sampler::linkSeedsOfPairs(graph, 1, ends, sampler::Deal::kGlobal).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find(absl::StrCat("pair ", ends.size() / 2 - 1)), absl::string_view::npos) << refused;
  }
  const absl::Status unknown = sampler::linkSeedsOfSplit(graph, 0, "trian", sampler::Deal::kGlobal).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(unknown.message().find("'train'"), absl::string_view::npos) << unknown;
}

// Whoever has not verified a store learns of a damaged id map before a node that there is not is asked for.
TEST(SeedEdges, AreAnError_WhenTheIdMapIsDamaged) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.edgeSplits = true;
  for (const int type : {0, 1}) {
    TemporaryDirectory directory;
    const std::string store = writeFixtureStore(fixture, 2, directory / "store");
    SamplingCluster cluster(store, 1, rpc::TransportKind::kInProcess);
    const auto& graph = cluster.machine(0).graph;
    const std::string name = graph->schema().nodeTypes[static_cast<size_t>(type)].name;
    std::fstream map(absl::StrCat(store, "/", partition::gidMapPath(graph->schema(), type)), std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(map.seekp(-8, std::ios::end));
    const uint64_t beyond = 1'000'000;
    ASSERT_TRUE(map.write(reinterpret_cast<const char*>(&beyond), sizeof(beyond)).flush());
    const std::vector<int64_t> ends = {0, 0, 59, 30};
    for (const auto deal : {sampler::Deal::kByOwner, sampler::Deal::kGlobal}) {
      const absl::Status refused = sampler::linkSeedsOfPairs(graph, 1, ends, deal).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
      EXPECT_NE(refused.message().find(absl::StrCat("the id map of node type '", name, "'")), absl::string_view::npos) << refused;
    }
  }
}

// Where a source has edges to all nodes no negative can be found: those stay, and are named.
TEST(StrictNegatives, StayAndAreNamed_WhenEveryPairIsAnEdge) {
  FixtureOptions fixture;
  fixture.nodes = 4;
  fixture.edges = 400;
  fixture.method = partition::PartitionMethod::kRandom;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  const auto dataset = makeFixtureDataset(fixture);
  ASSERT_EQ(Edges(dataset, 0).pairs.size(), 16U);
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  LinkEpoch epoch = epochOf(1, {0}, 8);
  epoch.link.negativesPerEdge = 1;
  epoch.link.strict = true;
  const double before = static_cast<double>(cluster.machine(0).agent->traffic().callsSent);
  const auto batches = sampleLinks(&cluster, 0, someEdges(dataset, 0, 100), epoch);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].unresolved, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  // One request per owner and round, and the rounds are bounded.
  EXPECT_LE(static_cast<double>(cluster.machine(0).agent->traffic().callsSent) - before, sampler::kMaxRedraws + 1 + 2);
}

TEST(StrictNegatives, AreAnError_WhenAnOwnerIsLost) {
  FixtureOptions fixture;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kUv);
  cluster.machine(1).agent->close(absl::CancelledError("gone"));
  LinkEpoch epoch = epochOf(1, {2}, 16);
  epoch.link.negativesPerEdge = 4;
  epoch.link.strict = true;
  try {
    sampleLinks(&cluster, 0, someEdges(makeFixtureDataset(fixture), 0, 9), epoch);
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("drawing negatives of batch"), std::string::npos) << error.what();
  }
}

// How often each node is drawn as the destination of negatives, or as their source, against its expected share.
void expectShares(const FixtureOptions& fixture, const sampler::LinkOptions& link, const std::vector<double>& weights,
                  bool sources = false, int relation = 0) {
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 3, directory / "store");
  const auto dataset = makeFixtureDataset(fixture);
  SamplingCluster cluster(directory / "store", 3, rpc::TransportKind::kInProcess);
  LinkEpoch epoch = epochOf(dataset.schema.relations.size(), {0}, 64);
  epoch.link = link;
  std::vector<double> counts(weights.size());
  double total = 0, sum = 0, chi = 0;
  for (const CanonicalLinks& links : sampleLinks(&cluster, 1, someEdges(dataset, relation, 3), epoch)) {
    for (uint64_t j = 0; j < links.negatives; ++j, ++total) {
      ++counts[sources ? links.negative(j).first : links.negative(j).second];
    }
  }
  for (double weight : weights) sum += weight;
  int cells = 0;
  for (size_t node = 0; node < weights.size(); ++node) {
    const double expected = total * weights[node] / sum;
    if (expected == 0) {
      ASSERT_EQ(counts[node], 0) << node;
      continue;
    }
    ASSERT_GE(expected, 5) << "too few draws for the test";
    chi += std::pow(counts[node] - expected, 2) / expected;
    ++cells;
  }
  EXPECT_LT(chi, chiSquareLimit(cells - 1));
}

// More nodes than one block of weights.
TEST(Negatives, AreUniformOverDestinations_OrFollowTheirDegrees) {
  FixtureOptions fixture;
  fixture.nodes = 300;
  fixture.edges = 2000;
  const Edges edges(makeFixtureDataset(fixture), 0);
  sampler::LinkOptions link;
  link.negativesPerEdge = 40;
  expectShares(fixture, link, std::vector<double>(300, 1.0));
  std::vector<double> weights;
  for (uint64_t node = 0; node < 300; ++node) weights.push_back(std::pow(static_cast<double>(edges.degree(node, {})), 0.75));
  link.nodes = sampler::NegativeNodes::kDegree;
  expectShares(fixture, link, weights);
}

// Where both ends are drawn: sources follow out-degrees, destinations in-degrees. Of two types, so that neither is taken
// for the other.
TEST(Negatives, DrawBothEndsByTheirOwnDegrees) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.nodes = 120;
  fixture.edges = 1500;
  const auto dataset = makeFixtureDataset(fixture);
  const Edges edges(dataset, 1), reversed(dataset, 1, true);
  for (const auto nodes : {sampler::NegativeNodes::kUniform, sampler::NegativeNodes::kDegree}) {
    sampler::LinkOptions link;
    link.negativesPerEdge = 30;
    link.drawSources = true;
    link.nodes = nodes;
    const auto weightsOf = [&](const Edges& of, uint64_t count) {
      std::vector<double> weights;
      for (uint64_t node = 0; node < count; ++node) {
        weights.push_back(nodes == sampler::NegativeNodes::kUniform ? 1 : std::pow(static_cast<double>(of.degree(node, {})), 0.75));
      }
      return weights;
    };
    expectShares(fixture, link, weightsOf(edges, 61), false, 1);
    expectShares(fixture, link, weightsOf(reversed, 120), true, 1);
  }
}

// What is left of a hub's row is drawn uniformly when some of it is excluded, by its owner and by another machine.
TEST(ExcludedDraws, AreUniformOverWhatIsLeft) {
  FixtureOptions fixture;
  const auto dataset = makeFixtureDataset(fixture);
  const Edges edges(dataset, 0);
  const auto hub = std::max_element(edges.inEdges.begin(), edges.inEdges.end(),
                                    [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  const int64_t first = static_cast<int64_t>(hub->second.begin()->first), node = static_cast<int64_t>(hub->first);
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  constexpr int kBatches = 3000;
  std::vector<int64_t> ends;
  for (int i = 0; i < kBatches; ++i) ends.insert(ends.end(), {first, node});
  const LinkSeedsOf seeds = [&](std::shared_ptr<const sampler::PartitionedGraph> graph, sampler::Deal deal) {
    return sampler::linkSeedsOfPairs(std::move(graph), 0, ends, deal);
  };
  for (int machine : {0, 1}) {
    LinkEpoch epoch = epochOf(1, {3}, 1);
    epoch.link.excludeSeeds = true;
    std::map<uint64_t, double> counts;
    for (const CanonicalLinks& links : sampleLinks(&cluster, machine, seeds, epoch)) {
      const auto& drawn = links.batch.relations[0];
      const uint32_t row = links.destinationIndex[0];
      for (uint32_t i = drawn.indptr[row]; i < drawn.indptr[row + 1]; ++i) ++counts[drawn.edgeIds[i]];
    }
    const double left = static_cast<double>(edges.degree(hub->first, {hub->second.begin()->first}));
    ASSERT_EQ(static_cast<double>(counts.size()), left);
    double chi = 0;
    for (const auto& [edge, count] : counts) chi += std::pow(count - 3.0 * kBatches / left, 2) / (3.0 * kBatches / left);
    EXPECT_LT(chi, chiSquareLimit(left - 1)) << "machine " << machine;
  }
}

}  // namespace
}  // namespace farhop::testing
