#include "sampler/neighbor_draw.h"

namespace farhop::sampler {

absl::Status checkDraw(const RelationDraw& draw, const PartitionedGraph& graph) {
  if (draw.relation >= graph.schema().relations.size()) {
    return absl::InvalidArgumentError(absl::StrCat("relation ", draw.relation, " does not exist"));
  }
  if (draw.fanout < -1) return absl::InvalidArgumentError(absl::StrCat("fanout ", draw.fanout));
  if (draw.kind > static_cast<uint32_t>(DrawKind::kUniformWithReplacement)) {
    return absl::InvalidArgumentError(absl::StrCat("kind of draw ", draw.kind));
  }
  if (drawsWithReplacement(static_cast<DrawKind>(draw.kind)) && draw.fanout > kMaxFanoutWithReplacement) {
    return absl::InvalidArgumentError(absl::StrCat("fanout ", draw.fanout, " with replacement; at most ",
                                                   kMaxFanoutWithReplacement));
  }
  return absl::OkStatus();
}

template <typename Id>
absl::Status drawNeighbors(const PartitionedGraph& graph, int partition, const RelationDraw& draw,
                           std::span<const uint32_t> rows, bool wantEdgeIds, DrawnNeighbors<Id>* out,
                           PositionSet* scratch) {
  const CsrView<Id> view = graph.view<Id>(partition, static_cast<int>(draw.relation));
  switch (static_cast<DrawKind>(draw.kind)) {
    case DrawKind::kUniform:
      sampleUniform(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      return absl::OkStatus();
    case DrawKind::kUniformWithReplacement:
      sampleUniformWithReplacement(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("kind of draw ", draw.kind));
}

template absl::Status drawNeighbors<uint32_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              std::span<const uint32_t>, bool, DrawnNeighbors<uint32_t>*,
                                              PositionSet*);
template absl::Status drawNeighbors<uint64_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              std::span<const uint32_t>, bool, DrawnNeighbors<uint64_t>*,
                                              PositionSet*);

}  // namespace farhop::sampler
