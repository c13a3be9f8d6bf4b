#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace farhop {
namespace {

TEST(KeyedRandom, GivesTheSameBitsForTheSameKey) {
  const uint64_t hop = hopKey(7, 1, 2, 0, Purpose::kNeighbors, hashName("depends"));
  KeyedRandom a(nodeKey(hop, 42)), b(nodeKey(hop, 42));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(), b.next());
}

TEST(KeyedRandom, IsFixedForEver) {
  // Changing these values changes every user's batches: only with a new major version.
  EXPECT_EQ(mix64(1), 0x5692161D100B05E5ULL);
  EXPECT_EQ(hashName("a"), 0xAF63DC4C8601EC8CULL);  // FNV-1a reference value
}

TEST(KeyedRandom, DependsOnEveryPartOfTheKey) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0, 1})
    for (uint64_t epoch : {0, 1})
      for (uint64_t batch : {0, 1})
        for (uint64_t hop : {0, 1})
          for (auto purpose : {Purpose::kNeighbors, Purpose::kShuffle})
            for (uint64_t name : {hashName("a"), hashName("b")})
              for (uint64_t id : {0, 1})
                for (uint64_t occurrence : {0, 1})
                  keys.insert(nodeKey(hopKey(seed, epoch, batch, hop, purpose, name), id, occurrence));
  EXPECT_EQ(keys.size(), 256u);
}

TEST(KeyedRandom, BelowIsUniformAcrossNeighbouringKeys) {
  // One draw per key, keys as they occur: consecutive ids. 3 sigma of chi-square with 96 degrees is 137.6.
  constexpr int kBins = 97, kDraws = 97'000;
  const uint64_t hop = hopKey(1, 2, 3, 4, Purpose::kTest, 5);
  std::vector<int> count(kBins);
  for (uint64_t id = 0; id < kDraws; ++id) ++count[KeyedRandom(nodeKey(hop, id)).below(kBins)];
  double chi = 0;
  for (int c : count) chi += std::pow(c - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi, 137.6);
  EXPECT_GT(chi, 54.4);
}

TEST(KeyedPermutation, IsABijection_ForAnySize) {
  for (uint64_t size : {1, 2, 3, 4, 5, 17, 100, 1000, 4097}) {
    for (uint64_t key : {0, 9}) {
      KeyedPermutation permutation(key, size);
      std::vector<bool> seen(size);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t image = permutation(i);
        ASSERT_LT(image, size);
        ASSERT_FALSE(seen[image]);
        seen[image] = true;
      }
    }
  }
}

TEST(KeyedPermutation, SpreadsPositions) {
  KeyedPermutation permutation(mix64(3), 10'000);
  double displacement = 0;
  for (uint64_t i = 0; i < 10'000; ++i) displacement += std::abs(static_cast<double>(permutation(i)) - static_cast<double>(i));
  EXPECT_NEAR(displacement / 10'000, 10'000 / 3.0, 100);
}

}  // namespace
}  // namespace farhop
