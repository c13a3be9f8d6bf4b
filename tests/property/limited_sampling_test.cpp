// Disjoint, temporal and layer-neighbour sampling, through the whole sampler: against a plain sampler written for this
// test, the same on every partitioning, and without a look ahead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "base/random.h"
#include "partition/dataset.h"
#include "sampler/seed_set.h"
#include "tests/fixture_graphs.h"
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
                               {5, 2, rpc::TransportKind::kShm},       {3, 1, rpc::TransportKind::kInProcess}};

struct Seeds {
  std::vector<uint64_t> ids;
  std::vector<int64_t> times;  // or empty
};

// Repeats included.
Seeds someSeeds(uint64_t count, uint64_t nodes) {
  Seeds seeds;
  for (uint64_t i = 0; i < count; ++i) seeds.ids.push_back((i * 37) % nodes % 53);
  return seeds;
}

// From before all edges of the fixture to after all.
Seeds someTimedSeeds(const FixtureOptions& fixture, uint64_t count) {
  Seeds seeds = someSeeds(count, fixture.nodes);
  std::vector<int64_t> known;
  for (uint64_t e = 0; e < fixture.edges; ++e) known.push_back(fixtureEdgeTime(0, e));
  std::sort(known.begin(), known.end());
  for (uint64_t i = 0; i < count; ++i) {
    seeds.times.push_back(i % 10 == 0 ? known.front() - 1 : known[i * 97 % known.size()]);
  }
  return seeds;
}

sampler::SamplingOptions optionsOf(const std::vector<std::vector<int64_t>>& fanoutsByHop,
                                   std::vector<sampler::RelationKind> kinds) {
  sampler::SamplingOptions options;
  options.fanouts = fanoutsByHop;
  options.kinds = std::move(kinds);
  options.disjoint = true;
  options.seed = 7;
  options.edgeIds = true;
  return options;
}

// One graph in every layout.
class Layouts {
 public:
  explicit Layouts(const FixtureOptions& fixture) {
    std::map<int, std::string> stores;
    for (const Layout& layout : kLayouts) {
      std::string& store = stores[layout.parts];
      if (store.empty()) {
        store = directories_.emplace_back(std::make_unique<TemporaryDirectory>())->path() + "/store";
        writeFixtureStore(fixture, layout.parts, store);
      }
      clusters_.push_back(std::make_unique<SamplingCluster>(store, layout.machines, layout.transport));
    }
  }

  // Seeds draw no edges in relation 0 from these sources.
  static bool isExcluded(uint64_t source) { return source % 3 == 0; }

  // Samples on each layout, from its first and last machine, with 1 and 3 threads, and expects the same as on one
  // partition. Returns that.
  std::vector<CanonicalBatch> expectSame(int seedType, const Seeds& seeds, const sampler::SamplingOptions& options,
                                         bool exclude = false) {
    std::vector<CanonicalBatch> reference;
    sampler::SamplingOptions own = options;
    own.temporal = !seeds.times.empty();
    for (auto& cluster : clusters_) {
      for (const auto& [machine, threads] : {std::pair{0, 1}, std::pair{cluster->size() - 1, 3}}) {
        sampler::StreamOptions stream{threads, 2};
        if (exclude) stream.make = [&](auto* sampler, sampler::BatchRequest request, auto* workspace, auto memory) {
          for (uint32_t tree = 0; tree < request.seeds.size(); ++tree) {
            for (uint64_t source = 0; source < cluster->store().book().numNodes(0); ++source) {
              if (isExcluded(source)) request.excluded.push_back({0, request.seeds[tree], cluster->gid(0, source), tree});
            }
          }
          return sampler->sample(std::move(request), workspace, std::move(memory));
        };
        const auto batches = cluster->sampleEpoch(machine, seedType, seeds.ids, 16, 3, own, stream, seeds.times);
        if (reference.empty()) reference = batches;
        EXPECT_TRUE(batches == reference) << cluster->store().numPartitions() << " partitions of " << cluster->size()
                                          << " machines";
      }
    }
    return reference;
  }

