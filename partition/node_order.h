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

// kOriginalId: by original id. kDegree: seeds of split "train" first, and among them and among the others nodes of
// many edges before those of few; the same: by original id.
enum class NodeOrder { kOriginalId, kDegree };
absl::StatusOr<NodeOrder> parseNodeOrder(absl::string_view name);  // "id" or "degree"
absl::string_view nodeOrderName(NodeOrder order);

// Per type, partition after partition.
PartitionBook makeBook(const PartitionAssignment& assignment);

// Gids by [node type][original id]. kDegree takes 16 bytes per node of all types.
absl::StatusOr<std::vector<std::vector<uint64_t>>> numberNodes(const Dataset& dataset,
                                                               const PartitionAssignment& assignment,
                                                               const PartitionBook& book, NodeOrder order,
                                                               const WriterResources& resources);

}  // namespace farhop::partition
