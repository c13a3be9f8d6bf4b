// Which partition owns which node: METIS k-way, random, or ranges of original ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/dataset.h"

namespace farhop::partition {

struct PartitionAssignment {
  int numPartitions = 0;
  std::vector<std::vector<int32_t>> partitionOf;  // [node type][original id]
};

enum class PartitionMethod { kMetis, kRandom, kRange };
absl::StatusOr<PartitionMethod> parsePartitionMethod(absl::string_view name);  // "metis", "random" or "range"
absl::string_view partitionMethodName(PartitionMethod method);

struct PartitionOptions {
  int parts = 1;
  PartitionMethod method = PartitionMethod::kMetis;
  // The same seed, data set and options give the same assignment.
  uint64_t seed = 0;
  // Every partition also gets its share of the seeds of split "train", and of the nodes at which its seed edges end;
  // without such a split no effect.
  bool balanceTrain = true;
};

// kMetis cuts few edges of the undirected union of all relations over all node types (parallel edges count as
// one of that weight, self loops not at all) with about n/K nodes per partition: G. Karypis, V. Kumar,
// "Multilevel k-way Partitioning Scheme for Irregular Graphs", JPDC 1998, as METIS 5 implements it.
// InvalidArgument when K exceeds the number of nodes, OutOfRange when the graph exceeds METIS's integers.
// kRandom deals the nodes of each type evenly, keyed by seed, type name and original id.
// kRange gives each partition consecutive original ids of each type, as many as the others or one more; for data sets whose
// ids carry an order that keeps neighbours together. Neither seed nor train seeds matter.
absl::StatusOr<PartitionAssignment> assignPartitions(const Dataset& dataset, const PartitionOptions& options);

// Two options with the same key give the same assignment of a data set.
std::string partitionOptionsKey(const PartitionOptions& options);

// [node type][original id]: whether the node is a seed of split "train", or the destination of a seed edge of one, which
// belongs to the partition that owns it.
std::vector<std::vector<bool>> trainSeeds(const Dataset& dataset);

// InvalidArgument when the assignment does not fit the data set.
absl::Status checkAssignment(const Dataset& dataset, const PartitionAssignment& assignment);

}  // namespace farhop::partition