 private:
  std::vector<std::unique_ptr<TemporaryDirectory>> directories_;
  std::vector<std::unique_ptr<SamplingCluster>> clusters_;
};

// Samples disjoint trees as one would write it down: maps, no partitions, no kernels but the draw of one row.
class PlainSampler {
 public:
  PlainSampler(const FixtureOptions& fixture, const sampler::SamplingOptions& options)
      : fixture_(fixture), dataset_(makeFixtureDataset(fixture)), options_(options) {
    for (size_t r = 0; r < dataset_.edges.size(); ++r) {
      auto& rows = rows_.emplace_back();
      for (uint64_t e = 0; e < dataset_.edges[r].source.size(); ++e) {
        rows[dataset_.edges[r].destination[e]].push_back({timeOf(r, e), dataset_.edges[r].source[e], e});
      }
      for (auto& [node, row] : rows) std::sort(row.begin(), row.end());
    }
  }

  // Batch `number` of epoch 3; edges by relation, row after row.
  CanonicalBatch sample(const std::vector<uint64_t>& seeds, const std::vector<int64_t>& times, uint64_t number, int seedType) {
    const auto& relations = dataset_.schema.relations;
    CanonicalBatch batch;
    batch.nodes.resize(dataset_.schema.nodeTypes.size());
    batch.trees.resize(batch.nodes.size());
    batch.nodesByHop.resize(batch.nodes.size());
    batch.relations.resize(relations.size());
    std::vector<std::map<std::pair<uint32_t, uint64_t>, uint32_t>> numbers(batch.nodes.size());
    const auto numberOf = [&](int type, uint32_t tree, uint64_t node) {
      const auto [at, isNew] = numbers[type].try_emplace({tree, node}, static_cast<uint32_t>(batch.nodes[type].size()));
      if (isNew) {
        batch.nodes[type].push_back(node);
        batch.trees[type].push_back(tree);
      }
      return at->second;
    };
    for (uint32_t i = 0; i < seeds.size(); ++i) numberOf(seedType, i, seeds[i]);
    for (auto& relation : batch.relations) relation.indptr.push_back(0);
    std::vector<size_t> first(batch.nodes.size(), 0), last;
    for (size_t hop = 0; hop < options_.fanouts.size(); ++hop) {
      last.clear();
      for (size_t type = 0; type < batch.nodes.size(); ++type) {
        last.push_back(batch.nodes[type].size());
        batch.nodesByHop[type].push_back(static_cast<uint32_t>(last.back()));
      }
      for (size_t r = 0; r < relations.size(); ++r) {
        auto& sampled = batch.relations[r];
        const int to = relations[r].destination;
        for (size_t row = first[to]; row < last[to]; ++row) {
          const uint32_t tree = batch.trees[to][row];
          for (const Edge& edge : draw(r, batch.nodes[to][row], tree, times, hop, number)) {
            sampled.edgeIds.push_back(std::get<2>(edge));
            sampled.indices.push_back(numberOf(relations[r].source, tree, std::get<1>(edge)));
          }
          sampled.indptr.push_back(static_cast<uint32_t>(sampled.indices.size()));
        }
      }
      first = last;
    }
    for (size_t type = 0; type < batch.nodes.size(); ++type) {
      batch.nodesByHop[type].push_back(static_cast<uint32_t>(batch.nodes[type].size()));
    }
    return batch;
  }

  int64_t timeOf(size_t relation, uint64_t edge) const {
    if (!fixture_.edgeTimes && !fixture_.nodeTimes) return 0;
    return fixtureVisibleTime(fixture_, static_cast<int>(relation), edge, dataset_.schema.relations[relation].source,
                              dataset_.edges[relation].source[edge]);
  }
  const partition::Dataset& dataset() const { return dataset_; }
  bool excluding = false;  // as Layouts does

 private:
  using Edge = std::tuple<int64_t, uint64_t, uint64_t>;  // time, source, edge id

