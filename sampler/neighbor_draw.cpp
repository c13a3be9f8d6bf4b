#include "sampler/neighbor_draw.h"

#include <algorithm>

#include "sampler/row_ranges.h"

namespace farhop::sampler {

absl::Status checkDraw(const RelationDraw& draw, const PartitionedGraph& graph) {
  if (draw.relation >= graph.schema().relations.size()) {
    return absl::InvalidArgumentError(absl::StrCat("relation ", draw.relation, " does not exist"));
  }
  if (draw.fanout < -1) return absl::InvalidArgumentError(absl::StrCat("fanout ", draw.fanout));
  if (draw.kind > static_cast<uint32_t>(kLastDrawKind)) {
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

// Rows whose ranges are worked out before they are drawn from, so that these stay in the cache.
constexpr size_t kRangesAtOnce = 1024;

// What a draw reads besides the CSR, by its kind.
template <typename Id>
struct DrawArrays {
  WeightView weights;
  LaborDraw<Id> labor;
  RowLimits limits;
};

template <typename Id>
absl::StatusOr<DrawArrays<Id>> arraysOf(const PartitionedGraph& graph, int partition, const RelationDraw& draw,
                                        const DrawRows& rows) {
  const DrawKind kind = static_cast<DrawKind>(draw.kind);
  const int relation = static_cast<int>(draw.relation);
  DrawArrays<Id> arrays;
  arrays.limits = {rows.occurrences, rows.times, graph.edgeTimes(partition, relation)};
  if (drawsByWeight(kind)) {
    FARHOP_ASSIGN_OR_RETURN(const auto weights, graph.edgeWeights(relation, draw.weight));
    arrays.weights = (*weights)[partition]->view();  // kept by the graph
  }
  if (drawsBySource(kind)) {
    FARHOP_ASSIGN_OR_RETURN(const std::span<const Id> ids, graph.sourceIds<Id>(relation));
    arrays.labor = {draw.hopKey, ids.data(), ids.size(), kind == DrawKind::kLaborPoisson};
  }
  return arrays;
}

template <typename Id>
void drawFromRanges(const CsrView<Id>& view, const RelationDraw& draw, const DrawArrays<Id>& arrays,
                    std::span<const RowRange> ranges, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  switch (static_cast<DrawKind>(draw.kind)) {
    case DrawKind::kUniform: return sampleUniform(view, ranges, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kUniformWithReplacement:
      return sampleUniformWithReplacement(view, ranges, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeighted:
      return sampleWeighted(view, arrays.weights, ranges, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeightedWithReplacement:
      return sampleWeightedWithReplacement(view, arrays.weights, ranges, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kMostRecent: return sampleLast(view, ranges, draw.fanout, wantEdgeIds, out);
    case DrawKind::kLabor:
    case DrawKind::kLaborPoisson:
      return sampleLabor(view, arrays.labor, ranges, draw.fanout, wantEdgeIds, out, scratch);
  }
}

}  // namespace

template <typename Id>
absl::Status drawNeighbors(const PartitionedGraph& graph, int partition, const RelationDraw& draw,
                           const DrawRows& drawRows, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const std::span<const uint32_t> rows = drawRows.rows;
  CsrView<Id> view = graph.view<Id>(partition, static_cast<int>(draw.relation));
  view.positionsAsIds = drawRows.positionsAsIds;
  FARHOP_ASSIGN_OR_RETURN(const DrawArrays<Id> arrays, arraysOf<Id>(graph, partition, draw, drawRows));
  // Plain draws need no ranges.
  if (drawRows.occurrences.empty() && drawRows.times.empty()) {
    switch (static_cast<DrawKind>(draw.kind)) {
      case DrawKind::kUniform:
        sampleUniform(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
        return absl::OkStatus();
      case DrawKind::kUniformWithReplacement:
        sampleUniformWithReplacement(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
        return absl::OkStatus();
      case DrawKind::kWeighted:
        sampleWeighted(view, arrays.weights, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
        return absl::OkStatus();
      case DrawKind::kWeightedWithReplacement:
        sampleWeightedWithReplacement(view, arrays.weights, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
        return absl::OkStatus();
      default: break;
    }
  }
  std::vector<RowRange>& ranges = scratch->ranges;
  ranges.resize(std::min(rows.size(), kRangesAtOnce));
  for (size_t first = 0; first < rows.size(); first += kRangesAtOnce) {
    const size_t count = std::min(kRangesAtOnce, rows.size() - first);
    RowLimits limits = arrays.limits;
    if (!limits.occurrences.empty()) limits.occurrences = limits.occurrences.subspan(first, count);
    if (!limits.times.empty()) limits.times = limits.times.subspan(first, count);
    limitRows(view, rows.subspan(first, count), draw.hopKey, limits, ranges.data());
    drawFromRanges(view, draw, arrays, std::span<const RowRange>(ranges).first(count), wantEdgeIds, out, scratch);
  }
  return absl::OkStatus();
}

template absl::Status drawNeighbors<uint32_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template absl::Status drawNeighbors<uint64_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
