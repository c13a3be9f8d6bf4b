#include "sampler/relabel.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace farhop::sampler {
namespace {

TEST(NodeNumbering, NumbersInFirstSeenOrder) {
  NodeNumbering numbering;
  PodVector<uint64_t> nodes;
  numbering.reset(&nodes);
  EXPECT_EQ(numbering.number(50), 0u);
  EXPECT_EQ(numbering.number(0), 1u);
  EXPECT_EQ(numbering.number(50), 0u);
  EXPECT_EQ(numbering.number(~uint64_t{0}), 2u);
  EXPECT_EQ(nodes, (std::vector<uint64_t>{50, 0, ~uint64_t{0}}));
}

TEST(NodeNumbering, AgreesWithAMap_OverManyBatchesAndGrowth) {
  std::mt19937_64 random(11);
  NodeNumbering numbering;
  PodVector<uint64_t> nodes;
  for (int batch = 0; batch < 20; ++batch) {
    numbering.reset(&nodes);
    std::unordered_map<uint64_t, uint32_t> expected;
    for (int i = 0; i < 1000 * (batch + 1); ++i) {
      const uint64_t gid = random() % 20'000;
      const auto [entry, fresh] = expected.emplace(gid, static_cast<uint32_t>(expected.size()));
      ASSERT_EQ(numbering.number(gid), entry->second);
    }
    ASSERT_EQ(numbering.nodes().size(), expected.size());
  }
}

TEST(NodeNumbering, NumbersManyAsItNumbersOne) {
  std::mt19937_64 random(12);
  for (uint64_t count : {0, 1, 255, 256, 257, 5000}) {
    std::vector<uint32_t> gids;
    for (uint64_t i = 0; i < count; ++i) gids.push_back(static_cast<uint32_t>(random() % 2000));
    NodeNumbering one, many;
    PodVector<uint64_t> nodesOfOne, nodesOfMany;
    one.reset(&nodesOfOne);
    many.reset(&nodesOfMany);
    std::vector<uint32_t> expected, numbers(count);
    for (uint32_t gid : gids) expected.push_back(one.number(gid));
    many.numberAll(gids.data(), count, numbers.data());
    EXPECT_EQ(numbers, expected);
    EXPECT_EQ(nodesOfMany, nodesOfOne);
  }
}

}  // namespace
}  // namespace farhop::sampler
