// What the machine's memory can do on one thread: the limit that samplers are compared with.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace farhop::benchmarks {

struct ReadRate {
  double readsPerSecond = 0;
  uint64_t checksum = 0;  // of what was read; a function of the array's size and the number of reads
};

// Reads `reads` random 64-byte lines of the array, each independent of all others, prefetched `window` reads
// ahead. The array is at least one line, line-aligned.
ReadRate randomReads(std::span<const std::byte> array, uint64_t reads, size_t window);

// Bytes copied per second from the first half of the array to the second (each is read once and written once).
double copyRate(std::span<std::byte> array);

// How far ahead randomReads() is fastest here, and so what `window` to use.
size_t bestReadWindow(std::span<const std::byte> array, uint64_t reads);

}  // namespace farhop::benchmarks
