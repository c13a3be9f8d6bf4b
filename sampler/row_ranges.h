// Rows that something limits, as kernels draw from them: rows of trees, which draw each for itself, and rows that see
// only a part of their edges. Kernels for whole rows are in kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampler/kernels.h"

namespace farhop::sampler {

// What limits rows; a column is as long as the rows, or empty.
struct RowLimits {
  std::span<const uint32_t> occurrences;  // part of each row's key; empty: 0
  std::span<const int64_t> times;         // latest time of an edge that the row may draw; empty: none
  const int64_t* edgeTimes = nullptr;     // [edges], ascending within each row; null: all edges are visible

  // Of rows first .. first + count.
  RowLimits part(size_t first, size_t count) const {
    RowLimits some = *this;
    if (!occurrences.empty()) some.occurrences = occurrences.subspan(first, count);
    if (!times.empty()) some.times = times.subspan(first, count);
    return some;
  }
};

// The ranges of `rows`, keyed as the draws of whole rows are, into ranges[0 .. rows.size()). An edge is visible to a
// row of time T when its own time is T or earlier; these are the first of the row, and binary searches find their end,
// many rows at a time, so that their cache misses overlap.
template <typename Id>
void limitRows(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey, const RowLimits& limits,
               RowRange* ranges);

// As the kernels of the same names in kernels.h, from the edges of each range.
template <typename Id>
void sampleUniform(const CsrView<Id>& view, std::span<const RowRange> rows, int64_t fanout, bool wantEdgeIds,
                   DrawnNeighbors<Id>* out, PositionSet* scratch);
template <typename Id>
void sampleUniformWithReplacement(const CsrView<Id>& view, std::span<const RowRange> rows, int64_t fanout,
                                  bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);
template <typename Id>
void sampleWeightedWithReplacement(const CsrView<Id>& view, const WeightView& weights, std::span<const RowRange> rows,
                                   int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);
template <typename Id>
void sampleWeighted(const CsrView<Id>& view, const WeightView& weights, std::span<const RowRange> rows, int64_t fanout,
                    bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);

// The last `fanout` edges of each range, in order; all of them where it has no more, or with fanout < 0. Of rows sorted
// by time these are the most recent.
template <typename Id>
void sampleLast(const CsrView<Id>& view, std::span<const RowRange> rows, int64_t fanout, bool wantEdgeIds,
                DrawnNeighbors<Id>* out);

// Layer-neighbour sampling (LABOR): every source has one random number, the same for all rows of a draw.
template <typename Id>
struct LaborDraw {
  uint64_t key = 0;               // of the numbers
  const Id* sourceIds = nullptr;  // [gid]: original ids of the sources, which the numbers belong to
  uint64_t sources = 0;           // how many there are: a damaged store has neighbours beyond
  bool poisson = false;           // see below
};
// Without `poisson`: the `fanout` edges whose sources have the smallest numbers (of equal numbers, as parallel edges
// have them, the first), all where there are no more. With it: the edges whose sources have a number below
// fanout / (edges in the range) of all numbers: `fanout` on average. Either way each edge with probability
// min(1, fanout / edges), in order. fanout < 0 takes all.
template <typename Id>
void sampleLabor(const CsrView<Id>& view, const LaborDraw<Id>& labor, std::span<const RowRange> rows, int64_t fanout,
                 bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);

}  // namespace farhop::sampler
