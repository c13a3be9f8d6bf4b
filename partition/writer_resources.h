// What the writing of a store may use: memory, threads, temporary space. None of it changes what is written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "partition/progress_meter.h"

namespace farhop::partition {

struct WriterResources {
  int threads = 1;
  uint64_t workingBytes = 0;  // memory for buckets, over all threads
  uint64_t maxBucketItems = 0;  // 0: as many as memory allows
  std::string scratchDirectory;
  ProgressMeter* meter = nullptr;  // may be null

  // Threads that prepare a bucket each, one bucket's bytes for each of them. Buckets that fit a cache are sorted
  // faster, and appends of less than a page are slow: between the two there is nothing to choose.
  uint64_t bucketBytes() const {
    constexpr uint64_t kLargest = uint64_t{64} << 20;
    return std::min<uint64_t>(workingBytes / 2 / static_cast<uint64_t>(threads), kLargest);
  }
  uint64_t bucketItems(uint64_t itemBytes) const {
    const uint64_t items = std::max<uint64_t>(1, bucketBytes() / std::max<uint64_t>(1, itemBytes));
    return maxBucketItems == 0 ? items : std::min(items, maxBucketItems);
  }
  // What waits for its bucket's turn stays in memory when it takes no more than this; none where a test wants buckets.
  uint64_t spillBytes() const { return maxBucketItems == 0 ? workingBytes / 4 : 0; }
  // Of one bucket, in each of the threads that fill buckets.
  uint64_t bufferBytes(uint64_t buckets) const {
    const uint64_t share = workingBytes / 4 / static_cast<uint64_t>(threads) / std::max<uint64_t>(1, buckets);
    return std::clamp<uint64_t>(share, 512, uint64_t{64} << 10);
  }

  void begin(const std::string& step, const char* unit, uint64_t total) const {
    if (meter != nullptr) meter->begin(step, unit, total);
  }
  void advance(uint64_t units) const {
    if (meter != nullptr) meter->advance(units);
  }
};

}  // namespace farhop::partition
