#include "partition/row_buckets.h"

#include <algorithm>

namespace farhop::partition {

RowBuckets::RowBuckets(const PartitionBook& book, int nodeType, std::span<const uint64_t> offsets,
                       const RowBucketLimits& limits) {
  const auto itemsBefore = [&](uint64_t row) { return offsets.empty() ? row : offsets[row]; };
  const uint64_t maxItems = std::max<uint64_t>(1, limits.items), maxRows = std::max<uint64_t>(1, limits.rows);
  for (int k = 0; k < book.numPartitions(); ++k) {
    uint64_t row = book.begin(nodeType, k);
    const uint64_t end = book.end(nodeType, k);
    do {
      const uint64_t first = row;
      uint64_t last = std::min(end, first + maxRows);
      // The last row whose items still fit; a row with too many is a bucket of its own.
      if (itemsBefore(last) - itemsBefore(first) > maxItems) {
        uint64_t fits = first + 1;
        while (fits < last) {
          const uint64_t middle = fits + (last - fits + 1) / 2;
          if (itemsBefore(middle) - itemsBefore(first) <= maxItems) {
            fits = middle;
          } else {
            last = middle - 1;
          }
        }
        last = fits;
      }
      buckets_.push_back({k, first, last, itemsBefore(first), itemsBefore(last)});
      row = last;
    } while (row < end);
  }
  const uint64_t rows = book.numPartitions() == 0 ? 0 : book.numNodes(nodeType);
  while ((rows >> shift_) > 16 * buckets_.size() + 1024) ++shift_;
  size_t bucket = 0;
  for (uint64_t block = 0; (block << shift_) < rows; ++block) {
    while ((block << shift_) >= buckets_[bucket].endRow) ++bucket;
    firstOfBlock_.push_back(static_cast<uint32_t>(bucket));
  }
}

uint64_t RowBuckets::largest() const {
  uint64_t most = 0;
  for (const RowBucket& bucket : buckets_) most = std::max(most, bucket.items());
  return most;
}

}  // namespace farhop::partition
