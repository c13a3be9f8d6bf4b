// Keyed, counter-based random numbers.
//
// A draw is a pure function of a key: (seed, epoch, batch, hop, purpose, hash of the relation's or type's
// name, original id, occurrence). There is no state to share, save or order, so any thread, process or
// machine that computes the same draw gets the same bits. ARCHITECTURE.md, "Sampling".
//
// Bits come from the 64-bit finaliser of MurmurHash3 in Stafford's variant 13, applied to a Weyl sequence:
// the generator known as SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// OOPSLA 2014, figure 17). Key parts are folded in one after the other with the same finaliser.
#pragma once

#include <cstdint>
#include <string_view>

namespace farhop {

// Bijective 64-bit mixer (Stafford variant 13).
constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

__extension__ using Uint128 = unsigned __int128;

constexpr uint64_t kGoldenGamma = 0x9E3779B97F4A7C15ULL;

// Folds one more part into a key. Order matters: combine(combine(k, a), b) != combine(combine(k, b), a).
constexpr uint64_t combineKey(uint64_t key, uint64_t part) {
  return mix64((key ^ mix64(part + kGoldenGamma)) + kGoldenGamma);
}

// FNV-1a, 64 bit: a stable hash of names, the same on every machine and in every build.
constexpr uint64_t hashName(std::string_view name) {
  uint64_t h = 0xCBF29CE484222325ULL;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return h;
}

// What a draw is for; part of the key, so that two kinds of draws never share bits.
enum class Purpose : uint64_t {
  kNeighbors = 1, kShuffle = 2, kPartition = 3, kLabor = 4, kWalk = 8, kNegatives = 12, kTest = 99
};

// The part of a key that is the same for all nodes of one hop of one relation.
constexpr uint64_t hopKey(uint64_t seed, uint64_t epoch, uint64_t batch, uint64_t hop, Purpose purpose,
                          uint64_t nameHash) {
  uint64_t key = combineKey(seed, epoch);
  key = combineKey(key, batch);
  key = combineKey(key, hop);
  key = combineKey(key, static_cast<uint64_t>(purpose));
  return combineKey(key, nameHash);
}

// The key of one node's draw. `occurrence` is the tree, walk or negative's index, 0 otherwise.
constexpr uint64_t nodeKey(uint64_t hop, uint64_t originalId, uint64_t occurrence = 0) {
  return mix64((hop ^ mix64(originalId + kGoldenGamma)) + occurrence * 0xD1342543DE82EF95ULL);
}

// The stream of one key. Cheap to make (no warm-up); one per node and draw.
class KeyedRandom {
 public:
  explicit constexpr KeyedRandom(uint64_t key) : state_(key) {}

  constexpr uint64_t next() { return mix64(state_ += kGoldenGamma); }

  // Uniform in [0, bound), bound > 0. Multiply-shift (Lemire 2019, without the rejection step): the bias is
  // below bound / 2^64, far under what any statistical test of ours could see.
  constexpr uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<Uint128>(next()) * bound) >> 64);
  }

  // Uniform in [0, 1) with 53 bits.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

// A keyed permutation of [0, size): position i -> image, without storing it. A four-round Feistel network
// over the next even power of two, walked until the image falls inside the range (Black, Rogaway: "Ciphers
// with arbitrary finite domains", CT-RSA 2002). About 2 evaluations on average, at most 4.
class KeyedPermutation {
 public:
  KeyedPermutation(uint64_t key, uint64_t size) : key_(key), size_(size) {
    while (halfBits_ < 32 && (uint64_t{1} << (2 * halfBits_)) < size_) ++halfBits_;
    mask_ = (uint64_t{1} << halfBits_) - 1;
  }

  uint64_t size() const { return size_; }

  uint64_t operator()(uint64_t position) const {
    uint64_t value = position;
    do {
      uint64_t left = value >> halfBits_, right = value & mask_;
      for (uint64_t round = 0; round < 4; ++round) {
        uint64_t mixed = left ^ (mix64(key_ + round * kGoldenGamma + right * 0xD1342543DE82EF95ULL) & mask_);
        left = right;
        right = mixed;
      }
      value = (left << halfBits_) | right;
    } while (value >= size_);
    return value;
  }

 private:
  uint64_t key_;
  uint64_t size_;
  int halfBits_ = 1;
  uint64_t mask_ = 1;
};

}  // namespace farhop
