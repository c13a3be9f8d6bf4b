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
    edges_ = hub->second;
    writeFixtureStore(fixture_, 2, directory_ / "store");
    cluster_ = std::make_unique<SamplingCluster>(directory_ / "store", 2, rpc::TransportKind::kInProcess);
  }
  const std::vector<uint64_t>& edges() const { return edges_; }

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
  std::vector<uint64_t> edges_;
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