  std::vector<Edge> draw(size_t relation, uint64_t node, uint32_t tree, const std::vector<int64_t>& times, size_t hop,
                         uint64_t number) {
    std::vector<Edge> visible;
    for (const Edge& edge : rows_[relation][node]) {
      if (excluding && hop == 0 && Layouts::isExcluded(std::get<1>(edge))) continue;
      if (times.empty() || std::get<0>(edge) <= times[tree]) visible.push_back(edge);
    }
    const int64_t fanout = options_.fanouts[hop][relation];
    if (options_.kinds[relation].kind == DrawKind::kMostRecent) {
      const size_t count = fanout < 0 ? visible.size() : std::min(visible.size(), static_cast<size_t>(fanout));
      return {visible.end() - static_cast<ptrdiff_t>(count), visible.end()};
    }
    const uint64_t key = hopKey(options_.seed, 3, number, hop, Purpose::kNeighbors,
                                hashName(dataset_.schema.relationText(static_cast<int>(relation))));
    std::vector<uint64_t> positions;
    sampler::PositionSet scratch;
    sampler::drawPositions(nodeKey(key, node, tree), visible.size(), fanout, &positions, &scratch);
    std::vector<Edge> drawn;
    for (uint64_t position : positions) drawn.push_back(visible[position]);
    return drawn;
  }

  FixtureOptions fixture_;
  partition::Dataset dataset_;
  sampler::SamplingOptions options_;
  std::vector<std::map<uint64_t, std::vector<Edge>>> rows_;  // [relation]
};

void expectAsPlain(Layouts* layouts, const FixtureOptions& fixture, int seedType, const Seeds& seeds,
                   const sampler::SamplingOptions& options, bool exclude = false) {
  const auto batches = layouts->expectSame(seedType, seeds, options, exclude);
  PlainSampler plain(fixture, options);
  plain.excluding = exclude;
  ASSERT_EQ(batches.size(), (seeds.ids.size() + 15) / 16);
  for (size_t b = 0; b < batches.size(); ++b) {
    const auto slice = [&](const auto& all) {
      const size_t from = std::min(all.size(), 16 * b), to = std::min(all.size(), 16 * b + 16);
      return std::vector(all.begin() + static_cast<ptrdiff_t>(from), all.begin() + static_cast<ptrdiff_t>(to));
    };
    const CanonicalBatch expected = plain.sample(slice(seeds.ids), slice(seeds.times), b, seedType);
    const CanonicalBatch& batch = batches[b];
    EXPECT_EQ(batch.seeds, slice(seeds.ids));
    for (uint32_t i = 0; i < batch.seedIndex.size(); ++i) EXPECT_EQ(batch.seedIndex[i], i);
    EXPECT_EQ(batch.nodes, expected.nodes) << "batch " << b;
    EXPECT_EQ(batch.trees, expected.trees) << "batch " << b;
    EXPECT_EQ(batch.nodesByHop, expected.nodesByHop) << "batch " << b;
    for (size_t r = 0; r < batch.relations.size(); ++r) {
      EXPECT_TRUE(batch.relations[r].indptr == expected.relations[r].indptr) << "batch " << b << ", relation " << r;
      EXPECT_TRUE(batch.relations[r].indices == expected.relations[r].indices) << "batch " << b << ", relation " << r;
      EXPECT_TRUE(batch.relations[r].edgeIds == expected.relations[r].edgeIds) << "batch " << b << ", relation " << r;
    }
  }
}

FixtureOptions heterogeneous() {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.nodes = 120;
  fixture.edges = 1500;
  return fixture;
}

TEST(DisjointSeeds, HaveTreesOfTheirOwn_AsAPlainSamplerDrawsThem) {
  const FixtureOptions fixture;
  Layouts one(fixture), many(heterogeneous());
  expectAsPlain(&one, fixture, 0, someSeeds(40, 60), optionsOf({{4}, {3}, {2}}, {{}}));
  expectAsPlain(&one, fixture, 0, someSeeds(20, 60), optionsOf({{-1}, {40}}, {{}}));
  expectAsPlain(&many, heterogeneous(), 1, someSeeds(40, 61), optionsOf({{5, 2, 0}, {3, -1, 4}}, {{}, {}, {}}));
}

