// Trees that are more than one seed's neighbourhood: of seed edges, and with all edges between their nodes. The same on
// any partitioning, without a look ahead, as brute force says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "partition/dataset.h"
#include "sampler/node_times.h"
#include "sampler/seed_set.h"
#include "tests/fixture_graphs.h"
#include "tests/link_cluster.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using sampler::DrawKind;

struct Layout {
  int parts;
  int machines;
  rpc::TransportKind transport;
};
constexpr Layout kLayouts[] = {{1, 1, rpc::TransportKind::kInProcess}, {2, 2, rpc::TransportKind::kUv},
                               {3, 3, rpc::TransportKind::kInProcess}, {5, 5, rpc::TransportKind::kInProcess},
                               {5, 2, rpc::TransportKind::kInProcess}};

// A fixture on every layout, and what its data set says. Relations [0, forward) are those of the data set, the others
// their reverses.
struct Everywhere {
  explicit Everywhere(const FixtureOptions& options) : fixture(options), dataset(makeFixtureDataset(options)) {
    std::map<int, std::string> stores;
    for (const Layout& layout : kLayouts) {
      std::string& store = stores[layout.parts];
      if (store.empty()) {
        store = directory / absl::StrCat("store-", layout.parts);
        writeFixtureStore(fixture, layout.parts, store);
      }
      clusters.push_back(std::make_unique<SamplingCluster>(store, layout.machines, layout.transport));
    }
    forward = dataset.schema.relations.size();
    relations = fixture.addReverse ? 2 * forward : forward;
  }
  int sourceType(size_t r) const {
    const partition::Relation& edges = dataset.schema.relations[r % forward];
    return r < forward ? edges.source : edges.destination;
  }
  int destinationType(size_t r) const {
    const partition::Relation& edges = dataset.schema.relations[r % forward];
    return r < forward ? edges.destination : edges.source;
  }
  uint64_t source(size_t r, uint64_t e) const {
    return r < forward ? dataset.edges[r].source[e] : dataset.edges[r % forward].destination[e];
  }
  uint64_t destination(size_t r, uint64_t e) const {
    return r < forward ? dataset.edges[r].destination[e] : dataset.edges[r % forward].source[e];
  }
  int64_t timeOf(size_t r, uint64_t e) const {
    if (!fixture.edgeTimes && !fixture.nodeTimes) return 0;
    return fixtureVisibleTime(fixture, static_cast<int>(r % forward), e, sourceType(r), source(r, e));
  }

  // Calls `sample(cluster, machine, stream)` on each layout and expects the same of all; returns it.
  template <typename Sample>
  auto expectSame(const Sample& sample) {
    std::decay_t<decltype(sample(clusters[0].get(), 0, sampler::StreamOptions{}))> reference;
    for (auto& cluster : clusters) {
      for (const auto& [machine, threads] : {std::pair{0, 1}, std::pair{cluster->size() - 1, 3}}) {
        const auto batches = sample(cluster.get(), machine, sampler::StreamOptions{threads, 2});
        if (reference.empty()) reference = batches;
        EXPECT_TRUE(batches == reference) << cluster->store().numPartitions() << " partitions of " << cluster->size()
                                          << " machines, machine " << machine;
      }
    }
    return reference;
  }

  FixtureOptions fixture;
  partition::Dataset dataset;
  TemporaryDirectory directory;
  std::vector<std::unique_ptr<SamplingCluster>> clusters;
  size_t forward = 0, relations = 0;
};

// The graph of these tests, made once: without times, or with every kind of times, weights and splits.
class Graphs : public ::testing::Environment {
 public:
  static Everywhere& of(bool timed) {
    std::unique_ptr<Everywhere>& graph = made_[timed ? 1 : 0];
    if (graph == nullptr) {
      FixtureOptions fixture;
      fixture.heterogeneous = true;
      fixture.nodes = 90;
      fixture.edges = 1200;
      fixture.addReverse = true;
      fixture.edgeTimes = fixture.nodeTimes = fixture.declaredWeights = fixture.edgeSplits = timed;
      graph = std::make_unique<Everywhere>(fixture);
    }
    return *graph;
  }
  void TearDown() override {
    for (auto& graph : made_) graph.reset();
  }

 private:
  static std::unique_ptr<Everywhere> made_[2];
};
std::unique_ptr<Everywhere> Graphs::made_[2];
const auto* const kGraphs = ::testing::AddGlobalTestEnvironment(new Graphs);

