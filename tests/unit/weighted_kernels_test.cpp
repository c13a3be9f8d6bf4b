#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"
#include "sampler/edge_weights.h"
#include "sampler/kernels.h"
#include "sampler/row_holes.h"
#include "sampler/row_ranges.h"

namespace farhop::sampler {
namespace {

// One relation in memory: the given weights row by row; neighbours and edge ids by position.
class WeightedRows {
 public:
  explicit WeightedRows(std::vector<std::vector<float>> rows) : rows_(rows.size()) {
    std::iota(rows_.begin(), rows_.end(), 0);
    for (const auto& row : rows) {
      originalIds_.push_back(50 + originalIds_.size());
      values_.insert(values_.end(), row.begin(), row.end());
      indptr_.push_back(values_.size());
    }
    neighbors_.resize(values_.size());
    edgeIds_.resize(values_.size());
    std::iota(neighbors_.begin(), neighbors_.end(), 0);
    std::iota(edgeIds_.begin(), edgeIds_.end(), 900);
    partition::RelationShard shard{indptr_, neighbors_, {}, edgeIds_};
    partition::FeatureTable table{{"w", DType::kFloat32, {}}, values_.size(),
                                  reinterpret_cast<const std::byte*>(values_.data())};
    auto made = EdgeWeights::make(shard, table, "w.npy");
    if (!made.ok()) throw std::runtime_error(std::string(made.status().message()));
    weights_ = *std::move(made);
  }

  // From the first `visible` edges of each row; 0: from all, as whole rows.
  DrawnNeighbors<uint32_t> draw(bool replace, int64_t fanout, uint64_t batch, uint64_t visible = 0) {
    const CsrView<uint32_t> view{indptr_.data(), neighbors_.data(), edgeIds_.data(), originalIds_.data(), rows_.size()};
    DrawnNeighbors<uint32_t> drawn;
    const uint64_t key = hopKey(3, 1, batch, 0, Purpose::kTest, 4);
    if (visible > 0) {
      std::vector<RowRange> ranges(rows_.size());
      limitRows(view, rows_, key, {}, ranges.data());
      for (RowRange& range : ranges) range.to = range.from + visible;
      if (replace) {
        sampleWeightedWithReplacement(view, weights_.view(), ranges, fanout, true, &drawn, &scratch_);
      } else {
        sampleWeighted(view, weights_.view(), ranges, fanout, true, &drawn, &scratch_);
      }
      return drawn;
    }
    if (replace) {
      sampleWeightedWithReplacement(view, weights_.view(), rows_, key, fanout, true, &drawn, &scratch_);
    } else {
      sampleWeighted(view, weights_.view(), rows_, key, fanout, true, &drawn, &scratch_);
    }
    for (size_t i = 0; i < drawn.neighbors.size(); ++i) EXPECT_EQ(drawn.edgeIds[i], drawn.neighbors[i] + 900);
    return drawn;
  }

  // Of row 0 alone, whose edges at `holes` may not be drawn.
  DrawnNeighbors<uint32_t> drawHoled(bool replace, int64_t fanout, uint64_t batch, const std::vector<uint64_t>& holes,
                                     uint64_t visible = 0) {
    const CsrView<uint32_t> view{indptr_.data(), neighbors_.data(), edgeIds_.data(), originalIds_.data(), rows_.size()};
    const uint64_t key = nodeKey(hopKey(3, 1, batch, 0, Purpose::kTest, 4), originalIds_[0]);
    if (visible == 0) visible = indptr_[1];
    const HoledRow row{0, key, 0, visible - holes.size(), holes, indptr_[1] - visible};
    DrawnNeighbors<uint32_t> drawn;
    if (replace) {
      sampleWeightedWithReplacement(view, weights_.view(), row, fanout, true, &drawn, &scratch_);
    } else {
      sampleWeighted(view, weights_.view(), row, fanout, true, &drawn, &scratch_);
    }
    return drawn;
  }