TEST(DisjointSeeds, ShareNothing_WhateverTheKindAndTheExpansion) {
  FixtureOptions fixture;
  fixture.nodes = 100;
  fixture.edges = 1500;
  Layouts layouts(fixture);
  for (DrawKind kind : {DrawKind::kUniformWithReplacement, DrawKind::kWeighted, DrawKind::kWeightedWithReplacement,
                        DrawKind::kLabor, DrawKind::kLaborPoisson}) {
    for (sampler::Expand expand : {sampler::Expand::kNew, sampler::Expand::kAll}) {
      auto options = optionsOf({{4}, {30}, {2}}, {{kind}});
      options.expand = expand;
      for (const auto& batch : layouts.expectSame(0, someSeeds(40, 100), options)) {
        ASSERT_EQ(batch.trees[0].size(), batch.nodes[0].size());
        std::set<std::pair<uint32_t, uint64_t>> distinct;
        for (size_t i = 0; i < batch.nodes[0].size(); ++i) distinct.insert({batch.trees[0][i], batch.nodes[0][i]});
        EXPECT_EQ(distinct.size(), batch.nodes[0].size());
        for (const auto& edges : batch.relations) {
          for (size_t row = 0; row + 1 < edges.indptr.size(); ++row) {
            for (uint32_t i = edges.indptr[row]; i < edges.indptr[row + 1]; ++i) {
              ASSERT_EQ(batch.trees[0][edges.indices[i]], batch.trees[0][row]);
            }
          }
        }
      }
    }
  }
}

TEST(TemporalSampling, DrawsWhatAPlainSamplerDraws) {
  FixtureOptions fixture;
  fixture.edgeTimes = true;
  Layouts layouts(fixture);
  for (DrawKind kind : {DrawKind::kUniform, DrawKind::kMostRecent}) {
    expectAsPlain(&layouts, fixture, 0, someTimedSeeds(fixture, 40), optionsOf({{4}, {3}, {-1}}, {{kind}}));
    expectAsPlain(&layouts, fixture, 0, someTimedSeeds(fixture, 40), optionsOf({{40}, {1}}, {{kind}}));
  }
}

// Rows of which some edges are excluded and others are not visible yet.
TEST(TemporalSampling, DrawsWhatAPlainSamplerDraws_WithoutExcludedEdges) {
  FixtureOptions fixture;
  fixture.edgeTimes = true;
  Layouts layouts(fixture);
  for (DrawKind kind : {DrawKind::kUniform, DrawKind::kMostRecent}) {
    for (int64_t fanout : {2, -1}) {
      expectAsPlain(&layouts, fixture, 0, someTimedSeeds(fixture, 40), optionsOf({{fanout}, {3}}, {{kind}}), true);
    }
  }
}

// Other kinds have no plain sampler here; none may draw what is excluded or not visible, and all draw the same everywhere.
TEST(TemporalSampling, NeverDrawsExcludedEdges_WhateverTheKind) {
  FixtureOptions fixture;
  fixture.edgeTimes = true;
  Layouts layouts(fixture);
  for (DrawKind kind : {DrawKind::kUniformWithReplacement, DrawKind::kWeighted, DrawKind::kWeightedWithReplacement,
                        DrawKind::kLabor, DrawKind::kLaborPoisson}) {
    size_t edges = 0;
    for (const auto& batch : layouts.expectSame(0, someTimedSeeds(fixture, 40), optionsOf({{3}, {2}}, {{kind}}), true)) {
      const auto& sampled = batch.relations[0];
      for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
        for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i, ++edges) {
          const uint64_t source = batch.nodes[0][sampled.indices[i]];
          ASSERT_TRUE(row >= batch.seeds.size() || !Layouts::isExcluded(source)) << source;
          ASSERT_LE(fixtureVisibleTime(fixture, 0, sampled.edgeIds[i], 0, source), batch.treeTimes[batch.trees[0][row]]);
        }
      }
    }
    EXPECT_GT(edges, 60u);
  }
}

