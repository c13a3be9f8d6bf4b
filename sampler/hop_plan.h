// What one hop of a batch asks of whom: a function of the graph, the options and the batch as it was before the hop.
// So a hop can be asked for again when the batch is there: the sampler draws with it, pulls of edge features draw again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampler/batch_exclusion.h"
#include "sampler/neighbor_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/sampled_batch.h"
#include "sampler/sampling_options.h"

namespace farhop::sampler {

// The nodes of one type that draw in one hop.
struct HopFrontier {
  uint32_t first = 0, last = 0;              // numbers of its nodes
  std::vector<uint16_t> partitionOfRow;      // [last - first]
  std::vector<std::vector<uint32_t>> rows;   // [partition] local indices, in frontier order
  std::vector<std::vector<uint32_t>> trees;  // [partition] tree of each row; empty unless seeds are disjoint
  std::vector<std::vector<int64_t>> times;   // [partition] the tree's time; empty where trees have none
  // [relation] by partition what these rows must not draw; `row` counts rows[partition]. Empty: nothing.
  std::vector<ExcludedBuckets> excluded;
};

// Borrows graph and options; `options->kinds` has an entry per relation. Thread-safe.
class HopPlan {
 public:
  HopPlan(const PartitionedGraph* graph, const SamplingOptions* options) : graph_(graph), options_(options) {}

  // The numbers of the nodes of `type` that draw in hop `hop` of a batch that knows nodesByHop[type][hop].
  void setRange(const SampledBatch& batch, size_t hop, int type, HopFrontier* frontier) const;
  // Deals the nodes first .. last to partitions, with what they must not draw. DataLoss when a gid lies outside its type: a damaged store that
  // nobody has verified.
  absl::Status bucket(const SampledBatch& batch, int type, HopFrontier* frontier) const;

  RelationDraw drawOf(const SampledBatch& batch, size_t hop, int relation) const;
  // What relation `relation` draws from an own partition; borrows the frontier.
  DrawRows ownRows(const SampledBatch& batch, size_t hop, int relation, const HopFrontier& frontier,
                   int partition) const;
  // What `machine` is asked of the given relations, the frontiers of whose destination types are bucketed. Without
  // runs when it owns no row that any of them draws from.
  NeighborRequest request(const SampledBatch& batch, size_t hop, std::span<const HopFrontier> frontiers,
                          std::span<const int> relations, int machine) const;

 private:
  const PartitionedGraph* graph_;
  const SamplingOptions* options_;
};

}  // namespace farhop::sampler
