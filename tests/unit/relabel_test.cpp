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

}  // namespace
}  // namespace farhop::sampler