TEST(TemporalSampling, DrawsWhatAPlainSamplerDraws_WhereNodesHaveTimes) {
  FixtureOptions fixture = heterogeneous();
  fixture.nodeTimes = true;
  for (bool edgeTimes : {false, true}) {
    fixture.edgeTimes = edgeTimes;
    Layouts layouts(fixture);
    for (DrawKind kind : {DrawKind::kUniform, DrawKind::kMostRecent}) {
      expectAsPlain(&layouts, fixture, 1, someTimedSeeds(fixture, 40),
                    optionsOf({{5, 2, 0}, {3, -1, 4}}, {{kind}, {kind}, {kind}}));
    }
  }
}

// At any depth, whatever draws: neither edges nor nodes later than the seed's time. Reverse relations too.
TEST(TemporalSampling, NeverLooksAhead) {
  FixtureOptions fixture = heterogeneous();
  fixture.edgeTimes = fixture.nodeTimes = fixture.addReverse = true;
  const Seeds seeds = someTimedSeeds(fixture, 48);
  const auto dataset = makeFixtureDataset(fixture);
  Layouts layouts(fixture);
  const size_t forward = dataset.schema.relations.size();
  for (DrawKind kind : {DrawKind::kUniform, DrawKind::kUniformWithReplacement, DrawKind::kMostRecent, DrawKind::kLabor,
                        DrawKind::kLaborPoisson, DrawKind::kWeighted, DrawKind::kWeightedWithReplacement}) {
    std::vector<sampler::RelationKind> kinds(2 * forward, {kind});
    const bool byWeight = sampler::drawsByWeight(kind);
    if (byWeight) std::fill(kinds.begin() + static_cast<ptrdiff_t>(forward), kinds.end(), sampler::RelationKind{});
    size_t edges = 0;
    const auto options = optionsOf({std::vector<int64_t>(6, 3), std::vector<int64_t>(6, 2), std::vector<int64_t>(6, 4)}, kinds);
    for (const auto& batch : layouts.expectSame(0, seeds, options)) {
      for (size_t r = 0; r < 2 * forward; ++r) {
        const partition::Relation& relation = dataset.schema.relations[r % forward];
        const bool reverse = r >= forward;
        const int from = reverse ? relation.destination : relation.source, to = reverse ? relation.source : relation.destination;
        const auto& sampled = batch.relations[r];
        for (size_t row = 0; row + 1 < sampled.indptr.size(); ++row) {
          const uint32_t tree = batch.trees[to][row];
          for (uint32_t i = sampled.indptr[row]; i < sampled.indptr[row + 1]; ++i) {
            const uint64_t source = batch.nodes[from][sampled.indices[i]];
            ASSERT_EQ(batch.trees[from][sampled.indices[i]], tree);
            const int64_t time = fixtureVisibleTime(fixture, static_cast<int>(r % forward), sampled.edgeIds[i], from, source);
            ASSERT_LE(time, batch.treeTimes[tree]) << "edge " << sampled.edgeIds[i] << " of relation " << r;
            ASSERT_LE(fixtureNodeTime(from, source), batch.treeTimes[tree]);
            ++edges;
          }
        }
      }
    }
    EXPECT_GT(edges, 500u);
  }
}

// The 99.9 % quantile of chi-square with k degrees of freedom (Wilson, Hilferty).
double chiSquareLimit(double k) { return k * std::pow(1 - 2 / (9 * k) + 3.09 * std::sqrt(2 / (9 * k)), 3); }

