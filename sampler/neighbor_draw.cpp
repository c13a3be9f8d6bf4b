#include "sampler/neighbor_draw.h"

#include <algorithm>

#include "base/random.h"
#include "sampler/row_holes.h"

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

namespace {

// Rows of which nothing is excluded.
template <typename Id>
void drawWhole(const CsrView<Id>& view, const WeightView& weights, const RelationDraw& draw, std::span<const uint32_t> rows,
               bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (rows.empty()) return;
  switch (static_cast<DrawKind>(draw.kind)) {
    case DrawKind::kUniform:
      return sampleUniform(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kUniformWithReplacement:
      return sampleUniformWithReplacement(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeighted:
      return sampleWeighted(view, weights, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeightedWithReplacement:
      return sampleWeightedWithReplacement(view, weights, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
  }
}

// A row of which `excluded` may not be drawn.
template <typename Id>
void drawHoled(const CsrView<Id>& view, const WeightView& weights, const RelationDraw& draw, HoledRow row,
               std::span<const ExcludedEdge> excluded, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  scratch->sources.clear();
  for (const ExcludedEdge& edge : excluded) scratch->sources.push_back(edge.source);
  const uint64_t to = view.indptr[row.row + 1];
  row.from = view.indptr[row.row];
  findHoles(view, row.from, to, scratch->sources, &scratch->holes, scratch);
  row.holes = scratch->holes;
  row.degree = to - row.from - row.holes.size();
  switch (static_cast<DrawKind>(draw.kind)) {
    case DrawKind::kUniform:
      return sampleUniform(view, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kUniformWithReplacement:
      return sampleUniformWithReplacement(view, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeighted:
      return sampleWeighted(view, weights, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeightedWithReplacement:
      return sampleWeightedWithReplacement(view, weights, row, draw.fanout, wantEdgeIds, out, scratch);
  }
}

}  // namespace

template <typename Id>
absl::Status drawNeighbors(const PartitionedGraph& graph, int partition, const RelationDraw& draw,
                           const DrawRows& drawRows, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  CsrView<Id> view = graph.view<Id>(partition, static_cast<int>(draw.relation));
  view.positionsAsIds = drawRows.positionsAsIds;
  EdgeWeightsCache::Result weights = nullptr;
  WeightView own;
  if (drawsByWeight(static_cast<DrawKind>(draw.kind))) {
    weights = graph.edgeWeights(static_cast<int>(draw.relation), draw.weight);
    FARHOP_RETURN_IF_ERROR(weights.status());
    own = (**weights)[partition]->view();
  }
  // Stretches of rows of which nothing is excluded, with a row of which something is between them.
  size_t done = 0;
  std::span<const ExcludedEdge> excluded = drawRows.excluded;
  while (!excluded.empty()) {
    const uint32_t number = excluded.front().row;
    const size_t at = number - drawRows.firstRow;
    size_t edges = 1;
    while (edges < excluded.size() && excluded[edges].row == number) ++edges;
    drawWhole(view, own, draw, drawRows.rows.subspan(done, at - done), wantEdgeIds, out, scratch);
    HoledRow row;
    row.row = drawRows.rows[at];
    row.key = nodeKey(draw.hopKey, view.originalIds[row.row], drawRows.occurrences.empty() ? 0 : drawRows.occurrences[at]);
    drawHoled(view, own, draw, row, excluded.first(edges), wantEdgeIds, out, scratch);
    excluded = excluded.subspan(edges);
    done = at + 1;
  }
  drawWhole(view, own, draw, drawRows.rows.subspan(done), wantEdgeIds, out, scratch);
  return absl::OkStatus();
}

template absl::Status drawNeighbors<uint32_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template absl::Status drawNeighbors<uint64_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
