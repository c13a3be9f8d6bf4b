// One relation's draw from one own partition, whatever its kind: the same code for the own frontier and for what
// other machines ask.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "base/status.h"
#include "sampler/kernels.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

// How neighbours are drawn. Values are on the wire. docs/sampling.md defines each.
enum class DrawKind : uint32_t {
  kUniform = 0,
  kUniformWithReplacement = 1,
  kWeighted = 2,
  kWeightedWithReplacement = 3,
  kMostRecent = 4,
  kLabor = 5,         // layer-neighbour sampling, as many of each row as the fanout says
  kLaborPoisson = 6,  // on average as many
};
inline constexpr DrawKind kLastDrawKind = DrawKind::kLaborPoisson;

constexpr bool drawsWithReplacement(DrawKind kind) {
  return kind == DrawKind::kUniformWithReplacement || kind == DrawKind::kWeightedWithReplacement;
}
constexpr bool drawsByWeight(DrawKind kind) {
  return kind == DrawKind::kWeighted || kind == DrawKind::kWeightedWithReplacement;
}

// Whose random numbers belong to sources, the same ones for all rows that share them.
constexpr bool drawsBySource(DrawKind kind) { return kind == DrawKind::kLabor || kind == DrawKind::kLaborPoisson; }

// With replacement a row's draw is not bounded by its degree, so something else must bound what a request costs.
inline constexpr int64_t kMaxFanoutWithReplacement = 65'536;
// Blocks are indexed by int32.
inline constexpr uint64_t kMaxEdges = std::numeric_limits<int32_t>::max();

// What one relation draws in one hop, as it travels.
struct RelationDraw {
  uint32_t relation = 0;
  int32_t fanout = 0;  // -1: all
  uint64_t hopKey = 0;
  uint32_t kind = 0;    // DrawKind
  uint32_t weight = 0;  // of kinds that draw by one: index of the relation's feature, or kStoredWeights; else 0
};

// An in-edge that a row must not draw: all edges from `source`, parallel ones too.
struct ExcludedEdge {
  uint32_t draw = 0;    // index of the relation's draw in its request
  uint32_t row = 0;     // index of the row among those of its request
  uint64_t source = 0;  // gid
};

// Rows of one own partition that draw, and what limits each. The columns are as long as `rows`, or empty.
struct DrawRows {
  std::span<const uint32_t> rows;         // local indices
  std::span<const uint32_t> occurrences;  // part of each row's key; empty: 0
  std::span<const int64_t> times;         // a row draws nothing later than this; empty: no limit
  // In order of `row`, which counts from `firstRow`: rows[0] is row firstRow.
  std::span<const ExcludedEdge> excluded;
  uint32_t firstRow = 0;
  bool positionsAsIds = false;  // edge ids come out as positions in the relation's CSR
};

// InvalidArgument unless the graph can be drawn from like this: relation, fanout, kind, weight.
absl::Status checkDraw(const RelationDraw& draw, const PartitionedGraph& graph);

// The index of a relation's feature by which it can be drawn, or kStoredWeights. NotFound or InvalidArgument say what the store has.
absl::StatusOr<uint32_t> weightIndex(const PartitionedGraph& graph, int relation, const std::string& feature);

// Appends the draw of `rows` of an own partition to `out`. The draw must have passed checkDraw(); fails
// when the partition's weights are none.
template <typename Id>
absl::Status drawNeighbors(const PartitionedGraph& graph, int partition, const RelationDraw& draw,
                           const DrawRows& rows, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);

extern template absl::Status drawNeighbors<uint32_t>(const PartitionedGraph&, int, const RelationDraw&,
                                                     const DrawRows&, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
extern template absl::Status drawNeighbors<uint64_t>(const PartitionedGraph&, int, const RelationDraw&,
                                                     const DrawRows&, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
