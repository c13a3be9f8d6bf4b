// How the nodes of a partition follow each other: their gids. No draw depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "partition/dataset.h"
#include "partition/partition_book.h"
#include "partition/partitioner.h"
#include "partition/writer_resources.h"

namespace farhop::partition {

// kOriginalId: by original id. The others put the seeds of split "train" first. kDegree: then nodes that are sources of
// many edges before those of few. kBfs: breadth first over all relations, in either direction, from the train seeds;
// nodes that are not reached come last. The same: by original id.
enum class NodeOrder { kOriginalId, kDegree, kBfs };
absl::StatusOr<NodeOrder> parseNodeOrder(absl::string_view name);  // "id", "degree" or "bfs"
absl::string_view nodeOrderName(NodeOrder order);

// Per type, partition after partition.
PartitionBook makeBook(const PartitionAssignment& assignment);

// Gids by [node type][original id]. kDegree takes 16 bytes per node;
// kBfs 24 per node of all types, and writes an adjacency of 8 bytes per edge to temporary space.
absl::StatusOr<std::vector<std::vector<uint64_t>>> numberNodes(const Dataset& dataset,
                                                               const PartitionAssignment& assignment,
                                                               const PartitionBook& book, NodeOrder order,
                                                               const WriterResources& resources);

}  // namespace farhop::partition
