// Ranges of a partitioned type's rows that are worked on one after the other, each as large as memory allows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "partition/partition_book.h"

namespace farhop::partition {

// Rows [firstRow, endRow) of the gids of one type, all of one partition, and the items (edges, or rows themselves) that
// belong to them: items [firstItem, endItem), counted over all partitions.
struct RowBucket {
  int partition = 0;
  uint64_t firstRow = 0, endRow = 0;
  uint64_t firstItem = 0, endItem = 0;

  uint64_t rows() const { return endRow - firstRow; }
  uint64_t items() const { return endItem - firstItem; }
};

struct RowBucketLimits {
  uint64_t items = 0;  // at most so many per bucket, except where one row has more
  uint64_t rows = 0;
};

// Buckets in order of their rows, at least one per partition.
class RowBuckets {
 public:
  // `offsets`: items before each row, rows + 1 numbers; empty: row i is item i.
  RowBuckets(const PartitionBook& book, int nodeType, std::span<const uint64_t> offsets, const RowBucketLimits& limits);

  size_t size() const { return buckets_.size(); }
  const RowBucket& operator[](size_t bucket) const { return buckets_[bucket]; }
  uint64_t largest() const;  // items

  // Of any row that exists.
  size_t bucketOf(uint64_t row) const {
    size_t bucket = firstOfBlock_[row >> shift_];
    while (row >= buckets_[bucket].endRow) ++bucket;
    return bucket;
  }

 private:
  std::vector<RowBucket> buckets_;
  // By block of 2^shift_ rows: the bucket of its first row. As many blocks as make the walk from there short.
  std::vector<uint32_t> firstOfBlock_;
  int shift_ = 0;
};

}  // namespace farhop::partition
