// Seed sets from a store's splits or from original ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sampler/partitioned_graph.h"
#include "sampler/seed_dealer.h"

namespace farhop::sampler {

// The seeds of a split that exists, ascending by original id. kByOwner reads the own partitions and the
// counts in graph.json; kGlobal reads global/TYPE/splits/NAME.npy and the id map.
absl::StatusOr<SeedSet> seedSetOfSplit(const PartitionedGraph& graph, const std::string& name, int nodeType, Deal deal);

// Seeds by original id, in the order given; every process names the same. Ids must be in range.
absl::StatusOr<SeedSet> seedSetOfIds(const PartitionedGraph& graph, const std::vector<int64_t>& originalIds,
                                     int nodeType, Deal deal);

// All nodes of a type, ascending by original id. kByOwner reads the own partitions; kGlobal the id map.
absl::StatusOr<SeedSet> seedSetOfNodes(const PartitionedGraph& graph, int nodeType, Deal deal);

}  // namespace farhop::sampler
