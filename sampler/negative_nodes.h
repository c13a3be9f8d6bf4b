// Nodes drawn at random from all of a type, as ends of negative edges.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampler/node_times.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

// kUniform: each node with the same probability. kDegree: in proportion to degree^0.75, so that a node without edges is
// never drawn (T. Mikolov et al., "Distributed representations of words and phrases", NeurIPS 2013, section 2.2).
enum class NegativeNodes { kUniform, kDegree };

// Draws by original id, so that a key gives the same node on any partitioning. Immutable; thread-safe. kDegree reads the
// store's degrees once and keeps 8 bytes per 128 nodes; a draw reads one block of them.
class NegativeNodeDraw {
 public:
  // Destinations of the relation, or sources. `times`: of the nodes, where some draws are to know the early ones only; or
  // null. InvalidArgument for kDegree where no node has an edge.
  static absl::StatusOr<NegativeNodeDraw> make(const PartitionedGraph& graph, int relation, bool destinations,
                                               NegativeNodes nodes, std::shared_ptr<const NodeTimes> times = nullptr);

  // How many nodes a draw at `time` is made from: those not later, where nodes have times; else all.
  uint64_t candidates(int64_t time) const { return times_ == nullptr ? gidOf_.size() : times_->countUntil(time); }
  uint64_t allCandidates() const { return gidOf_.size(); }

  // The gid that random number `u`, uniform in [0, 2^64), means among the first `candidates`, at least 1. Where none of
  // them has an edge, kDegree is uniform. Not below the type's count where the store is damaged.
  uint64_t gid(uint64_t u, uint64_t candidates) const;

 private:
  uint64_t originalIdAt(uint64_t place) const { return times_ == nullptr ? place : times_->originalIdAt(place); }
  double weightAt(uint64_t place) const;
  // Of the weights of the first `candidates`.
  double sumOf(uint64_t candidates) const;

  std::span<const uint64_t> gidOf_;
  std::shared_ptr<const NodeTimes> times_;
  std::span<const uint32_t> degrees_;    // kDegree: by original id
  std::vector<double> sums_;             // [block of places] of the weights up to its end
};

}  // namespace farhop::sampler
