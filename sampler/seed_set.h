// Seed sets from a store's splits or from original ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "sampler/feature_puller.h"
#include "sampler/partitioned_graph.h"
#include "sampler/seed_dealer.h"

namespace farhop::sampler {

// The seeds of a split that exists, ascending by original id. kByOwner reads the own partitions and the
// counts in graph.json; kGlobal reads global/TYPE/splits/NAME.npy and the id map.
absl::StatusOr<SeedSet> seedSetOfSplit(const PartitionedGraph& graph, const std::string& name, int nodeType, Deal deal);

// Seeds by original id, in the order given; every process names the same. Ids must be in range. `times` is as long,
// or empty.
absl::StatusOr<SeedSet> seedSetOfIds(const PartitionedGraph& graph, const std::vector<int64_t>& originalIds,
                                     int nodeType, Deal deal, const std::vector<int64_t>& times = {});

// Gives the set that is dealt by `deal` the times of its nodes, those that their type declares. Other machines are
// asked for theirs, through `puller`, and waited for until the deadline. NotFound, listing what the store has, when
// the type has none.
absl::Status addNodeTimes(const PartitionedGraph& graph, FeaturePuller* puller, Deal deal, Deadline deadline,
                          SeedSet* set);

// DataLoss: the type's id map names nodes that there are not, as it may where nobody has verified the store.
absl::Status damagedIdMap(const PartitionedGraph& graph, int nodeType);

// What the store has in times, for messages: "relations a:b:c, d:e:f; node types a", or "none".
std::string timesText(const partition::Schema& schema);

// All nodes of a type, ascending by original id. kByOwner reads the own partitions; kGlobal the id map.
absl::StatusOr<SeedSet> seedSetOfNodes(const PartitionedGraph& graph, int nodeType, Deal deal);

}  // namespace farhop::sampler
