// Nodes of disjoint trees as one number: the same node is another one in every tree.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/status.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

inline constexpr int kTreeNodeBits = 40;
inline constexpr uint64_t kMaxTrees = uint64_t{1} << (64 - kTreeNodeBits);
// Gids are below this; what a damaged store has beyond becomes it, which no node type has.
inline constexpr uint64_t kNoTreeNode = (uint64_t{1} << kTreeNodeBits) - 1;

constexpr uint64_t treeNode(uint32_t tree, uint64_t gid) {
  return (uint64_t{tree} << kTreeNodeBits) | std::min(gid, kNoTreeNode);
}
constexpr uint64_t gidOfTreeNode(uint64_t node) { return node & kNoTreeNode; }
constexpr uint32_t treeOfTreeNode(uint64_t node) { return static_cast<uint32_t>(node >> kTreeNodeBits); }

// InvalidArgument when the graph's nodes or so many trees do not fit.
inline absl::Status checkTrees(const PartitionedGraph& graph, uint64_t trees) {
  if (trees > kMaxTrees) {
    return absl::InvalidArgumentError(
        absl::StrCat(trees, " disjoint seeds in a batch; at most ", kMaxTrees, ", use smaller batches"));
  }
  for (const partition::NodeType& type : graph.schema().nodeTypes) {
    if (type.count <= kNoTreeNode) continue;
    return absl::InvalidArgumentError(absl::StrCat("node type '", type.name, "' has ", type.count,
                                                   " nodes; disjoint seeds need fewer than 2^", kTreeNodeBits));
  }
  return absl::OkStatus();
}

}  // namespace farhop::sampler
