#include "sampler/neighbor_draw.h"

namespace farhop::sampler {

absl::Status checkDraw(const RelationDraw& draw, const PartitionedGraph& graph) {
  if (draw.relation >= graph.schema().relations.size()) {
    return absl::InvalidArgumentError(absl::StrCat("relation ", draw.relation, " does not exist"));
  }
  if (draw.fanout < -1) return absl::InvalidArgumentError(absl::StrCat("fanout ", draw.fanout));
  if (draw.kind > static_cast<uint32_t>(DrawKind::kWeightedWithReplacement)) {
    return absl::InvalidArgumentError(absl::StrCat("kind of draw ", draw.kind));
  }
  if (drawsWithReplacement(static_cast<DrawKind>(draw.kind)) && draw.fanout > kMaxFanoutWithReplacement) {
    return absl::InvalidArgumentError(absl::StrCat("fanout ", draw.fanout, " with replacement; at most ",
                                                   kMaxFanoutWithReplacement));
  }
  if (!drawsByWeight(static_cast<DrawKind>(draw.kind))) return absl::OkStatus();
  return graph.checkWeight(static_cast<int>(draw.relation), draw.weight);
}

absl::StatusOr<uint32_t> weightIndex(const PartitionedGraph& graph, int relation, const std::string& feature) {
  const partition::Relation& edges = graph.schema().relations[relation];
  if (edges.weightFeature == feature && graph.schema().storesWeights(relation)) return kStoredWeights;
  std::string known = edges.reverseOf >= 0 ? edges.weightFeature : "";
  for (uint32_t f = 0; f < edges.features.size(); ++f) {
    if (edges.features[f].name == feature) {
      FARHOP_RETURN_IF_ERROR(annotate(graph.checkWeight(relation, f), graph.schema().relationText(relation)));
      return f;
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", edges.features[f].name);
  }
  const char* const hint = edges.reverseOf >= 0
                               ? " (a reverse relation has the weights that `farhop partition --weights` declares)"
                               : "";
  return absl::NotFoundError(absl::StrCat("relation ", graph.schema().relationText(relation), " has no edge feature '",
                                          feature, "' to weigh by", hint, "; it has: ", known.empty() ? "none" : known));
}

template <typename Id>
absl::Status drawNeighbors(const PartitionedGraph& graph, int partition, const RelationDraw& draw,
                           const DrawRows& drawRows, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const std::span<const uint32_t> rows = drawRows.rows;
  CsrView<Id> view = graph.view<Id>(partition, static_cast<int>(draw.relation));
  view.positionsAsIds = drawRows.positionsAsIds;
  switch (static_cast<DrawKind>(draw.kind)) {
    case DrawKind::kUniform:
      sampleUniform(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      return absl::OkStatus();
    case DrawKind::kUniformWithReplacement:
      sampleUniformWithReplacement(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      return absl::OkStatus();
    case DrawKind::kWeighted:
    case DrawKind::kWeightedWithReplacement: {
      FARHOP_ASSIGN_OR_RETURN(const auto weights, graph.edgeWeights(static_cast<int>(draw.relation), draw.weight));
      const WeightView own = (*weights)[partition]->view();
      if (static_cast<DrawKind>(draw.kind) == DrawKind::kWeighted) {
        sampleWeighted(view, own, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      } else {
        sampleWeightedWithReplacement(view, own, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      }
      return absl::OkStatus();
    }
  }
  return absl::InternalError(absl::StrCat("kind of draw ", draw.kind));
}

template absl::Status drawNeighbors<uint32_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template absl::Status drawNeighbors<uint64_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