 private:
  std::vector<uint32_t> rows_, neighbors_;
  std::vector<uint64_t> indptr_ = {0}, edgeIds_, originalIds_;
  std::vector<float> values_;
  EdgeWeights weights_;
  PositionSet scratch_;
};

// Chi-square of ordered pairs against what drawing in proportion to the weights gives, over cells expected at least
// five times, at 99.9 % (Wilson, Hilferty). Nothing impossible may be drawn.
// Of a row of which `holes` are excluded, and that sees only its first `visible` edges, where that is given.
void expectPairs(std::vector<float> weights, bool replace, int64_t fanout, const std::vector<uint64_t>& holes = {},
                 size_t visible = 0) {
  WeightedRows graph({weights});
  if (visible > 0) weights.resize(visible);
  constexpr int kDraws = 40'000;
  std::map<std::pair<uint32_t, uint32_t>, int> counts;
  for (uint64_t batch = 0; batch < kDraws; ++batch) {
    const auto drawn = holes.empty() ? graph.draw(replace, fanout, batch, visible)
                                     : graph.drawHoled(replace, fanout, batch, holes, visible);
    ASSERT_EQ(drawn.counts[0], static_cast<uint32_t>(fanout));
    ++counts[{drawn.neighbors[0], drawn.neighbors[1]}];
  }
  for (uint64_t hole : holes) weights[hole] = 0;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double chi = 0, seen = 0;
  int cells = 0;
  for (uint32_t a = 0; a < weights.size(); ++a) {
    for (uint32_t b = 0; b < weights.size(); ++b) {
      const double wa = static_cast<double>(weights[a]), wb = static_cast<double>(weights[b]);
      const double probability = replace ? wa * wb / sum / sum : a == b ? 0 : wa / sum * wb / (sum - wa);
      const double expected = kDraws * probability;
      const int count = counts.count({a, b}) > 0 ? counts[{a, b}] : 0;
      if (probability == 0) {
        ASSERT_EQ(count, 0) << a << ", " << b;
      }
      if (expected < 5) continue;
      chi += std::pow(count - expected, 2) / expected;
      seen += count;
      ++cells;
    }
  }
  ASSERT_GT(seen, 0.98 * kDraws);
  const double k = cells - 1;
  EXPECT_LT(chi, k * std::pow(1 - 2 / (9 * k) + 3.09 * std::sqrt(2 / (9 * k)), 3));
}

const std::vector<float> kFewWeights = {1, 2, 0, 4, 0.5F, 2.5F};
const std::vector<float> kTwelveWeights = {1, 2, 0, 4, 0.5F, 2.5F, 3, 3, 0, 1, 1, 7};

TEST(SampleWeightedWithReplacement, DrawsPairsInProportionToTheirWeights) {
  expectPairs(kFewWeights, true, 2);
  expectPairs(kTwelveWeights, true, 2);
}

TEST(SampleWeighted, DrawsPairsInProportionToTheirWeights_ByKeysAlone) { expectPairs(kFewWeights, false, 2); }

TEST(SampleWeighted, DrawsPairsInProportionToTheirWeights_ByAliasTable) { expectPairs(kTwelveWeights, false, 2); }

// One edge has nearly all the weight, so that most tries of the table are repeats and keys take over.
TEST(SampleWeighted, DrawsPairsInProportionToTheirWeights_WhereKeysTakeOver) {
  std::vector<float> weights = kTwelveWeights;
  weights[3] = 400;
  expectPairs(weights, false, 2);
}

// By a pass over few visible edges; through the whole row's table; and where most of what the table gives is not visible.
TEST(SampleWeighted, DrawsPairsInProportionToTheirWeights_WhereOnlySomeEdgesAreVisible) {
  std::vector<float> hidden = kTwelveWeights;
  hidden.push_back(400);
  for (bool replace : {false, true}) {
    expectPairs(kTwelveWeights, replace, 2, {}, 5);
    expectPairs(kTwelveWeights, replace, 2, {}, 10);
    expectPairs(hidden, replace, 2, {}, 12);
    expectPairs(hidden, replace, 2, {3, 11}, 12);
    expectPairs(kTwelveWeights, replace, 2, {0}, 5);
  }
}

TEST(SampleWeighted, DrawsNothing_WhereNoVisibleEdgeWeighsAnything) {
  std::vector<float> weights(40, 0.0F);
  weights[39] = 3;
  WeightedRows graph({weights});
  for (uint64_t visible : {1, 3, 39}) {
    for (bool replace : {false, true}) {
      for (int64_t fanout : {-1, 2, 60}) EXPECT_EQ(graph.draw(replace, fanout, 1, visible).counts[0], 0u);
    }
  }
  EXPECT_EQ(graph.draw(true, 2, 1, 40).counts[0], 2u);
}

TEST(SampleWeighted, DrawsPairsInProportionToTheWeightsLeft_WithHoles) {
  std::vector<float> weights = kTwelveWeights;
  weights[5] = 10'000;  // most tries fall on it
  for (const std::vector<uint64_t>& holes : std::vector<std::vector<uint64_t>>{{3}, {0, 11}, {5}, {0, 4, 5, 6}}) {
    if (holes[0] != 5 && holes.size() < 4) weights[5] = 2.5F;
    expectPairs(weights, true, 2, holes);
    expectPairs(weights, false, 2, holes);
    weights[5] = 10'000;
  }
  expectPairs(kFewWeights, false, 2, {1});  // by keys alone
}

// Rows with d <= 4 f, and those that are taken whole, have the very bits of a row that never had the edges.
TEST(SampleWeighted, IsTheDrawOfTheRowWithoutTheEdges_WhereKeysDecide) {
  std::vector<float> all, left;
  std::vector<uint64_t> holes, edgesLeft;
  for (uint64_t e = 0; e < 40; ++e) {
    all.push_back(static_cast<float>(e % 9));
    if (e % 7 == 2) {
      holes.push_back(e);
    } else {
      left.push_back(all.back());
      edgesLeft.push_back(e + 900);
    }
  }
  const uint64_t indptr[] = {0, left.size()};
  const std::vector<uint32_t> neighbors(edgesLeft.begin(), edgesLeft.end());
  const uint64_t originalIds[] = {50};
  const uint32_t rows[] = {0};
  const CsrView<uint32_t> view{indptr, neighbors.data(), edgesLeft.data(), originalIds, 1};
  PositionSet scratch;
  WeightedRows graph({all});
  for (int64_t fanout : {-1, 0, 9, 20, 33, 34, 35, 100}) {
    for (uint64_t batch = 0; batch < 20; ++batch) {
      DrawnNeighbors<uint32_t> expected;
      sampleWeighted(view, {left.data(), nullptr}, rows, hopKey(3, 1, batch, 0, Purpose::kTest, 4), fanout, true, &expected,
                     &scratch);
      const auto drawn = graph.drawHoled(false, fanout, batch, holes);
      ASSERT_EQ(drawn.counts, expected.counts);
      ASSERT_EQ(drawn.edgeIds, expected.edgeIds) << "fanout " << fanout;
    }
  }
}

TEST(SampleWeighted, DrawsNothing_WhenAllWeightIsInHoles) {
  WeightedRows graph({{0, 5, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0}});
  for (bool replace : {false, true}) {
    for (int64_t fanout : {-1, 1, 2, 50}) {
      EXPECT_EQ(graph.drawHoled(replace, fanout, 1, {1, 4}).counts[0], 0U);
      EXPECT_EQ(graph.drawHoled(replace, fanout, 1, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).counts[0], 0U);
      const auto one = graph.drawHoled(replace, fanout, 1, {4});
      ASSERT_EQ(one.counts[0], replace && fanout > 0 ? static_cast<uint32_t>(fanout) : 1U);
      EXPECT_EQ(one.neighbors[0], 1U);
    }
  }
}

TEST(SampleWeighted, DrawsDistinctEdges_AndNeverOneWithoutWeight) {
  std::vector<std::vector<float>> rows;
  for (size_t degree : {0, 1, 3, 50, 61, 400, 5'000}) {
    rows.emplace_back();
    for (size_t i = 0; i < degree; ++i) rows.back().push_back(i % 3 == 1 ? 0 : static_cast<float>(1 + i % 7));
  }
  rows.push_back(std::vector<float>(70, 0.0F));  // no weight at all
  rows.push_back(std::vector<float>(900, 0.0F));
  rows.back()[450] = 1e-30F;
  WeightedRows graph(rows);
  for (int64_t fanout : {-1, 0, 1, 2, 12, 60, 2'000, 1'000'000'000}) {
    for (bool replace : {false, true}) {
      if (replace && fanout > 60) continue;
      const auto drawn = graph.draw(replace, fanout, 5);
      size_t at = 0, first = 0;
      for (size_t row = 0; row < rows.size(); ++row) {
        const size_t positive = rows[row].size() - static_cast<size_t>(std::count(rows[row].begin(), rows[row].end(), 0.0F));
        size_t expected = fanout < 0 ? positive : std::min<size_t>(positive, static_cast<size_t>(fanout));
        if (replace && fanout > 0 && positive > 0) expected = static_cast<size_t>(fanout);
        ASSERT_EQ(drawn.counts[row], expected) << "row " << row << ", fanout " << fanout;
        std::set<uint32_t> distinct;
        for (size_t i = 0; i < expected; ++i, ++at) {
          ASSERT_GE(drawn.neighbors[at], first);
          ASSERT_LT(drawn.neighbors[at], first + rows[row].size());
          ASSERT_GT(rows[row][drawn.neighbors[at] - first], 0);
          ASSERT_TRUE(distinct.insert(drawn.neighbors[at]).second || replace);
        }
        first += rows[row].size();
      }
      ASSERT_EQ(at, drawn.neighbors.size());
    }
  }
}

// A table's slots add up to the weights again, to 32 bits.
TEST(AliasSlots, HoldTheWeights) {
  std::vector<float> weights;
  KeyedRandom random(77);
  for (int i = 0; i < 3'000; ++i) weights.push_back(i % 5 == 0 ? 0 : static_cast<float>(std::exp(20 * random.uniform())));
  const uint64_t indptr[] = {0, weights.size()};
  const std::vector<uint32_t> neighbors(weights.size());
  const std::vector<uint64_t> edgeIds(weights.size());
  auto made = EdgeWeights::make({indptr, neighbors, {}, edgeIds},
                                {{"w", DType::kFloat32, {}}, weights.size(), reinterpret_cast<const std::byte*>(weights.data())},
                                "w.npy");
  ASSERT_TRUE(made.ok());
  std::vector<double> got(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const AliasSlot& slot = made->view().slots[i];
    got[i] += slot.threshold * 0x1.0p-32;
    if (slot.threshold < 0xFFFFFFFF) got[slot.alias] += 1 - slot.threshold * 0x1.0p-32;
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = static_cast<double>(weights[i]) / sum * static_cast<double>(weights.size());
    ASSERT_NEAR(got[i], share, 1e-9 * (1 + 100 * share)) << i;
    if (weights[i] == 0) {
      ASSERT_EQ(got[i], 0);
    }
  }
}

}  // namespace
}  // namespace farhop::sampler