// Every seventh edge of relation 1, and its time where there are some: some edges' own, some earlier, some later than all.
struct Links {
  explicit Links(const Everywhere& graph, bool timed) {
    int64_t latest = 0;
    for (uint64_t e = 0; e < graph.dataset.edges[1].source.size(); ++e) latest = std::max(latest, graph.timeOf(1, e));
    for (uint64_t e = 0; e < graph.dataset.edges[1].source.size(); e += 7) {
      ends.push_back(static_cast<int64_t>(graph.dataset.edges[1].source[e]));
      ends.push_back(static_cast<int64_t>(graph.dataset.edges[1].destination[e]));
      if (timed) times.push_back(e % 3 == 0 ? graph.timeOf(1, e) : e % 3 == 1 ? latest + 1 : graph.timeOf(1, e) - latest / 2);
    }
  }
  LinkSeedsOf seedsOf() const {
    return [this](std::shared_ptr<const sampler::PartitionedGraph> graph, sampler::Deal deal) {
      return sampler::linkSeedsOfPairs(std::move(graph), 1, ends, deal, times);
    };
  }
  std::vector<int64_t> ends, times;
};

LinkEpoch linkEpoch(size_t relations, DrawKind kind) {
  LinkEpoch epoch;
  epoch.sampling.fanouts = {std::vector<int64_t>(relations, 4), std::vector<int64_t>(relations, 3)};
  epoch.sampling.kinds.assign(relations, {kind, 0});
  epoch.sampling.disjoint = true;
  epoch.sampling.edgeIds = true;
  epoch.sampling.seed = 7;
  epoch.deal.batchSize = 24;
  epoch.deal.deal = sampler::Deal::kGlobal;
  epoch.deal.tail = sampler::Tail::kUneven;
  epoch.link.negativesPerEdge = 1.5;
  epoch.link.excludeSeeds = true;
  epoch.link.reverseRelation = 4;
  return epoch;
}

// Both ends of each pair lie in the tree of its seed edge, every edge within one tree, and no tree shows its own seed edge.
void expectTrees(const Everywhere& graph, const CanonicalLinks& links) {
  const auto& trees = links.batch.trees;
  const bool drawsSources = links.batch.seeds.size() == links.edges + links.negatives;
  ASSERT_EQ(links.batch.seeds.size(), links.edges + (drawsSources ? links.negatives : 0));
  const auto treeOf = [&](uint64_t i) { return i < links.edges ? i : sampler::edgeOfNegative(i - links.edges, links.edges, links.negatives); };
  for (uint64_t i = 0; i < links.batch.seeds.size(); ++i) {
    ASSERT_EQ(trees[static_cast<size_t>(graph.sourceType(1))][links.batch.seedIndex[i]], treeOf(i));
  }
  for (uint64_t i = 0; i < links.destinations.size(); ++i) {
    ASSERT_EQ(trees[static_cast<size_t>(graph.destinationType(1))][links.destinationIndex[i]], treeOf(i));
  }
  size_t shownElsewhere = 0;
  std::set<std::pair<uint64_t, uint64_t>> seeds;
  for (uint64_t i = 0; i < links.edges; ++i) seeds.insert(links.seed(i));
  for (size_t r = 0; r < graph.relations; ++r) {
    const auto& sampled = links.batch.relations[r];
    const size_t from = static_cast<size_t>(graph.sourceType(r)), to = static_cast<size_t>(graph.destinationType(r));
    for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
      for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i) {
        const uint32_t tree = trees[to][row];
        ASSERT_EQ(trees[from][sampled.indices[i]], tree);
        std::pair<uint64_t, uint64_t> edge(links.batch.nodes[from][sampled.indices[i]], links.batch.nodes[to][row]);
        if (r == 4) std::swap(edge.first, edge.second);
        if (r != 1 && r != 4) continue;
        ASSERT_NE(edge, links.seed(tree)) << "relation " << r;
        shownElsewhere += seeds.count(edge);
      }
    }
  }
  // What a tree shows does not depend on which other seeds the batch has.
  if (links.edges == 24) {
    EXPECT_GT(shownElsewhere, 0u);
  }
}

