// Layer-neighbour sampling.
#include <algorithm>

#include "base/random.h"
#include "sampler/kernel_chunks.h"
#include "sampler/row_holes.h"

namespace farhop::sampler {
namespace {

// The number of the source of the edge at `offset`. Read for every edge of every row: the generator's stream at the
// place of the original id.
template <typename Id>
uint64_t numberOf(const CsrView<Id>& view, const LaborDraw<Id>& labor, uint64_t offset) {
  const Id gid = view.neighbors[offset];
  const uint64_t id = gid < labor.sources ? labor.sourceIds[gid] : 0;
  return mix64(labor.key + (id + 1) * kGoldenGamma);
}

// The `wanted` smallest of a row of more edges, whose edge number i lies at offsetOf(i); by offset. Of equal numbers
// those with the smaller offsets. `heap`: the largest first.
template <typename Id, typename OffsetOf>
void takeSmallest(const CsrView<Id>& view, const LaborDraw<Id>& labor, uint64_t degree, uint64_t wanted,
                  const OffsetOf& offsetOf, std::vector<std::pair<uint64_t, uint64_t>>* heap,
                  std::vector<uint64_t>* offsets) {
  heap->clear();
  uint64_t i = 0;
  for (; i < wanted; ++i) heap->emplace_back(numberOf(view, labor, offsetOf(i)), offsetOf(i));
  std::make_heap(heap->begin(), heap->end());
  for (; i < degree; ++i) {
    const uint64_t offset = offsetOf(i), number = numberOf(view, labor, offset);
    if (number >= heap->front().first) continue;
    std::pop_heap(heap->begin(), heap->end());
    heap->back() = {number, offset};
    std::push_heap(heap->begin(), heap->end());
  }
  const size_t first = offsets->size();
  for (const auto& [number, offset] : *heap) offsets->push_back(offset);
  std::sort(offsets->begin() + static_cast<ptrdiff_t>(first), offsets->end());
}

// Appends a row's draw to `offsets`.
template <typename Id, typename OffsetOf>
void drawRow(const CsrView<Id>& view, const LaborDraw<Id>& labor, uint64_t degree, int64_t fanout,
             const OffsetOf& offsetOf, PositionSet* scratch, std::vector<uint64_t>* offsets) {
  const uint64_t wanted = fanout < 0 ? degree : static_cast<uint64_t>(fanout);
  if (degree <= wanted) {
    for (uint64_t i = 0; i < degree; ++i) offsets->push_back(offsetOf(i));
  } else if (labor.poisson) {
    const uint64_t below = static_cast<uint64_t>((static_cast<Uint128>(wanted) << 64) / degree);
    for (uint64_t i = 0; i < degree; ++i) {
      if (numberOf(view, labor, offsetOf(i)) < below) offsets->push_back(offsetOf(i));
    }
  } else if (wanted > 0) {
    takeSmallest(view, labor, degree, wanted, offsetOf, &scratch->numberedEdges, offsets);
  }
}

}  // namespace

template <typename Id>
void sampleLabor(const CsrView<Id>& view, const LaborDraw<Id>& labor, std::span<const RowRange> rows, int64_t fanout,
                 bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  std::vector<uint64_t>& offsets = scratch->positions;
  for (size_t first = 0; first < rows.size(); first += kPrefetchRows) {
    offsets.clear();
    for (const RowRange& row : rows.subspan(first, std::min(kPrefetchRows, rows.size() - first))) {
      const size_t before = offsets.size();
      drawRow(view, labor, row.to - row.from, fanout, [&](uint64_t i) { return row.from + i; }, scratch, &offsets);
      out->counts.push_back(static_cast<uint32_t>(offsets.size() - before));
    }
    appendEdges(view, offsets, wantEdgeIds, out);
  }
}

template <typename Id>
void sampleLabor(const CsrView<Id>& view, const LaborDraw<Id>& labor, const HoledRow& row, int64_t fanout,
                 bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  std::vector<uint64_t>& offsets = scratch->positions;
  offsets.clear();
  drawRow(view, labor, row.degree, fanout, [&](uint64_t i) { return row.offsetOf(i); }, scratch, &offsets);
  out->counts.push_back(static_cast<uint32_t>(offsets.size()));
  appendEdges(view, offsets, wantEdgeIds, out);
}

template void sampleLabor<uint32_t>(const CsrView<uint32_t>&, const LaborDraw<uint32_t>&, const HoledRow&, int64_t, bool,
                                    DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleLabor<uint64_t>(const CsrView<uint64_t>&, const LaborDraw<uint64_t>&, const HoledRow&, int64_t, bool,
                                    DrawnNeighbors<uint64_t>*, PositionSet*);
template void sampleLabor<uint32_t>(const CsrView<uint32_t>&, const LaborDraw<uint32_t>&, std::span<const RowRange>,
                                    int64_t, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleLabor<uint64_t>(const CsrView<uint64_t>&, const LaborDraw<uint64_t>&, std::span<const RowRange>,
                                    int64_t, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
