// Mutates valid .npy headers at random; the parser must answer, not crash. Bounded and seeded.
#include <gtest/gtest.h>

#include <random>

#include "base/npy.h"

namespace farhop {
namespace {

TEST(NpyHeaderFuzz, AnswersAnyBytes) {
  const uint32_t seed = 20'240'601;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::vector<uint64_t> shape{1000, 16};
  const std::string valid = formatNpyHeader(DType::kFloat32, shape);
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes = valid;
    for (uint32_t i = 0, edits = random() % 6; i < edits; ++i) {
      switch (random() % 3) {
        case 0: bytes[random() % bytes.size()] = static_cast<char>(random()); break;
        case 1: bytes.erase(random() % bytes.size(), 1); break;
        default: bytes.insert(random() % bytes.size(), 1, "0123456789(),'{}: "[random() % 18]); break;
      }
    }
    auto header = parseNpyHeader(std::as_bytes(std::span(bytes.data(), bytes.size())));
    if (header.ok()) {
      ++accepted;
      ASSERT_LE(header->dataOffset, bytes.size());
      ASSERT_LE(header->elements(), uint64_t{1} << 60);
    }
  }
  EXPECT_GT(accepted, 10'000);  // the mutations leave enough headers valid to be worth while
}

}  // namespace
}  // namespace farhop
