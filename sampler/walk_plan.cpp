#include "sampler/walk_plan.h"

#include <algorithm>
#include <cmath>

namespace farhop::sampler {
namespace {

absl::Status checkProbabilities(const WalkPlan& plan) {
  if (!(plan.restart >= 0 && plan.restart < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the restart probability is ", plan.restart, "; it must be in [0, 1)"));
  }
  for (const auto& [name, value] : {std::pair("p", plan.p), std::pair("q", plan.q)}) {
    if (!(value > 0) || std::isinf(value)) {
      return absl::InvalidArgumentError(absl::StrCat("node2vec's ", name, " is ", value, "; it must be above 0 and finite"));
    }
  }
  const auto [least, most] = std::minmax({1 / plan.p, 1.0, 1 / plan.q});
  if (most / least > kMaxBiasRatio) {
    return absl::InvalidArgumentError(absl::StrCat("node2vec's p = ", plan.p, " and q = ", plan.q,
                                                   " are too far apart: 1/p, 1 and 1/q may differ by a factor of at most ",
                                                   kMaxBiasRatio));
  }
  return absl::OkStatus();
}

absl::Status checkChain(const WalkPlan& plan, const PartitionedGraph& graph) {
  const partition::Schema& schema = graph.schema();
  const bool repeats = plan.length > plan.metapath.size() || plan.restart > 0;
  for (size_t i = 0; i < plan.metapath.size(); ++i) {
    if (i + 1 == plan.metapath.size() && !repeats) break;
    const int relation = plan.metapath[i].relation, next = plan.metapath[(i + 1) % plan.metapath.size()].relation;
    const partition::Relation& from = schema.relations[relation];
    const partition::Relation& to = schema.relations[next];
    if (from.source == to.destination) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the metapath does not chain: a step along ", schema.relationText(relation), " ends at a '",
        schema.nodeTypes[from.source].name, "', but one along ", schema.relationText(next), " begins at a '",
        schema.nodeTypes[to.destination].name, "' (steps go from an edge's destination to its source)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status checkWalkPlan(const WalkPlan& plan, const PartitionedGraph& graph) {
  if (plan.metapath.empty()) return absl::InvalidArgumentError("the metapath has no relation");
  if (plan.length < 1 || plan.length > kMaxWalkLength) {
    return absl::InvalidArgumentError(absl::StrCat("walks of ", plan.length, " steps; 1 to ", kMaxWalkLength, " are possible"));
  }
  const size_t relations = graph.schema().relations.size();
  for (const WalkStep& step : plan.metapath) {
    if (step.relation < 0 || static_cast<size_t>(step.relation) >= relations) {
      return absl::InvalidArgumentError(absl::StrCat("the metapath's relation ", step.relation, " does not exist"));
    }
    if (step.weighted) FARHOP_RETURN_IF_ERROR(graph.checkWeight(step.relation, step.weight));
  }
  FARHOP_RETURN_IF_ERROR(checkProbabilities(plan));
  FARHOP_RETURN_IF_ERROR(checkChain(plan, graph));
  if (!plan.secondOrder()) return absl::OkStatus();
  const int relation = plan.metapath[0].relation;
  const partition::Relation& edges = graph.schema().relations[relation];
  if (plan.metapath.size() == 1 && edges.source == edges.destination) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "node2vec's p and q are defined for walks along one relation from a node type to itself, not ",
      plan.metapath.size() > 1 ? absl::StrCat("for a metapath of ", plan.metapath.size(), " relations")
                               : absl::StrCat("along ", graph.schema().relationText(relation))));
}

absl::Status prepareWalks(const WalkPlan& plan, const PartitionedGraph& graph) {
  for (const WalkStep& step : plan.metapath) {
    if (step.weighted) FARHOP_RETURN_IF_ERROR(graph.edgeWeights(step.relation, step.weight).status());
  }
  if (plan.q == 1) return absl::OkStatus();  // then nobody asks who is whose neighbour
  return graph.neighborIndex(plan.metapath[0].relation).status();
}

int walkNodeType(const WalkPlan& plan, const PartitionedGraph& graph, uint32_t steps) {
  if (steps == 0) return graph.schema().relations[plan.metapath[0].relation].destination;
  return graph.schema().relations[plan.stepOf(steps - 1).relation].source;
}

}  // namespace farhop::sampler
