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
};

// Working memory of one batch: reset(), add() all, sort(); then for each hop bucket() each relation and read of().
// Costs nothing where nothing is excluded. Not thread-safe.
class BatchExclusion {
 public:
  BatchExclusion(size_t relations, size_t partitions)
      : edges_(relations), buckets_(relations, std::vector<std::vector<ExcludedEdge>>(partitions)), counts_(partitions) {}

  void reset();
  // `row`: the destination's number in the batch.
  void add(int relation, uint32_t row, uint64_t source) { edges_[relation].push_back({0, row, source}); }
  void sort();

  // Sorts the frontier's excluded edges by partition: row i of the frontier has number first + i and is the next row of
  // partitionOfRow[i].
  void bucket(int relation, uint32_t first, std::span<const uint16_t> partitionOfRow);
  // By `row`, which counts the partition's rows of the frontier bucketed last. `draw` is 0.
  const std::vector<ExcludedEdge>& of(int relation, int partition) const { return buckets_[relation][partition]; }

 private:
  std::vector<std::vector<ExcludedEdge>> edges_;                 // [relation]; row: number in the batch
  std::vector<std::vector<std::vector<ExcludedEdge>>> buckets_;  // [relation][partition]
  std::vector<uint32_t> counts_;                                 // [partition]
};

}  // namespace farhop::sampler
