// A data set as METIS wants it: one undirected weighted graph over all nodes of all types.
#pragma once

#include <metis.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "partition/dataset.h"

namespace farhop::partition {

// CSR with both directions of every edge; node types one after the other, in schema order.
struct MetisGraph {
  std::vector<idx_t> indptr;       // [nodes + 1]
  std::vector<idx_t> neighbors;    // ascending per node, no duplicates, no self loops
  std::vector<idx_t> edgeWeights;  // how many edges of the data set, of either direction, each stands for
  std::vector<idx_t>
      nodeWeights;  // [nodes * constraints], by node: 1, and with 2 constraints 1 for a train seed
  idx_t constraints = 1;
};

// OutOfRange when so many nodes or edges do not fit METIS's idx_t (32 bits in Debian's build).
absl::Status checkMetisLimits(uint64_t nodes, uint64_t edges);

// `train`: [node type][original id], or null for one constraint. One without any true counts as null.
absl::StatusOr<MetisGraph> buildMetisGraph(const Dataset& dataset,
                                           const std::vector<std::vector<bool>>* train);

}  // namespace farhop::partition