// Every visible edge of the node with most in-edges is drawn equally often, no other ever; also by a remote owner.
TEST(TemporalSampling, IsUniformOverVisibleEdges) {
  FixtureOptions fixture;
  fixture.edgeTimes = true;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  const auto dataset = makeFixtureDataset(fixture);
  std::map<uint64_t, std::vector<int64_t>> times;
  for (uint64_t e = 0; e < fixture.edges; ++e) times[dataset.edges[0].destination[e]].push_back(fixtureEdgeTime(0, e));
  auto hub = std::max_element(times.begin(), times.end(), [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  std::sort(hub->second.begin(), hub->second.end());
  const int64_t median = hub->second[hub->second.size() / 2];
  const auto visible = std::count_if(hub->second.begin(), hub->second.end(), [&](int64_t time) { return time <= median; });
  ASSERT_GT(visible, 6);
  ASSERT_LT(static_cast<size_t>(visible), hub->second.size());
  constexpr size_t kDraws = 3000;
  for (DrawKind kind : {DrawKind::kUniform, DrawKind::kUniformWithReplacement}) {
    for (int machine : {0, 1}) {
      auto options = optionsOf({{3}}, {{kind}});
      options.temporal = true;
      std::map<uint64_t, int> counts;
      for (const auto& batch : cluster.sampleEpoch(machine, 0, std::vector<uint64_t>(kDraws, hub->first), 20, 0, options,
                                                   {1, 4}, std::vector<int64_t>(kDraws, median))) {
        for (uint64_t edge : batch.relations[0].edgeIds) ++counts[edge];
      }
      const double expected = 3.0 * kDraws / static_cast<double>(visible);
      double chi = 0;
      for (const auto& [edge, count] : counts) {
        EXPECT_LE(fixtureEdgeTime(0, edge), median);
        chi += std::pow(count - expected, 2) / expected;
      }
      EXPECT_EQ(counts.size(), static_cast<size_t>(visible));
      EXPECT_LT(chi, chiSquareLimit(static_cast<double>(visible) - 1)) << "machine " << machine;
    }
  }
}

TEST(LaborSampling, IsTheSameEverywhere_AndFindsFewerNodesThanUniform) {
  FixtureOptions fixture;
  fixture.nodes = 300;
  fixture.edges = 9000;
  Layouts layouts(fixture);
  const auto nodesOf = [&](DrawKind kind, bool layerDependency) {
    auto options = optionsOf({{5}, {5}}, {{kind}});
    options.disjoint = false;
    options.layerDependency = layerDependency;
    size_t nodes = 0;
    for (const auto& batch : layouts.expectSame(0, someSeeds(160, 300), options)) nodes += batch.nodes[0].size();
    return nodes;
  };
  const size_t uniform = nodesOf(DrawKind::kUniform, false);
  EXPECT_LT(nodesOf(DrawKind::kLabor, false), uniform * 9 / 10);
  EXPECT_LT(nodesOf(DrawKind::kLaborPoisson, false), uniform * 9 / 10);
  // The second hop tends to find what the first one found.
  EXPECT_LT(nodesOf(DrawKind::kLabor, true), nodesOf(DrawKind::kLabor, false));
}

// The store's own times: of a machine's own seeds where they are dealt by owner, of all, other machines' too, where each
// process deals the whole list.
TEST(SeedTimes, AreThoseOfTheStore_WhoeverOwnsTheSeed) {
  FixtureOptions fixture = heterogeneous();
  fixture.nodeTimes = true;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 50; ++i) ids.push_back(i * 37 % 61);
  ids.push_back(ids.front());
  for (const Layout& layout : kLayouts) {
    TemporaryDirectory directory;
    writeFixtureStore(fixture, layout.parts, directory / "store");
    SamplingCluster cluster(directory / "store", layout.machines, layout.transport, 64);
    size_t own = 0;
    for (int m = 0; m < layout.machines; ++m) {
      const TestMachine& machine = cluster.machine(m);
      for (const auto deal : {sampler::Deal::kByOwner, sampler::Deal::kGlobal}) {
        for (const int type : {0, 1}) {
          auto set = *sampler::seedSetOfIds(*machine.graph, ids, type, deal);
          ASSERT_TRUE(set.times.empty());
          const absl::Status status = sampler::addNodeTimes(*machine.graph, machine.puller.get(), deal,
                                                            Deadline::after(std::chrono::seconds(20)), &set);
          ASSERT_TRUE(status.ok()) << status;
          const auto& gids = deal == sampler::Deal::kGlobal ? set.all : set.own;
          ASSERT_EQ(set.times.size(), gids.size());
          for (size_t i = 0; i < gids.size(); ++i) {
            ASSERT_EQ(set.times[i], fixtureNodeTime(type, cluster.originalId(type, gids[i])));
          }
          ASSERT_TRUE(deal == sampler::Deal::kByOwner || gids.size() == ids.size());
          if (deal == sampler::Deal::kByOwner && type == 1) own += gids.size();
        }
      }
    }
    EXPECT_EQ(own, ids.size());
  }
}

TEST(SeedTimes, AreAnError_WhenTheStoreHasNone_OrTheirOwnerIsLost) {
  FixtureOptions fixture;
  fixture.edgeTimes = true;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "edges");
  fixture.nodeTimes = true;
  writeFixtureStore(fixture, 2, directory / "nodes");
  const auto timesIn = [](SamplingCluster* cluster) {
    const TestMachine& machine = cluster->machine(0);
    std::vector<int64_t> ids(60);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
    auto set = *sampler::seedSetOfIds(*machine.graph, ids, 0, sampler::Deal::kGlobal);
    return sampler::addNodeTimes(*machine.graph, machine.puller.get(), sampler::Deal::kGlobal,
                                 Deadline::after(std::chrono::seconds(20)), &set);
  };
  SamplingCluster without(directory / "edges", 2, rpc::TransportKind::kInProcess);
  const absl::Status none = timesIn(&without);
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(none.message().find("it has times of: relations "), absl::string_view::npos) << none;
  SamplingCluster with(directory / "nodes", 2, rpc::TransportKind::kInProcess);
  ASSERT_TRUE(timesIn(&with).ok());
  with.machine(1).agent->close(absl::CancelledError("gone"));
  const absl::Status lost = timesIn(&with);
  ASSERT_TRUE(peerOf(lost).has_value()) << lost;
  EXPECT_EQ(peerOf(lost)->machine, 1);
  EXPECT_NE(lost.message().find("times of seeds 'seeds'"), absl::string_view::npos) << lost;
}

