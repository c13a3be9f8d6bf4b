// What random walks follow and how a step is chosen. docs/sampling.md defines it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

// One step of a metapath: from a node of the relation's destination type to one of its in-neighbours.
struct WalkStep {
  int relation = 0;
  bool weighted = false;  // in proportion to an edge feature, else uniformly over the in-edges
  uint32_t weight = 0;    // weightIndex() of the feature
};

struct WalkPlan {
  std::vector<WalkStep> metapath;  // followed in order, again and again
  uint32_t length = 0;             // steps
  // The probability to go back to the start where the metapath begins anew, but at the very beginning.
  double restart = 0;
  // node2vec's p and q; both 1: steps do not depend on the step before.
  double p = 1;
  double q = 1;

  bool secondOrder() const { return p != 1 || q != 1; }
  const WalkStep& stepOf(uint32_t step) const { return metapath[step % metapath.size()]; }
};

inline constexpr uint32_t kMaxWalkLength = 65'536;
// Of the largest to the smallest of 1/p, 1 and 1/q: what bounds the tries of a second-order step.
inline constexpr double kMaxBiasRatio = 1'000;

// InvalidArgument unless the graph can be walked like this: relations that exist and chain, weights, probabilities,
// one relation from a node type to itself for second-order steps.
absl::Status checkWalkPlan(const WalkPlan& plan, const PartitionedGraph& graph);

// Makes the tables that walks of this plan need of the own partitions, so that the first batch does not wait for them.
// Fails when the partitions' weights are none.
absl::Status prepareWalks(const WalkPlan& plan, const PartitionedGraph& graph);

// The node type of all walks' node after `steps` steps.
int walkNodeType(const WalkPlan& plan, const PartitionedGraph& graph, uint32_t steps);

}  // namespace farhop::sampler
