// Rows of a CSR without some of their edges: which edges those are, and draws from what is left, as if the row did not
// have them. Plain arrays in, plain arrays out, as all kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sampler/kernels.h"
#include "sampler/row_ranges.h"

namespace farhop::sampler {

// One row that draws.
struct HoledRow {
  uint32_t row = 0;
  uint64_t key = 0;                 // of the row's draw
  uint64_t from = 0;                // offset of its first edge
  uint64_t degree = 0;              // edges that are left: positions [0, degree)
  std::span<const uint64_t> holes;  // offsets of the others, ascending
  uint64_t hidden = 0;              // edges behind all of these that the row does not see (row_ranges.h)

  uint64_t to() const { return from + degree + holes.size(); }
  // Of the whole row, as its alias table counts them.
  uint64_t edges() const { return degree + holes.size() + hidden; }

  // Where the edge at `position` of those left lies.
  uint64_t offsetOf(uint64_t position) const {
    // holes[i] - i edges of the row, counted from its start, are left before hole i.
    size_t low = 0, high = holes.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (holes[middle] - from - middle <= position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return from + position + low;
  }
  // Hidden edges too.
  bool isHole(uint64_t offset) const {
    return offset >= to() || std::binary_search(holes.begin(), holes.end(), offset);
  }
};

// Replaces `holes` by the offsets in [from, to) whose neighbour is one of `sources` (any order, repeats allowed),
// ascending. Reads every neighbour of the range once, several at a time; a row's order is by original id or time, and
// says nothing about gids.
template <typename Id>
void findHoles(const CsrView<Id>& view, uint64_t from, uint64_t to, std::span<const uint64_t> sources,
               std::vector<uint64_t>* holes, PositionSet* scratch);

// The draws of kernels.h and row_ranges.h from one holed row, appended to `out`. Uniform draws have the bits of a row that never had the
// edges; weighted ones its distribution, since they use the table of the whole row (docs/sampling.md).
template <typename Id>
void sampleUniform(const CsrView<Id>& view, const HoledRow& row, int64_t fanout, bool wantEdgeIds,
                   DrawnNeighbors<Id>* out, PositionSet* scratch);
template <typename Id>
void sampleUniformWithReplacement(const CsrView<Id>& view, const HoledRow& row, int64_t fanout, bool wantEdgeIds,
                                  DrawnNeighbors<Id>* out, PositionSet* scratch);
template <typename Id>
void sampleWeightedWithReplacement(const CsrView<Id>& view, const WeightView& weights, const HoledRow& row,
                                   int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);
template <typename Id>
void sampleLast(const CsrView<Id>& view, const HoledRow& row, int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out,
                PositionSet* scratch);
template <typename Id>
void sampleLabor(const CsrView<Id>& view, const LaborDraw<Id>& labor, const HoledRow& row, int64_t fanout,
                 bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);
// Defined beside the kernel for whole rows, with which it shares all but the holes.
template <typename Id>
void sampleWeighted(const CsrView<Id>& view, const WeightView& weights, const HoledRow& row, int64_t fanout,
                    bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);

}  // namespace farhop::sampler