TEST(LimitedSampling, RefusesTimesThatDoNotFit) {
  FixtureOptions fixture;
  fixture.edgeTimes = true;
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 1, directory / "store");
  SamplingCluster cluster(directory / "store", 1, rpc::TransportKind::kInProcess);
  const auto sample = [&](bool disjoint, bool temporal, sampler::BatchRequest request) {
    auto options = optionsOf({{3}}, {{}});
    options.disjoint = disjoint;
    options.temporal = temporal;
    Executor executor("test", 1);
    sampler::BatchSampler sampler(cluster.machine(0).graph, nullptr, &executor, options);
    sampler::BatchWorkspace workspace(*cluster.machine(0).graph);
    using Result = absl::StatusOr<std::unique_ptr<sampler::SampledBatch>>;
    absl::Status status = absl::UnknownError("not finished");
    startTask<Result>(sampler.sample(std::move(request), &workspace), [&](Result result) { status = result.status(); });
    return status.code();
  };
  sampler::BatchRequest request;
  request.seeds = {1, 2, 3};
  constexpr auto kRefused = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(sample(true, true, request), kRefused);  // times lost
  EXPECT_EQ(sample(true, false, request), absl::StatusCode::kOk);
  request.treeTimes = {4, 5};
  EXPECT_EQ(sample(true, true, request), kRefused);
  request.treeTimes = {4, 5, 6};
  EXPECT_EQ(sample(true, true, request), absl::StatusCode::kOk);
  EXPECT_EQ(sample(true, false, request), kRefused);
  EXPECT_EQ(sample(false, true, request), kRefused);
  request.trees = {0, 1};
  EXPECT_EQ(sample(true, true, request), kRefused);
  request.trees = {0, 3, 0};
  EXPECT_EQ(sample(true, true, request), kRefused);
  request.trees = {0, 2, 0};
  EXPECT_EQ(sample(true, true, request), absl::StatusCode::kOk);
  request.trees = {1u << 24, 0, 0};
  request.treeTimes.resize((1u << 24) + 1);
  EXPECT_EQ(sample(true, true, request), kRefused);
}

}  // namespace
}  // namespace farhop::testing