TEST(TreesOfSeedEdges, HoldBothEndsAndTheNegatives_OnAnyPartitioning) {
  Everywhere& graph = Graphs::of(false);
  const Links seeds(graph, false);
  for (const bool drawSources : {false, true}) {
    LinkEpoch epoch = linkEpoch(graph.relations, drawSources ? DrawKind::kUniformWithReplacement : DrawKind::kUniform);
    epoch.link.drawSources = drawSources;
    epoch.link.strict = true;
    epoch.edgeFeatures = true;
    const auto batches = graph.expectSame([&](SamplingCluster* cluster, int machine, sampler::StreamOptions stream) {
      epoch.stream = std::move(stream);
      return sampleLinks(cluster, machine, seeds.seedsOf(), epoch);
    });
    ASSERT_EQ(batches.size(), 8U);
    for (const CanonicalLinks& links : batches) expectTrees(graph, links);
  }
}

// No edge and no node later than the seed edge's time, the negatives included, whatever draws.
TEST(TreesOfSeedEdges, NeverLookAhead) {
  Everywhere& graph = Graphs::of(true);
  const Links seeds(graph, true);
  for (DrawKind kind : {DrawKind::kUniform, DrawKind::kUniformWithReplacement, DrawKind::kMostRecent, DrawKind::kLabor,
                        DrawKind::kLaborPoisson, DrawKind::kWeighted, DrawKind::kWeightedWithReplacement}) {
    LinkEpoch epoch = linkEpoch(graph.relations, kind);
    if (sampler::drawsByWeight(kind)) {
      for (size_t r = graph.forward; r < graph.relations; ++r) epoch.sampling.kinds[r].weight = sampler::kStoredWeights;
    }
    epoch.sampling.temporal = true;
    epoch.link.drawSources = kind != DrawKind::kUniform;
    epoch.link.nodes = kind == DrawKind::kMostRecent ? sampler::NegativeNodes::kDegree : sampler::NegativeNodes::kUniform;
    const auto batches = graph.expectSame([&](SamplingCluster* cluster, int machine, sampler::StreamOptions stream) {
      TestMachine& self = cluster->machine(machine);
      epoch.stream = std::move(stream);
      epoch.edgeFeatures = machine == 0;
      const auto times = [&](int type) {
        return mustHave(sampler::NodeTimes::make(*self.graph, self.puller.get(), type, Deadline::after(std::chrono::seconds(20))));
      };
      epoch.link.destinationTimes = times(graph.destinationType(1));
      epoch.link.sourceTimes = times(graph.sourceType(1));
      return sampleLinks(cluster, machine, seeds.seedsOf(), epoch);
    });
    // Before this no node is there to be drawn.
    const auto earliest = [&](int type) {
      int64_t time = fixtureNodeTime(type, 0);
      for (uint64_t id = 1; id < graph.dataset.schema.nodeTypes[static_cast<size_t>(type)].count; ++id) {
        time = std::min<int64_t>(time, fixtureNodeTime(type, id));
      }
      return time;
    };
    int64_t first = earliest(graph.destinationType(1));
    if (epoch.link.drawSources) first = std::max(first, earliest(graph.sourceType(1)));
    size_t edges = 0, unresolved = 0;
    for (const CanonicalLinks& links : batches) {
      expectTrees(graph, links);
      const auto timeOfTree = [&](uint64_t tree) { return seeds.times[links.positions[tree]]; };
      ASSERT_EQ(links.batch.treeTimes.size(), links.edges);
      for (uint64_t tree = 0; tree < links.edges; ++tree) ASSERT_EQ(links.batch.treeTimes[tree], timeOfTree(tree));
      unresolved += links.unresolved.size();
      for (uint32_t j = 0; j < links.negatives; ++j) {
        const int64_t time = timeOfTree(sampler::edgeOfNegative(j, links.edges, links.negatives));
        const bool named = std::binary_search(links.unresolved.begin(), links.unresolved.end(), j);
        ASSERT_EQ(named, time < first);
        if (named) continue;
        ASSERT_LE(fixtureNodeTime(graph.destinationType(1), links.negative(j).second), time);
        if (epoch.link.drawSources) {
          ASSERT_LE(fixtureNodeTime(graph.sourceType(1), links.negative(j).first), time);
        }
      }
      for (size_t r = 0; r < graph.relations; ++r) {
        const auto& sampled = links.batch.relations[r];
        for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
          const uint32_t tree = links.batch.trees[static_cast<size_t>(graph.destinationType(r))][row];
          for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i, ++edges) {
            ASSERT_LE(graph.timeOf(r, sampled.edgeIds[i]), timeOfTree(tree)) << "relation " << r;
          }
        }
      }
    }
    EXPECT_GT(edges, 2000u);
    EXPECT_GT(unresolved, 0u);
  }
}

