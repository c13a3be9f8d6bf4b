// Nodes drawn at random from all of a type, as ends of negative edges.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

// kUniform: each node with the same probability. kDegree: in proportion to degree^0.75, so that a node without edges is
// never drawn (T. Mikolov et al., "Distributed representations of words and phrases", NeurIPS 2013, section 2.2).
enum class NegativeNodes { kUniform, kDegree };

// Draws by original id, so that a key gives the same node on any partitioning. Immutable; thread-safe. kDegree reads the
// store's degrees once and keeps 8 bytes per 128 nodes; a draw reads one block of them.
class NegativeNodeDraw {
 public:
  // Destinations of the relation, or sources. InvalidArgument for kDegree where no node has an edge.
  static absl::StatusOr<NegativeNodeDraw> make(const PartitionedGraph& graph, int relation, bool destinations,
                                               NegativeNodes nodes);

  // The gid that random number `u`, uniform in [0, 2^64), means. Not below the type's count where the store is damaged.
  uint64_t gid(uint64_t u) const;

 private:
  std::span<const uint64_t> gidOf_;
  std::span<const uint32_t> degrees_;    // kDegree
  std::vector<double> sums_;             // [block] of the weights up to its end
};

}  // namespace farhop::sampler
