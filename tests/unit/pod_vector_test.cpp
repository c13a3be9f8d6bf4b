#include "base/pod_vector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace farhop {
namespace {

TEST(PodVector, KeepsWhatWasAppended_ThroughGrowth) {
  PodVector<uint32_t> values;
  for (uint32_t i = 0; i < 10'000; ++i) values.push_back(i);
  values.append(3, 7);
  const uint32_t more[] = {1, 2};
  values.append(more, 2);
  ASSERT_EQ(values.size(), 10'005u);
  for (uint32_t i = 0; i < 10'000; ++i) ASSERT_EQ(values[i], i);
  EXPECT_EQ(values.back(), 2u);
  EXPECT_EQ(values[10'002], 7u);
}

TEST(PodVector, KeepsItsMemory_WhenCleared) {
  PodVector<uint64_t> values;
  values.reserve(1000);
  const uint64_t* memory = values.data();
  values.addSize(1000);
  values.clear();
  EXPECT_TRUE(values.empty());
  EXPECT_EQ(values.reserveMore(1000), memory);
}

TEST(PodVector, CopiesAndMoves) {
  PodVector<int> a{1, 2, 3};
  PodVector<int> b = a;
  b.push_back(4);
  EXPECT_EQ(a, (std::vector<int>{1, 2, 3}));
  a = std::move(b);
  EXPECT_EQ(a, (std::vector<int>{1, 2, 3, 4}));
  PodVector<int> empty;
  a = empty;
  EXPECT_EQ(a, std::vector<int>{});
}

}  // namespace
}  // namespace farhop
