// Sorts a relation's edges into the order in which a store keeps them, with memory for a part of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "partition/id_column.h"
#include "partition/row_buckets.h"
#include "partition/sampling_features.h"
#include "partition/writer_resources.h"

namespace farhop::partition {

// Borrows all.
struct RelationEdges {
  const IdColumn& source;
  const IdColumn& destination;
  uint64_t sources = 0;                  // nodes of the source type
  std::span<const uint64_t> sourceGids;  // by original id
  std::span<const uint64_t> destinationGids;
  const VisibleTimes* times = nullptr;      // null: none
  const std::vector<bool>* kept = nullptr;  // by edge id; null: all
};

// The edges of one bucket in the store's order: within a row by (time, original source id, edge id).
struct SortedEdges {
  const RowBucket& bucket;
  uint64_t size = 0;
  // For edge i below `size`. `source` is a gid, or the original id where sources stay.
  std::function<void(uint64_t first, uint64_t count, uint64_t* sources, uint64_t* edgeIds, int64_t* times)> copy;
  uint64_t remote = 0;  // edges whose source lies outside of [ownBegin, ownEnd)
};

struct EdgeSortOptions {
  std::string step;  // for the progress
  bool keepOriginalSources = false;
  // The gids of the source type that a partition owns; not needed with original ids.
  std::function<std::pair<uint64_t, uint64_t>(int partition)> ownSources;
};

// `indptr`: edges before each row over all gids of the destination type; what `buckets` was made from. Two readings:
// the edges are dealt into buckets in temporary space, then each bucket is sorted by one thread, and `consume` gets them
// in order, one at a time.
absl::Status sortEdges(const RelationEdges& edges, std::span<const uint64_t> indptr, const RowBuckets& buckets,
                       const WriterResources& resources, const EdgeSortOptions& options,
                       const std::function<absl::Status(const SortedEdges&)>& consume);

// Memory that sortEdges() takes for an edge, while its bucket is sorted.
uint64_t sortedEdgeBytes(const RelationEdges& edges);

}  // namespace farhop::partition
