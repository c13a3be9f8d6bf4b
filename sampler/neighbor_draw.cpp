#include "sampler/neighbor_draw.h"

#include <algorithm>

#include "base/random.h"
#include "sampler/row_holes.h"
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

// Rows of which nothing is excluded.
template <typename Id>
void drawRows(const CsrView<Id>& view, const RelationDraw& draw, const DrawArrays<Id>& arrays, std::span<const uint32_t> rows,
              const RowLimits& limits, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (rows.empty()) return;
  // Plain draws need no ranges.
  if (limits.occurrences.empty() && limits.times.empty()) {
    switch (static_cast<DrawKind>(draw.kind)) {
      case DrawKind::kUniform:
        return sampleUniform(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      case DrawKind::kUniformWithReplacement:
        return sampleUniformWithReplacement(view, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      case DrawKind::kWeighted:
        return sampleWeighted(view, arrays.weights, rows, draw.hopKey, draw.fanout, wantEdgeIds, out, scratch);
      case DrawKind::kWeightedWithReplacement:
        return sampleWeightedWithReplacement(view, arrays.weights, rows, draw.hopKey, draw.fanout, wantEdgeIds, out,
                                             scratch);
      default: break;
    }
  }
  std::vector<RowRange>& ranges = scratch->ranges;
  ranges.resize(std::max(ranges.size(), std::min(rows.size(), kRangesAtOnce)));
  for (size_t first = 0; first < rows.size(); first += kRangesAtOnce) {
    const size_t count = std::min(kRangesAtOnce, rows.size() - first);
    limitRows(view, rows.subspan(first, count), draw.hopKey, limits.part(first, count), ranges.data());
    drawFromRanges(view, draw, arrays, std::span<const RowRange>(ranges).first(count), wantEdgeIds, out, scratch);
  }
}

// A row of which `excluded` may not be drawn.
template <typename Id>
void drawHoled(const CsrView<Id>& view, const RelationDraw& draw, const DrawArrays<Id>& arrays, const RowRange& range,
               std::span<const ExcludedEdge> excluded, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  scratch->sources.clear();
  for (const ExcludedEdge& edge : excluded) scratch->sources.push_back(edge.source);
  findHoles(view, range.from, range.to, scratch->sources, &scratch->holes, scratch);
  HoledRow row;
  row.key = range.key;
  row.from = range.from;
  row.holes = scratch->holes;
  row.degree = range.to - range.from - row.holes.size();
  row.hidden = range.end - range.to;
  switch (static_cast<DrawKind>(draw.kind)) {
    case DrawKind::kUniform: return sampleUniform(view, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kUniformWithReplacement:
      return sampleUniformWithReplacement(view, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeighted: return sampleWeighted(view, arrays.weights, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kWeightedWithReplacement:
      return sampleWeightedWithReplacement(view, arrays.weights, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kMostRecent: return sampleLast(view, row, draw.fanout, wantEdgeIds, out, scratch);
    case DrawKind::kLabor:
    case DrawKind::kLaborPoisson: return sampleLabor(view, arrays.labor, row, draw.fanout, wantEdgeIds, out, scratch);
  }
}

}  // namespace

template <typename Id>
absl::Status drawNeighbors(const PartitionedGraph& graph, int partition, const RelationDraw& draw,
                           const DrawRows& rows, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  CsrView<Id> view = graph.view<Id>(partition, static_cast<int>(draw.relation));
  view.positionsAsIds = rows.positionsAsIds;
  FARHOP_ASSIGN_OR_RETURN(const DrawArrays<Id> arrays, arraysOf<Id>(graph, partition, draw, rows));
  // Stretches of rows of which nothing is excluded, with a row of which something is between them.
  const RowLimits& limits = arrays.limits;
  size_t done = 0;
  std::span<const ExcludedEdge> excluded = rows.excluded;
  while (!excluded.empty()) {
    const uint32_t number = excluded.front().row;
    const size_t at = number - rows.firstRow;
    size_t edges = 1;
    while (edges < excluded.size() && excluded[edges].row == number) ++edges;
    drawRows(view, draw, arrays, rows.rows.subspan(done, at - done), limits.part(done, at - done), wantEdgeIds, out, scratch);
    RowRange range;
    limitRows(view, rows.rows.subspan(at, 1), draw.hopKey, limits.part(at, 1), &range);
    drawHoled(view, draw, arrays, range, excluded.first(edges), wantEdgeIds, out, scratch);
    excluded = excluded.subspan(edges);
    done = at + 1;
  }
  const size_t left = rows.rows.size() - done;
  drawRows(view, draw, arrays, rows.rows.subspan(done), limits.part(done, left), wantEdgeIds, out, scratch);
  return absl::OkStatus();
}

template absl::Status drawNeighbors<uint32_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template absl::Status drawNeighbors<uint64_t>(const PartitionedGraph&, int, const RelationDraw&,
                                              const DrawRows&, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
