#include "sampler/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/random.h"
#include "sampler/row_holes.h"
#include "sampler/row_ranges.h"

namespace farhop::sampler {
namespace {

std::vector<uint64_t> draw(uint64_t key, uint64_t degree, int64_t fanout) {
  std::vector<uint64_t> positions;
  PositionSet scratch;
  drawPositions(key, degree, fanout, &positions, &scratch);
  return positions;
}

TEST(DrawPositions, TakesMinOfFanoutAndDegree_AllDistinctAndInRange) {
  for (uint64_t degree : {0, 1, 2, 5, 48, 49, 50, 1000}) {
    for (int64_t fanout : {-1, 0, 1, 2, 5, 47, 48, 49, 64, 999, 1000, 5000}) {
      for (uint64_t key = 0; key < 20; ++key) {
        const auto positions = draw(mix64(key), degree, fanout);
        const uint64_t expected = fanout < 0 ? degree : std::min<uint64_t>(degree, static_cast<uint64_t>(fanout));
        ASSERT_EQ(positions.size(), expected);
        ASSERT_EQ(std::set<uint64_t>(positions.begin(), positions.end()).size(), expected);
        for (uint64_t position : positions) ASSERT_LT(position, degree);
      }
    }
  }
}

TEST(DrawPositions, KeepsRowOrder_WhenItTakesAll) {
  EXPECT_EQ(draw(7, 5, 5), (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(draw(7, 5, -1), (std::vector<uint64_t>{0, 1, 2, 3, 4}));
}

// Chi-square over all subsets: every 3-subset of 6 positions is equally likely (20 of them; the 99.9 %
// quantile with 19 degrees of freedom is 43.8).
TEST(DrawPositions, MakesEverySubsetEquallyLikely) {
  const uint64_t hop = hopKey(1, 2, 3, 0, Purpose::kTest, 4);
  std::map<std::set<uint64_t>, int> counts;
  constexpr int kDraws = 40'000;
  for (uint64_t id = 0; id < kDraws; ++id) {
    const auto positions = draw(nodeKey(hop, id), 6, 3);
    ++counts[std::set<uint64_t>(positions.begin(), positions.end())];
  }
  ASSERT_EQ(counts.size(), 20u);
  double chi = 0;
  for (const auto& [subset, count] : counts) chi += std::pow(count - kDraws / 20.0, 2) / (kDraws / 20.0);
  EXPECT_LT(chi, 43.8);
}

// The table-backed variant (fanout above the linear scan's limit): each position is drawn with probability
// fanout / degree. 200 positions; the statistic is close to chi-square with 199 degrees times (1 - f/d):
// 99.9 % quantile 267 * 0.7.
TEST(DrawPositions, IsUniform_ForLargeFanouts) {
  constexpr int kDegree = 200, kFanout = 60, kDraws = 20'000;
  const uint64_t hop = hopKey(5, 0, 0, 0, Purpose::kTest, 4);
  std::vector<int> counts(kDegree);
  for (uint64_t id = 0; id < kDraws; ++id) {
    for (uint64_t position : draw(nodeKey(hop, id), kDegree, kFanout)) ++counts[position];
  }
  const double expected = static_cast<double>(kDraws) * kFanout / kDegree;
  double chi = 0;
  for (int count : counts) chi += std::pow(count - expected, 2) / expected;
  EXPECT_LT(chi, 267 * 0.7);
}

TEST(SampleUniform, DoesNotDependOnWhereARowLies) {
  // The same three neighbours under row 0 of one view and row 2 of another, with the same original id.
  const uint64_t firstIndptr[] = {0, 6};
  const uint64_t secondIndptr[] = {0, 1, 3, 9};
  const uint32_t first[] = {10, 11, 12, 13, 14, 15};
  const uint32_t second[] = {1, 2, 3, 10, 11, 12, 13, 14, 15};
  const uint64_t firstIds[] = {77}, secondIds[] = {5, 6, 77};
  const CsrView<uint32_t> a{firstIndptr, first, nullptr, firstIds, 1};
  const CsrView<uint32_t> b{secondIndptr, second, nullptr, secondIds, 3};
  PositionSet scratch;
  for (uint64_t hop = 0; hop < 50; ++hop) {
    DrawnNeighbors<uint32_t> fromA, fromB;
    const uint32_t rowA[] = {0}, rowB[] = {2};
    sampleUniform<uint32_t>(a, rowA, mix64(hop), 2, false, &fromA, &scratch);
    sampleUniform<uint32_t>(b, rowB, mix64(hop), 2, false, &fromB, &scratch);
    EXPECT_EQ(fromA.neighbors, fromB.neighbors);
  }
}

TEST(SampleUniform, CarriesTheEdgeIdOfEachNeighbor) {
  const uint64_t indptr[] = {0, 3, 5};
  const uint64_t neighbors[] = {100, 101, 102, 103, 104};
  const uint64_t edgeIds[] = {900, 901, 902, 903, 904};
  const uint64_t ids[] = {1, 2};
  const CsrView<uint64_t> view{indptr, neighbors, edgeIds, ids, 2};
  PositionSet scratch;
  DrawnNeighbors<uint64_t> drawn;
  const uint32_t rows[] = {1, 0};
  sampleUniform<uint64_t>(view, rows, 3, 2, true, &drawn, &scratch);
  EXPECT_EQ(drawn.counts, (std::vector<uint32_t>{2, 2}));
  ASSERT_EQ(drawn.edgeIds.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(drawn.edgeIds[i], drawn.neighbors[i] + 800);
  EXPECT_EQ(drawn.neighbors[0], 103u);
}

// Rows of every degree up to 99, neighbours and edge ids by position.
struct SteppedRows {
  SteppedRows() {
    indptr.push_back(0);
    for (uint64_t row = 0; row < 100; ++row) {
      rows.push_back(static_cast<uint32_t>(row));
      originalIds.push_back(1'000 + row);
      indptr.push_back(indptr.back() + row);
    }
    for (uint64_t i = 0; i < indptr.back(); ++i) {
      neighbors.push_back(static_cast<uint32_t>(i));
      edgeIds.push_back(i + 7);
    }
  }
  CsrView<uint32_t> view() const {
    return {indptr.data(), neighbors.data(), edgeIds.data(), originalIds.data(), rows.size()};
  }
  std::vector<uint64_t> indptr, edgeIds, originalIds;
  std::vector<uint32_t> neighbors, rows;
};

TEST(SampleUniformWithReplacement, DrawsTheFanoutFromEachRowThatHasEdges) {
  const SteppedRows graph;
  PositionSet scratch;
  for (int64_t fanout : {-1, 0, 1, 5, 64, 3'000}) {
    DrawnNeighbors<uint32_t> drawn;
    sampleUniformWithReplacement(graph.view(), graph.rows, 5, fanout, true, &drawn, &scratch);
    ASSERT_EQ(drawn.counts.size(), graph.rows.size());
    size_t at = 0;
    for (uint32_t row : graph.rows) {
      ASSERT_EQ(drawn.counts[row], row == 0 ? 0 : fanout < 0 ? row : static_cast<uint64_t>(fanout));
      for (uint32_t i = 0; i < drawn.counts[row]; ++i, ++at) {
        ASSERT_GE(drawn.neighbors[at], graph.indptr[row]);
        ASSERT_LT(drawn.neighbors[at], graph.indptr[row + 1]);
        ASSERT_EQ(drawn.edgeIds[at], drawn.neighbors[at] + 7);
      }
    }
    ASSERT_EQ(at, drawn.neighbors.size());
  }
}

// Every ordered pair of 5 positions is equally likely, repeats included: 25 cells, 99.9 % quantile with 24 degrees
// of freedom 51.2.
TEST(SampleUniformWithReplacement, MakesEveryPairEquallyLikely) {
  const uint64_t indptr[] = {0, 5};
  const uint32_t neighbors[] = {0, 1, 2, 3, 4};
  const uint64_t ids[] = {3};
  const uint32_t row[] = {0};
  PositionSet scratch;
  std::vector<int> counts(25);
  constexpr int kDraws = 25'000;
  for (uint64_t batch = 0; batch < kDraws; ++batch) {
    DrawnNeighbors<uint32_t> drawn;
    sampleUniformWithReplacement<uint32_t>({indptr, neighbors, nullptr, ids, 1}, row,
                                           hopKey(1, 0, batch, 0, Purpose::kTest, 4), 2, false, &drawn, &scratch);
    ++counts[drawn.neighbors[0] * 5 + drawn.neighbors[1]];
  }
  double chi = 0;
  for (int count : counts) chi += std::pow(count - kDraws / 25.0, 2) / (kDraws / 25.0);
  EXPECT_LT(chi, 51.2);
}

// Against a plain search: rows around the width of the compares, few sources and many, repeats in both.
template <typename Id>
void expectAllHoles() {
  KeyedRandom random(31);
  PositionSet scratch;
  std::vector<uint64_t> holes;
  for (int round = 0; round < 2'000; ++round) {
    std::vector<Id> neighbors(random.below(70));
    for (Id& neighbor : neighbors) neighbor = static_cast<Id>(random.below(40) + (random.below(2) << 31));
    std::vector<uint64_t> sources(1 + random.below(round % 2 == 0 ? 8 : 30));
    for (uint64_t& source : sources) source = random.below(40) + (random.below(2) << 31);
    const uint64_t from = random.below(neighbors.size() + 1), to = from + random.below(neighbors.size() - from + 1);
    std::vector<uint64_t> expected;
    for (uint64_t e = from; e < to; ++e) {
      if (std::find(sources.begin(), sources.end(), neighbors[e]) != sources.end()) expected.push_back(e);
    }
    CsrView<Id> view;
    view.neighbors = neighbors.data();
    findHoles(view, from, to, sources, &holes, &scratch);
    ASSERT_EQ(holes, expected);
  }
}

TEST(FindHoles, FindsEveryEdgeFromTheSources) {
  expectAllHoles<uint32_t>();
  expectAllHoles<uint64_t>();
}

// A source that no 32-bit id is must not be taken for its lower half.
TEST(FindHoles, FindsNothing_WhenASourceIsTooWideForTheRow) {
  const uint32_t neighbors[] = {1, 2, 3};
  CsrView<uint32_t> view;
  view.neighbors = neighbors;
  PositionSet scratch;
  std::vector<uint64_t> holes;
  const std::vector<uint64_t> sources = {(uint64_t{1} << 32) + 2};
  findHoles(view, 0, 3, sources, &holes, &scratch);
  EXPECT_TRUE(holes.empty());
}

// The same bits as from a row that never had the edges, for every kind of uniform draw.
TEST(SampleUniform, OfARowWithHoles_IsTheDrawOfTheRowWithoutThem) {
  KeyedRandom random(5);
  PositionSet scratch;
  for (int round = 0; round < 300; ++round) {
    const uint64_t before = random.below(5), degree = random.below(120);
    std::vector<uint32_t> all(before + degree), left;
    std::vector<uint64_t> allIds(all.size()), leftIds, holes;
    for (uint64_t e = 0; e < all.size(); ++e) {
      all[e] = static_cast<uint32_t>(e * 3), allIds[e] = e + 500;
      if (e < before) continue;
      if (random.below(4) == 0) {
        holes.push_back(e);
      } else {
        left.push_back(all[e]);
        leftIds.push_back(allIds[e]);
      }
    }
    const uint64_t originalIds[] = {77};
    const uint64_t indptr[] = {0, left.size()};
    const uint32_t rows[] = {0};
    const CsrView<uint32_t> whole{nullptr, all.data(), allIds.data(), nullptr, 1};
    const CsrView<uint32_t> reduced{indptr, left.data(), leftIds.data(), originalIds, 1};
    const uint64_t hop = hopKey(1, 2, static_cast<uint64_t>(round), 0, Purpose::kTest, 4);
    for (int64_t fanout : {-1, 0, 1, 7, 15, 32, 49, 100, 500}) {
      for (bool replace : {false, true}) {
        DrawnNeighbors<uint32_t> expected, drawn;
        const HoledRow row{0, nodeKey(hop, 77), before, left.size(), holes};
        if (replace) {
          sampleUniformWithReplacement(reduced, rows, hop, fanout, true, &expected, &scratch);
          sampleUniformWithReplacement(whole, row, fanout, true, &drawn, &scratch);
        } else {
          sampleUniform(reduced, rows, hop, fanout, true, &expected, &scratch);
          sampleUniform(whole, row, fanout, true, &drawn, &scratch);
        }
        ASSERT_EQ(drawn.counts, expected.counts) << "fanout " << fanout;
        ASSERT_EQ(drawn.neighbors, expected.neighbors);
        ASSERT_EQ(drawn.edgeIds, expected.edgeIds);
      }
    }
  }
}

// Rows of random length with times, ties and the extremes among them, and neighbours that rows share.
class TimedRows {
 public:
  TimedRows() {
    KeyedRandom random(99);
    for (uint64_t row = 0; row < 300; ++row) {
      const uint64_t degree = row % 7 == 0 ? 0 : random.below(row % 11 == 0 ? 700 : 12);
      std::vector<int64_t> own(degree);
      for (int64_t& time : own) time = static_cast<int64_t>(random.below(40)) - 20;
      if (degree > 5) own[0] = std::numeric_limits<int64_t>::min(), own[1] = std::numeric_limits<int64_t>::max();
      std::sort(own.begin(), own.end());
      times_.insert(times_.end(), own.begin(), own.end());
      for (uint64_t i = 0; i < degree; ++i) neighbors_.push_back(static_cast<uint32_t>(random.below(50)));
      indptr_.push_back(times_.size());
      originalIds_.push_back(1000 + row);
      rows_.push_back(static_cast<uint32_t>((row * 37) % 300));
    }
    for (uint64_t e = 0; e < times_.size(); ++e) edgeIds_.push_back(5 * e);
    for (uint32_t gid = 0; gid < 50; ++gid) sourceIds_.push_back(49 - gid);
  }
  CsrView<uint32_t> view() const {
    return {indptr_.data(), neighbors_.data(), edgeIds_.data(), originalIds_.data(), originalIds_.size()};
  }

  std::vector<uint32_t> rows_, neighbors_, sourceIds_;
  std::vector<uint64_t> indptr_ = {0}, edgeIds_, originalIds_;
  std::vector<int64_t> times_;
};

TEST(LimitRows, FindsTheEdgesNotLaterThanEachRowsTime) {
  const TimedRows graph;
  for (int64_t time : {std::numeric_limits<int64_t>::min(), int64_t{-21}, int64_t{-20}, int64_t{0}, int64_t{7},
                       std::numeric_limits<int64_t>::max()}) {
    std::vector<int64_t> times;
    std::vector<uint32_t> occurrences;
    for (size_t i = 0; i < graph.rows_.size(); ++i) {
      times.push_back(i % 3 == 0 ? time + (time < 0 ? 1 : -1) : time);
      occurrences.push_back(static_cast<uint32_t>(i % 5));
    }
    std::vector<RowRange> ranges(graph.rows_.size());
    limitRows(graph.view(), graph.rows_, 77, {occurrences, times, graph.times_.data()}, ranges.data());
    for (size_t i = 0; i < ranges.size(); ++i) {
      const uint32_t row = graph.rows_[i];
      const auto first = graph.times_.begin() + static_cast<ptrdiff_t>(graph.indptr_[row]);
      const auto last = graph.times_.begin() + static_cast<ptrdiff_t>(graph.indptr_[row + 1]);
      ASSERT_EQ(ranges[i].from, graph.indptr_[row]);
      ASSERT_EQ(ranges[i].end, graph.indptr_[row + 1]);
      ASSERT_EQ(ranges[i].to, static_cast<uint64_t>(std::upper_bound(first, last, times[i]) - graph.times_.begin()));
      ASSERT_EQ(ranges[i].key, nodeKey(77, 1000 + row, occurrences[i]));
    }
  }
}

TEST(SampleLast, TakesTheEndOfEachRange_InOrder) {
  const TimedRows graph;
  std::vector<RowRange> ranges(graph.rows_.size());
  limitRows(graph.view(), graph.rows_, 1, {}, ranges.data());
  for (RowRange& range : ranges) range.to -= (range.to - range.from) / 3;
  for (int64_t fanout : {-1, 0, 1, 4, 300}) {
    DrawnNeighbors<uint32_t> drawn;
    sampleLast(graph.view(), ranges, fanout, true, &drawn);
    size_t at = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const uint64_t visible = ranges[i].to - ranges[i].from;
      const uint64_t count = fanout < 0 ? visible : std::min<uint64_t>(visible, static_cast<uint64_t>(fanout));
      ASSERT_EQ(drawn.counts[i], count);
      for (uint64_t e = ranges[i].to - count; e < ranges[i].to; ++e, ++at) ASSERT_EQ(drawn.edgeIds[at], 5 * e);
    }
    ASSERT_EQ(drawn.neighbors.size(), at);
  }
}

// Every edge with probability min(1, fanout / degree), in both forms; the sequential one fills each row.
TEST(SampleLabor, TakesEveryEdgeEquallyOften) {
  const TimedRows graph;
  std::vector<RowRange> ranges(graph.rows_.size());
  limitRows(graph.view(), graph.rows_, 1, {}, ranges.data());
  std::erase_if(ranges, [](const RowRange& range) { return range.to - range.from > 60; });
  constexpr int kDraws = 600;
  for (bool poisson : {false, true}) {
    // Parallel edges of a row share their source's number, so what is equally likely is counted by source.
    std::map<std::pair<size_t, uint32_t>, int> counts;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      DrawnNeighbors<uint32_t> drawn;
      PositionSet scratch;
      sampleLabor(graph.view(), {mix64(draw), graph.sourceIds_.data(), 50, poisson}, ranges, 3, true, &drawn, &scratch);
      size_t at = 0;
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (!poisson) {
          ASSERT_EQ(drawn.counts[i], std::min<uint64_t>(3, ranges[i].to - ranges[i].from));
        }
        for (uint32_t j = 0; j < drawn.counts[i]; ++j, ++at) ++counts[{i, drawn.neighbors[at]}];
      }
    }
    for (size_t i = 0; i < ranges.size(); ++i) {
      const uint64_t degree = ranges[i].to - ranges[i].from;
      const std::set<uint32_t> distinct(graph.neighbors_.begin() + static_cast<ptrdiff_t>(ranges[i].from),
                                        graph.neighbors_.begin() + static_cast<ptrdiff_t>(ranges[i].to));
      if (distinct.size() != degree) continue;
      const double p = std::min(1.0, 3.0 / static_cast<double>(degree));
      for (uint32_t neighbor : distinct) {
        // Five standard deviations: some 700 edges are looked at.
        ASSERT_NEAR((counts[{i, neighbor}]), kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1e-9);
      }
    }
  }
}

TEST(SampleLabor, TakesTheSameSources_WhereRowsAreAlike) {
  const std::vector<uint64_t> indptr = {0, 20, 40}, originalIds = {1, 2};
  std::vector<uint32_t> neighbors, sourceIds;
  std::vector<uint64_t> edgeIds;
  for (uint32_t i = 0; i < 40; ++i) neighbors.push_back(i % 20), edgeIds.push_back(i), sourceIds.push_back(i);
  const CsrView<uint32_t> view{indptr.data(), neighbors.data(), edgeIds.data(), originalIds.data(), 2};
  const std::vector<uint32_t> rows = {0, 1};
  std::vector<RowRange> ranges(2);
  limitRows(view, rows, 1, {}, ranges.data());
  for (bool poisson : {false, true}) {
    DrawnNeighbors<uint32_t> drawn;
    PositionSet scratch;
    sampleLabor(view, {5, sourceIds.data(), 20, poisson}, ranges, 6, false, &drawn, &scratch);
    ASSERT_EQ(drawn.counts[0], drawn.counts[1]);
    EXPECT_TRUE(std::equal(drawn.neighbors.begin(), drawn.neighbors.begin() + drawn.counts[0],
                           drawn.neighbors.begin() + drawn.counts[0]));
  }
}

}  // namespace
}  // namespace farhop::sampler