// All edges of a relation have the store's own times.
TEST(TreesOfSeedEdges, HaveTheStoresTimes_WhereAllEdgesAreSeeds) {
  Everywhere& graph = Graphs::of(true);
  for (auto& cluster : graph.clusters) {
    size_t dealt = 0;
    for (int machine = 0; machine < cluster->size(); ++machine) {
      const auto set = mustHave(sampler::linkSeedsOfRelation(cluster->machine(machine).graph, 1, sampler::Deal::kByOwner));
      EXPECT_TRUE(set.pairs->hasTimes());
      std::multiset<std::tuple<uint64_t, uint64_t, int64_t>> known;
      for (uint64_t e = 0; e < graph.dataset.edges[1].source.size(); ++e) {
        known.insert({graph.source(1, e), graph.destination(1, e), graph.timeOf(1, e)});
      }
      for (uint64_t i = 0; i < set.set.ownPositions; ++i, ++dealt) {
        const sampler::SeedPair pair = set.pairs->at(i);
        const auto at = known.find({cluster->originalId(0, pair.source), cluster->originalId(1, pair.destination), pair.time});
        ASSERT_NE(at, known.end());
        known.erase(at);
      }
    }
    EXPECT_EQ(dealt, graph.dataset.edges[1].source.size());
  }
}

TEST(TreesOfSeedEdges, AreRefused_WithoutTheirTimes) {
  Everywhere& graph = Graphs::of(true);
  const auto& machine = graph.clusters[0]->machine(0);
  const auto few = sampler::linkSeedsOfSplit(machine.graph, 0, "train", sampler::Deal::kByOwner, {1, 2, 3});
  EXPECT_NE(few.status().message().find("3 times for "), absl::string_view::npos) << few.status();
  LinkEpoch epoch = linkEpoch(graph.relations, DrawKind::kUniform);
  epoch.sampling.temporal = true;
  const Links untimed(graph, false);
  EXPECT_THROW(sampleLinks(graph.clusters[0].get(), 0, untimed.seedsOf(), epoch), std::runtime_error);
}

// A split's times go by the data set's order, whoever owns the seeds.
TEST(TreesOfSeedEdges, HaveTheTimesOfASplit_ByItsOrder) {
  Everywhere& graph = Graphs::of(true);
  const partition::EdgeSplitSeeds* split = nullptr;
  for (const auto& one : graph.dataset.edgeSplits) split = one.name == "test" ? &one : split;
  ASSERT_NE(split, nullptr);
  std::vector<int64_t> times;
  for (uint64_t i = 0; i < split->source.size(); ++i) times.push_back(static_cast<int64_t>(1000 + i));
  for (auto& cluster : graph.clusters) {
    size_t dealt = 0;
    for (int machine = 0; machine < cluster->size(); ++machine) {
      const auto set = mustHave(
          sampler::linkSeedsOfSplit(cluster->machine(machine).graph, 0, "test", sampler::Deal::kByOwner, times));
      for (uint64_t i = 0; i < set.set.ownPositions; ++i, ++dealt) {
        const sampler::SeedPair pair = set.pairs->at(i);
        const uint64_t at = static_cast<uint64_t>(pair.time) - 1000;
        ASSERT_LT(at, times.size());
        EXPECT_EQ(cluster->originalId(0, pair.source), split->source[at]);
        EXPECT_EQ(cluster->originalId(0, pair.destination), split->destination[at]);
      }
    }
    EXPECT_EQ(dealt, times.size());
  }
}

TEST(NodeTimes, CountTheNodesThatAreNotLater) {
  const std::vector<int64_t> timeOf = {5, -2, 5, 0, 9};
  const sampler::NodeTimes times(timeOf);
  EXPECT_EQ(times.countUntil(-3), 0u);
  EXPECT_EQ(times.countUntil(-2), 1u);
  EXPECT_EQ(times.countUntil(5), 4u);
  EXPECT_EQ(times.countUntil(100), 5u);
  const std::vector<uint64_t> order = {1, 3, 0, 2, 4};
  for (uint64_t i = 0; i < order.size(); ++i) EXPECT_EQ(times.originalIdAt(i), order[i]);
}

struct Seeds {
  std::vector<uint64_t> ids;
  std::vector<int64_t> times;
};

