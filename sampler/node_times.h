// Times that nodes of a type declare (docs/store-format.md, "Times"), wherever the nodes are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "sampler/feature_puller.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

// The times of nodes by gid. Other machines are asked for theirs, through `puller`, and waited for until the deadline.
// NotFound, listing what the store has, when the type has none. `what` is named in errors. `gids` are kept by the pull.
absl::StatusOr<std::vector<int64_t>> pullNodeTimes(const PartitionedGraph& graph, FeaturePuller* puller, int nodeType,
                                                   std::vector<uint64_t> gids, Deadline deadline, const std::string& what);

// All nodes of a type in order of (time, original id), the same on any partitioning: those that are not later than some
// time are the first ones. Immutable; thread-safe. 16 bytes per node.
class NodeTimes {
 public:
  // Asks every owner once for the times of its nodes; errors as of pullNodeTimes().
  static absl::StatusOr<std::shared_ptr<const NodeTimes>> make(const PartitionedGraph& graph, FeaturePuller* puller,
                                                               int nodeType, Deadline deadline);
  // timeOf[original id].
  explicit NodeTimes(std::span<const int64_t> timeOf);

  uint64_t size() const { return order_.size(); }
  // How many nodes are not later than `time`.
  uint64_t countUntil(int64_t time) const;
  // The original id of the node at a place in the order.
  uint64_t originalIdAt(uint64_t place) const { return order_[place]; }

 private:
  std::vector<int64_t> times_;   // ascending
  std::vector<uint64_t> order_;  // original ids
};

}  // namespace farhop::sampler
