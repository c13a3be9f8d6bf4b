// The distribution of each kind of draw, through the whole sampler: as the owner draws for itself, and as it draws
// for another machine. Fixed seeds; chi-square at 99.9 %.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "partition/dataset.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

// The 99.9 % quantile of chi-square with k degrees of freedom (Wilson, Hilferty).
double chiSquareLimit(double k) { return k * std::pow(1 - 2 / (9 * k) + 3.09 * std::sqrt(2 / (9 * k)), 3); }

// The node with most in-edges, as its owner and another machine draw from it over many batches.
class HubDraws {
 public:
  HubDraws() {
    const auto dataset = makeFixtureDataset(fixture_);
    std::map<uint64_t, std::vector<uint64_t>> inEdges;
    for (uint64_t e = 0; e < dataset.schema.relations[0].count; ++e) inEdges[dataset.edges[0].destination[e]].push_back(e);
    const auto hub = std::max_element(inEdges.begin(), inEdges.end(),
                                      [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
    hub_ = hub->first;
    for (uint64_t e = 0; e < dataset.schema.relations[0].count; ++e) sources_.push_back(dataset.edges[0].source[e]);
    edges_ = hub->second;
    writeFixtureStore(fixture_, 2, directory_ / "store");
    cluster_ = std::make_unique<SamplingCluster>(directory_ / "store", 2, rpc::TransportKind::kInProcess);
  }
  const std::vector<uint64_t>& edges() const { return edges_; }
  uint64_t sourceOf(uint64_t edge) const { return sources_[edge]; }

  // How often each pair of edges is drawn: by the two trees of a batch whose seeds are both the hub, or by its two hops,
  // each of which draws for the hub.
  std::map<std::pair<uint64_t, uint64_t>, int> countPairs(int machine, int pairs, bool trees) {
    sampler::SamplingOptions options;
    options.fanouts.assign(trees ? 1 : 2, {1});
    options.seed = 7;
    options.edgeIds = true;
    options.disjoint = trees;
    options.expand = trees ? sampler::Expand::kNew : sampler::Expand::kAll;
    const uint64_t batchSize = trees ? 2 : 1;
    const std::vector<uint64_t> seeds(static_cast<size_t>(pairs) * batchSize, hub_);
    std::map<std::pair<uint64_t, uint64_t>, int> counts;
    for (const auto& batch : cluster_->sampleEpoch(machine, 0, seeds, batchSize, 0, options, {1, 4})) {
      // The hub is row 0 of either hop, and the seeds are rows 0 and 1.
      const auto& other = trees ? batch.relations[0].edgeIds[1] : batch.relations[1].edgeIds[0];
      ++counts[{batch.relations[0].edgeIds[0], other}];
    }
    return counts;
  }

  // How often each edge is drawn in `batches` batches, or drawn first; one of machines 0 and 1 owns the hub.
  std::map<uint64_t, int> count(int machine, int batches, int64_t fanout, sampler::RelationKind kind,
                                bool firstOnly = false) {
    sampler::SamplingOptions options;
    options.fanouts = {{fanout}};
    options.seed = 7;
    options.edgeIds = true;
    options.kinds = {kind};
    std::map<uint64_t, int> counts;
    for (const auto& batch : cluster_->sampleEpoch(
             machine, 0, std::vector<uint64_t>(static_cast<size_t>(batches), hub_), 1, 0, options, {1, 4})) {
      const auto& drawn = batch.relations[0].edgeIds;
      for (size_t i = 0; i < (firstOnly ? 1 : drawn.size()); ++i) ++counts[drawn[i]];
    }
    return counts;
  }

 private:
  FixtureOptions fixture_;
  TemporaryDirectory directory_;
  std::unique_ptr<SamplingCluster> cluster_;
  uint64_t hub_ = 0;
  std::vector<uint64_t> edges_, sources_;
};

// Every in-edge of a node is drawn equally often, also by a remote owner. Draws without replacement vary less than
// independent ones, never more.
TEST(SampledEdges, AreUniformOverInEdges) {
  HubDraws hub;
  constexpr int kBatches = 3000;
  for (auto kind : {sampler::DrawKind::kUniform, sampler::DrawKind::kUniformWithReplacement}) {
    for (int machine : {0, 1}) {
      const auto counts = hub.count(machine, kBatches, 3, {kind});
      const double expected = 3.0 * kBatches / static_cast<double>(hub.edges().size());
      double chi = 0;
      for (const auto& [edge, count] : counts) chi += std::pow(count - expected, 2) / expected;
      ASSERT_EQ(counts.size(), hub.edges().size());
      EXPECT_LT(chi, chiSquareLimit(static_cast<double>(hub.edges().size()) - 1)) << "machine " << machine;
    }
  }
}

// One edge each of the hub in tree after tree, or in hop after hop: every pair of edges is as likely as any other, so
// trees, and hops that draw again, are uniform and know nothing of each other.
TEST(SampledEdges, AreIndependent_OverTreesAndOverHopsThatDrawAgain) {
  HubDraws hub;
  const double cells = static_cast<double>(hub.edges().size() * hub.edges().size());
  constexpr double kExpected = 5;
  const int pairs = static_cast<int>(cells * kExpected);
  for (const bool trees : {true, false}) {
    for (int machine : {0, 1}) {
      const auto counts = hub.countPairs(machine, pairs, trees);
      double chi = 0;
      for (const auto& [pair, count] : counts) chi += std::pow(count - kExpected, 2) / kExpected;
      chi += (cells - static_cast<double>(counts.size())) * kExpected;
      EXPECT_LT(chi, chiSquareLimit(cells - 1)) << (trees ? "trees" : "hops") << ", machine " << machine;
    }
  }
}

// Each relation of a node type draws for itself.
TEST(SampledEdges, AreUniform_InEveryRelation) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  const auto dataset = makeFixtureDataset(fixture);
  TemporaryDirectory directory;
  writeFixtureStore(fixture, 2, directory / "store");
  SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  // Relations 1 and 2 lead into items; the item with most edges of the rarer one.
  std::vector<std::map<uint64_t, uint64_t>> degrees(3);
  for (size_t r : {1u, 2u}) {
    for (uint64_t e = 0; e < dataset.edges[r].source.size(); ++e) ++degrees[r][dataset.edges[r].destination[e]];
  }
  const auto hub = std::max_element(degrees[2].begin(), degrees[2].end(), [](auto& a, auto& b) { return a.second < b.second; });
  constexpr size_t kBatches = 3000;
  sampler::SamplingOptions options;
  options.fanouts = {{0, 3, 2}};
  options.kinds.resize(3);
  options.seed = 7;
  options.edgeIds = true;
  for (int machine : {0, 1}) {
    std::vector<std::map<uint64_t, int>> counts(3);
    for (const auto& batch : cluster.sampleEpoch(machine, 1, std::vector<uint64_t>(kBatches, hub->first), 1, 0, options, {1, 4})) {
      for (size_t r : {1u, 2u}) {
        for (uint64_t edge : batch.relations[r].edgeIds) ++counts[r][edge];
      }
    }
    for (size_t r : {1u, 2u}) {
      const double degree = static_cast<double>(degrees[r].at(hub->first));
      const double expected = std::min(static_cast<double>(options.fanouts[0][r]), degree) * kBatches / degree;
      double chi = 0;
      for (const auto& [edge, count] : counts[r]) chi += std::pow(count - expected, 2) / expected;
      EXPECT_EQ(static_cast<double>(counts[r].size()), degree);
      EXPECT_LT(chi, chiSquareLimit(std::max(degree - 1, 1.0))) << "relation " << r << ", machine " << machine;
    }
  }
}

// LABOR draws every edge with probability f / d: whichever the form, also by a remote owner. Parallel edges come together
// or, where not all of them fit, the first ones of them, so distinct sources are what is counted.
TEST(SampledEdges, HaveTheSameChance_WithLabor) {
  HubDraws hub;
  constexpr int kBatches = 3000;
  std::map<uint64_t, std::vector<uint64_t>> bySource;
  for (uint64_t edge : hub.edges()) bySource[hub.sourceOf(edge)].push_back(edge);
  std::vector<uint64_t> single;
  for (const auto& [source, edges] : bySource) {
    if (edges.size() == 1) single.push_back(edges[0]);
  }
  ASSERT_GT(single.size(), 10u);
  constexpr double kFanout = 3;
  const double chance = kFanout / static_cast<double>(hub.edges().size());
  for (auto kind : {sampler::DrawKind::kLabor, sampler::DrawKind::kLaborPoisson}) {
    std::map<uint64_t, int> byFirst;
    for (int machine : {0, 1}) {
      const auto counts = hub.count(machine, kBatches, static_cast<int64_t>(kFanout), {kind});
      if (machine == 0) byFirst = counts;
      EXPECT_EQ(counts, byFirst);  // the same draws by whoever owns the hub
      double total = 0, chi = 0;
      for (const auto& [edge, count] : counts) total += count;
      if (kind == sampler::DrawKind::kLabor) {
        EXPECT_EQ(total, kFanout * kBatches);
        // Sequential draws differ from f / d by a little where sources have several edges.
        for (uint64_t edge : single) EXPECT_NEAR(counts.at(edge), chance * kBatches, 6 * std::sqrt(chance * kBatches));
        continue;
      }
      for (uint64_t edge : single) {
        chi += std::pow(counts.at(edge) - chance * kBatches, 2) / (kBatches * chance * (1 - chance));
      }
      EXPECT_LT(chi, chiSquareLimit(static_cast<double>(single.size())));
      for (const auto& [source, edges] : bySource) {
        for (uint64_t edge : edges) EXPECT_EQ(counts.at(edge), counts.at(edges[0]));
      }
      EXPECT_NEAR(total, kFanout * kBatches, 6 * std::sqrt(3 * kFanout * kBatches));
    }
  }
}

// In proportion to the weights, which are the edge ids: draws with replacement, and the first of those without, both
// where alias tables are tried first (fanout 2) and where keys alone decide (fanout 15 of at most 60 edges).
TEST(SampledEdges, FollowTheirWeights) {
  HubDraws hub;
  ASSERT_GT(hub.edges().size(), 15u);
  ASSERT_LE(hub.edges().size(), 60u);
  double sum = 0;
  for (uint64_t edge : hub.edges()) sum += static_cast<double>(fixtureEdgeFeature(0, edge));
  struct Case {
    sampler::DrawKind kind;
    int64_t fanout;
    bool firstOnly;
  };
  for (const Case& one : {Case{sampler::DrawKind::kWeightedWithReplacement, 3, false},
                          Case{sampler::DrawKind::kWeighted, 2, true}, Case{sampler::DrawKind::kWeighted, 15, true}}) {
    for (int machine : {0, 1}) {
      const auto counts = hub.count(machine, 3000, one.fanout, {one.kind}, one.firstOnly);
      double total = 0, chi = 0;
      for (const auto& [edge, count] : counts) total += count;
      ASSERT_EQ(total, 3000.0 * (one.firstOnly ? 1.0 : static_cast<double>(one.fanout)));
      int cells = 0;
      double rareExpected = 0, rare = 0;  // edges expected less than 5 times share a cell
      for (uint64_t edge : hub.edges()) {
        const double expected = total * static_cast<double>(fixtureEdgeFeature(0, edge)) / sum;
        const auto found = counts.find(edge);
        const double count = found == counts.end() ? 0 : found->second;
        if (expected < 5) {
          rareExpected += expected;
          rare += count;
          continue;
        }
        chi += std::pow(count - expected, 2) / expected;
        ++cells;
      }
      if (rareExpected > 0) {
        chi += std::pow(rare - rareExpected, 2) / rareExpected;
        ++cells;
      }
      EXPECT_LT(chi, chiSquareLimit(cells - 1)) << "machine " << machine << ", fanout " << one.fanout;
    }
  }
}

}  // namespace
}  // namespace farhop::testing
