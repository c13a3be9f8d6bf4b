// Layer-neighbour sampling.
#include <algorithm>
#include <limits>

#include "base/random.h"
#include "sampler/kernel_chunks.h"
#include "sampler/row_ranges.h"

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

// The `wanted` smallest of a row that has more edges than that, by offset; of equal numbers those with the smaller
// offsets. `heap`: the largest first.
template <typename Id>
void takeSmallest(const CsrView<Id>& view, const LaborDraw<Id>& labor, const RowRange& row, uint64_t wanted,
                  std::vector<std::pair<uint64_t, uint64_t>>* heap, std::vector<uint64_t>* offsets) {
  heap->clear();
  uint64_t e = row.from;
  for (; e < row.from + wanted; ++e) heap->emplace_back(numberOf(view, labor, e), e);
  std::make_heap(heap->begin(), heap->end());
  for (; e < row.to; ++e) {
    const uint64_t number = numberOf(view, labor, e);
    if (number >= heap->front().first) continue;
    std::pop_heap(heap->begin(), heap->end());
    heap->back() = {number, e};
    std::push_heap(heap->begin(), heap->end());
  }
  const size_t first = offsets->size();
  for (const auto& [number, offset] : *heap) offsets->push_back(offset);
  std::sort(offsets->begin() + static_cast<ptrdiff_t>(first), offsets->end());
}

}  // namespace

template <typename Id>
void sampleLabor(const CsrView<Id>& view, const LaborDraw<Id>& labor, std::span<const RowRange> rows, int64_t fanout,
                 bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const uint64_t wanted = fanout < 0 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(fanout);
  std::vector<uint64_t>& offsets = scratch->positions;
  for (size_t first = 0; first < rows.size(); first += kPrefetchRows) {
    offsets.clear();
    for (const RowRange& row : rows.subspan(first, std::min(kPrefetchRows, rows.size() - first))) {
      const size_t before = offsets.size();
      const uint64_t degree = row.to - row.from;
      if (degree <= wanted) {
        for (uint64_t e = row.from; e < row.to; ++e) offsets.push_back(e);
      } else if (labor.poisson) {
        const uint64_t below = static_cast<uint64_t>((static_cast<Uint128>(wanted) << 64) / degree);
        for (uint64_t e = row.from; e < row.to; ++e) {
          if (numberOf(view, labor, e) < below) offsets.push_back(e);
        }
      } else if (wanted > 0) {
        takeSmallest(view, labor, row, wanted, &scratch->numberedEdges, &offsets);
      }
      out->counts.push_back(static_cast<uint32_t>(offsets.size() - before));
    }
    appendEdges(view, offsets, wantEdgeIds, out);
  }
}

template void sampleLabor<uint32_t>(const CsrView<uint32_t>&, const LaborDraw<uint32_t>&, std::span<const RowRange>,
                                    int64_t, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleLabor<uint64_t>(const CsrView<uint64_t>&, const LaborDraw<uint64_t>&, std::span<const RowRange>,
                                    int64_t, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
