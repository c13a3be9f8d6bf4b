#include "benchmarks/rmat_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "tests/temporary_directory.h"

namespace farhop::benchmarks {
namespace {

RmatOptions smallGraph() {
  RmatOptions options;
  options.nodesLog2 = 8;
  options.edges = 3000;
  return options;
}

auto openQuietly(const RmatOptions& options) {
  return openRmatGraph(options, [](const std::string&) {});
}

// Original ids of all edges as a store has them, in a canonical order.
std::vector<std::pair<uint64_t, uint64_t>> edgesOf(const partition::GraphStore& store) {
  std::vector<uint64_t> originalIds(store.book().numNodes(0));
  const auto gids = store.gidsByOriginalId(0);
  for (uint64_t id = 0; id < gids->size(); ++id) originalIds[(*gids)[id]] = id;
  std::vector<std::pair<uint64_t, uint64_t>> edges;
  for (int k = 0; k < store.numPartitions(); ++k) {
    const partition::GraphShard shard = *store.openPartition(k);
    const partition::RelationShard& relation = shard.relation(0);
    for (uint64_t row = 0; row < relation.rows(); ++row) {
      for (uint64_t e = relation.indptr[row]; e < relation.indptr[row + 1]; ++e) {
        edges.emplace_back(originalIds[relation.neighbors32[e]], shard.originalIds(0)[row]);
      }
    }
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

TEST(RmatEdges, FallIntoTheQuadrants_AsOftenAsThePaperSays) {
  // With two nodes an edge is one choice among the four quadrants, up to the permutation of the two ids.
  RmatOptions options;
  options.nodesLog2 = 1;
  options.seed = 3;
  const RmatEdges rmat(options);
  constexpr int kEdges = 100'000;
  std::map<std::pair<uint32_t, uint32_t>, int> counts;
  for (int e = 0; e < kEdges; ++e) {
    const Edge edge = rmat(static_cast<uint64_t>(e));
    ++counts[{edge.source, edge.destination}];
  }
  const uint32_t low = counts[{0, 0}] > counts[{1, 1}] ? 0 : 1;
  const double expected[2][2] = {{0.57, 0.19}, {0.19, 0.05}};
  double chiSquare = 0;
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t d = 0; d < 2; ++d) {
      const double wanted = expected[s][d] * kEdges, difference = counts[{s ^ low, d ^ low}] - wanted;
      chiSquare += difference * difference / wanted;
    }
  }
  EXPECT_LT(chiSquare, 16.3);  // 3 degrees of freedom: exceeded once in a thousand seeds
}

TEST(RmatEdges, LevelsAreIndependent_AlsoThoseThatShareADraw) {
  // Four nodes: source bits of both levels, before the permutation, by how often each edge occurs.
  RmatOptions options;
  options.nodesLog2 = 2;
  const RmatEdges rmat(options);
  constexpr int kEdges = 200'000;
  std::map<uint32_t, int> sources;
  for (int e = 0; e < kEdges; ++e) ++sources[rmat(static_cast<uint64_t>(e)).source];
  std::vector<double> shares;
  for (const auto& [source, count] : sources) shares.push_back(static_cast<double>(count) / kEdges);
  std::sort(shares.begin(), shares.end());
  // A source bit is 0 with probability 0.76 at each level.
  const std::vector<double> expected = {0.24 * 0.24, 0.24 * 0.76, 0.76 * 0.24, 0.76 * 0.76};
  ASSERT_EQ(shares.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(shares[i], expected[i], 0.005);
}

TEST(RmatGraph, HoldsExactlyTheGeneratedEdges_ParallelOnesToo) {
  const testing::TemporaryDirectory directory;
  RmatOptions options = smallGraph();
  options.cacheDirectory = directory.path();
  const auto store = openQuietly(options);
  ASSERT_TRUE(store.ok()) << store.status();
  const RmatEdges rmat(options);
  std::vector<std::pair<uint64_t, uint64_t>> expected;
  for (uint64_t e = 0; e < options.edges; ++e) expected.emplace_back(rmat(e).source, rmat(e).destination);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(edgesOf(**store), expected);
  EXPECT_LT(std::set(expected.begin(), expected.end()).size(), expected.size());
}

TEST(RmatGraph, IsTheSameOnAnyNumberOfPartitions) {
  const testing::TemporaryDirectory directory;
  RmatOptions options = smallGraph();
  options.cacheDirectory = directory.path();
  const auto one = openQuietly(options);
  options.parts = 3;
  const auto three = openQuietly(options);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ((*three)->numPartitions(), 3);
  EXPECT_EQ(edgesOf(**one), edgesOf(**three));
}

TEST(RmatGraph, IsReused_WhenTheCacheHasIt) {
  const testing::TemporaryDirectory directory;
  RmatOptions options = smallGraph();
  options.cacheDirectory = directory.path();
  int lines = 0;
  auto open = [&] { return openRmatGraph(options, [&](const std::string&) { ++lines; }); };
  ASSERT_TRUE(open().ok());
  EXPECT_GT(lines, 0);
  lines = 0;
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(lines, 0);
  options.seed = 2;
  ASSERT_TRUE(open().ok());
  EXPECT_GT(lines, 0);
}

TEST(RmatGraph, LeavesNothingBesideTheStores) {
  const testing::TemporaryDirectory directory;
  RmatOptions options = smallGraph();
  options.cacheDirectory = directory.path();
  ASSERT_TRUE(openQuietly(options).ok());
  const auto entries = std::filesystem::directory_iterator(directory.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST(RmatGraph, RefusesSizesThatItCannotMake) {
  const testing::TemporaryDirectory directory;
  RmatOptions options = smallGraph();
  options.cacheDirectory = directory.path();
  options.nodesLog2 = 32;
  EXPECT_TRUE(absl::IsInvalidArgument(openQuietly(options).status()));
  options.nodesLog2 = 8;
  options.edges = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(openQuietly(options).status()));
  options.edges = 1;
  options.parts = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(openQuietly(options).status()));
}

TEST(RmatGraph, RefusesAGraphUnderAnotherGraphsName) {
  const testing::TemporaryDirectory directory;
  RmatOptions options = smallGraph();
  options.cacheDirectory = directory.path();
  const std::string made = (*openQuietly(options))->directory();
  options.edges = 4000;
  const std::string other = (*openQuietly(options))->directory();
  std::filesystem::remove_all(other);
  std::filesystem::rename(made, other);
  EXPECT_TRUE(absl::IsFailedPrecondition(openQuietly(options).status()));
}

}  // namespace
}  // namespace farhop::benchmarks
