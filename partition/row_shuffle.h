// Copies rows of a feature into partitions' files in another order than they come in, with memory for a part of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/array_sink.h"
#include "partition/row_buckets.h"
#include "partition/writer_resources.h"

namespace farhop::partition {

inline constexpr uint32_t kNoBucket = UINT32_MAX;

// A feature's rows and where each belongs. Borrows what it points at.
struct ShuffledRows {
  FeatureSpec spec;
  uint64_t count = 0;  // input rows
  // The bucket of each of the input rows first, first + 1, ...; kNoBucket leaves a row out.
  std::function<void(uint64_t first, std::span<uint32_t> buckets)> bucketsOf;
  // Input rows `first` and following, back to back.
  std::function<void(uint64_t first, uint64_t count, std::byte* out)> rows;
  // Output rows by bucket: their numbers among the input rows.
  std::function<absl::StatusOr<std::vector<uint64_t>>(const RowBucket& bucket)> idsOf;
  std::function<std::string(int partition)> path;
  std::function<uint64_t(int partition)> rowsOf;  // output rows of a partition
};

// The input is read from its beginning to its end, each thread picking the rows of its share of the buckets; they lie
// in temporary space until their bucket's turn comes.
absl::Status shuffleRows(const ShuffledRows& rows, const RowBuckets& buckets, const WriterResources& resources,
                         ArraySink* sink);

// Bytes of memory that a row takes while its bucket is put in order.
inline uint64_t shuffledRowBytes(const FeatureSpec& spec) { return spec.rowBytes() + 3 * sizeof(uint64_t); }

}  // namespace farhop::partition