// Repeats included, so that trees have the same root.
Seeds someSeeds(const Everywhere& graph, bool timed) {
  Seeds seeds;
  std::vector<int64_t> known;
  for (uint64_t e = 0; e < graph.fixture.edges; ++e) known.push_back(graph.timeOf(0, e));
  std::sort(known.begin(), known.end());
  for (uint64_t i = 0; i < 40; ++i) {
    seeds.ids.push_back(i * 37 % 23);
    if (timed) seeds.times.push_back(known[known.size() / 8 + i * 97 % (known.size() - known.size() / 8)]);
  }
  return seeds;
}

// All edges of the data set between nodes of one tree that are not later than it, in the order of rows.
void expectInduced(const Everywhere& graph, const CanonicalBatch& batch) {
  for (size_t r = 0; r < graph.relations; ++r) {
    const size_t from = static_cast<size_t>(graph.sourceType(r)), to = static_cast<size_t>(graph.destinationType(r));
    std::map<std::pair<uint32_t, uint64_t>, uint32_t> numbers;
    for (uint32_t i = 0; i < batch.nodes[from].size(); ++i) numbers[{batch.trees[from][i], batch.nodes[from][i]}] = i;
    std::map<uint64_t, std::vector<std::tuple<int64_t, uint64_t, uint64_t>>> rows;  // time, source, edge id
    for (uint64_t e = 0; e < graph.dataset.edges[r % graph.forward].source.size(); ++e) {
      rows[graph.destination(r, e)].emplace_back(graph.timeOf(r, e), graph.source(r, e), e);
    }
    for (auto& [node, row] : rows) std::sort(row.begin(), row.end());
    const auto& induced = batch.relations[r];
    ASSERT_EQ(induced.indptr.size(), batch.nodes[to].size() + 1);
    size_t at = 0;
    for (size_t row = 0; row < batch.nodes[to].size(); ++row) {
      const uint32_t tree = batch.trees[to][row];
      for (const auto& [time, source, edge] : rows[batch.nodes[to][row]]) {
        const auto found = numbers.find({tree, source});
        if (found == numbers.end() || (!batch.treeTimes.empty() && time > batch.treeTimes[tree])) continue;
        ASSERT_LT(at, induced.indices.size());
        ASSERT_EQ(induced.indices[at], found->second) << "row " << row << " of relation " << r;
        ASSERT_EQ(induced.edgeIds[at], edge);
        ++at;
      }
      ASSERT_EQ(induced.indptr[row + 1], at) << "row " << row << " of relation " << r;
    }
  }
}

TEST(InducedTrees, HaveAllEdgesBetweenTheirNodes_OnAnyPartitioning) {
  for (const bool timed : {false, true}) {
    Everywhere& graph = Graphs::of(timed);
    const Seeds seeds = someSeeds(graph, timed);
    for (const sampler::Expand expand : {sampler::Expand::kNew, sampler::Expand::kAll}) {
      sampler::SamplingOptions options;
      options.fanouts = {std::vector<int64_t>(graph.relations, 3), std::vector<int64_t>(graph.relations, 2)};
      options.kinds.resize(graph.relations);
      options.subgraph = sampler::Subgraph::kInduced;
      options.expand = expand;
      options.disjoint = true;
      options.temporal = timed;
      options.edgeIds = true;
      options.seed = 7;
      const auto batches = graph.expectSame([&](SamplingCluster* cluster, int machine, sampler::StreamOptions stream) {
        return cluster->sampleEpoch(machine, 0, seeds.ids, 16, 3, options, stream, seeds.times);
      });
      ASSERT_EQ(batches.size(), 3U);
      size_t edges = 0;
      for (const CanonicalBatch& batch : batches) {
        expectInduced(graph, batch);
        for (const auto& relation : batch.relations) edges += relation.indices.size();
      }
      EXPECT_GT(edges, 1000u);
    }
  }
}

// The enclosing subgraph of each seed edge, without the edge itself.
TEST(InducedTrees, LeaveOutTheirSeedEdge) {
  Everywhere& graph = Graphs::of(true);
  const Links seeds(graph, true);
  LinkEpoch epoch = linkEpoch(graph.relations, DrawKind::kUniform);
  epoch.sampling.subgraph = sampler::Subgraph::kInduced;
  epoch.sampling.temporal = true;
  const auto batches = graph.expectSame([&](SamplingCluster* cluster, int machine, sampler::StreamOptions stream) {
    epoch.stream = std::move(stream);
    return sampleLinks(cluster, machine, seeds.seedsOf(), epoch);
  });
  for (const CanonicalLinks& links : batches) expectTrees(graph, links);
}

}  // namespace
}  // namespace farhop::testing
