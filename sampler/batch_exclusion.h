// Which in-edges the rows of a batch must not draw, brought to where each row is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampler/neighbor_draw.h"

namespace farhop::sampler {

// In-edges of a relation that a batch must not draw, by gids: all edges source -> destination, parallel ones too.
struct ExcludedPair {
  int relation = 0;
  uint64_t destination = 0;
  uint64_t source = 0;
  uint32_t tree = 0;  // in which, where seeds are disjoint
};

// Brings edges into the order of (row, source) and drops repeats.
void sortExcluded(std::vector<ExcludedEdge>* edges);

// Excluded edges by the partition that draws their row.
struct ExcludedBuckets {
  std::vector<std::vector<ExcludedEdge>> edges;  // [partition]
  std::vector<uint32_t> rows;                    // [partition] seen so far: memory of the dealing

  // Empties all for so many partitions, keeping memory.
  void reset(size_t partitions);
};

// Deals the excluded edges of a frontier to partitions. edges[i].row is a node's number in the batch; row i of the
// frontier has number first + i and is the next row of partitionOfRow[i]. In buckets->edges[partition] `row` counts the
// partition's rows of the frontier, in order, and `draw` is 0. `buckets` are reset.
void bucketExcluded(std::span<const ExcludedEdge> edges, uint32_t first, std::span<const uint16_t> partitionOfRow,
                    ExcludedBuckets* buckets);

}  // namespace farhop::sampler
