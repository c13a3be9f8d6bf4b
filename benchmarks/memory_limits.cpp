#include "benchmarks/memory_limits.h"

#include <array>
#include <chrono>
#include <cstring>

#include "base/random.h"

namespace farhop::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLineBytes = 64;
constexpr size_t kMaxWindow = 128;
constexpr std::array<size_t, 5> kWindows = {8, 16, 32, 64, 128};

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

ReadRate randomReads(std::span<const std::byte> array, uint64_t reads, size_t window) {
  const uint64_t lines = array.size() / kLineBytes;
  const std::byte* const base = array.data();
  auto lineOf = [&](uint64_t read) {
    return base + static_cast<uint64_t>((static_cast<Uint128>(mix64(read * kGoldenGamma)) * lines) >> 64) * kLineBytes;
  };
  std::array<const std::byte*, kMaxWindow> ahead;  // a ring of lines asked for and not read yet
  for (size_t i = 0; i < window; ++i) {
    ahead[i] = lineOf(i);
    __builtin_prefetch(ahead[i]);
  }
  uint64_t sum = 0;
  size_t at = 0;
  const Clock::time_point start = Clock::now();
  for (uint64_t read = 0; read < reads; ++read) {
    uint64_t value;
    std::memcpy(&value, ahead[at], sizeof(value));
    sum += value;
    ahead[at] = lineOf(read + window);
    __builtin_prefetch(ahead[at]);
    at = at + 1 == window ? 0 : at + 1;
  }
  const double seconds = secondsSince(start);
  return {static_cast<double>(reads) / seconds, sum};
}

double copyRate(std::span<std::byte> array) {
  const size_t half = array.size() / 2;
  const Clock::time_point start = Clock::now();
  std::memcpy(array.data() + half, array.data(), half);
  // The copy is used, as far as the compiler can see.
  asm volatile("" : : "r"(array.data()) : "memory");
  return static_cast<double>(half) / secondsSince(start);
}

size_t bestReadWindow(std::span<const std::byte> array, uint64_t reads) {
  size_t best = kWindows[0];
  double bestRate = 0;
  for (int round = 0; round < 2; ++round) {
    for (size_t window : kWindows) {
      const double rate = randomReads(array, reads, window).readsPerSecond;
      if (rate <= bestRate) continue;
      bestRate = rate;
      best = window;
    }
  }
  return best;
}

}  // namespace farhop::benchmarks
