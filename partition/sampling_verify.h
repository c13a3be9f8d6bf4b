// The checks of GraphStore::verify() of what a store keeps for sampling, beside the graph itself.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "partition/graph_store.h"

namespace farhop::partition {

// A store with all partitions open; original ids, neighbours and row bounds are in range.
struct OpenStore {
  const GraphStore& store;
  std::span<const std::optional<GraphShard>> shards;  // by partition, none is empty

  // Original id of a node that any partition owns.
  uint64_t originalId(int nodeType, uint64_t gid) const;
};

// Each gives the problems that it finds, one per file, naming it.

// `times` and `weights` of a relation hold what the features say that they are made of.
std::vector<std::string> checkSamplingColumns(const OpenStore& open, int relation);
// `in_degree` and `out_degree` of a forward relation count its edges.
std::vector<std::string> checkDegrees(const OpenStore& open, int relation);
// The partitions' seed edges and labels are those of the list over all, in its order.
std::vector<std::string> checkEdgeSplit(const OpenStore& open, const EdgeSplitInfo& split);

}  // namespace farhop::partition
