// Layer-neighbour sampling.
#include <algorithm>
#include <cmath>

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

// How far ahead of its number an edge's source is asked for: the original ids of sources lie anywhere.
constexpr uint64_t kSourcesAhead = 16;

// Asks for what numberOf() of edges first .. last of a row reads; the neighbours themselves lie side by side.
template <typename Id, typename OffsetOf>
[[gnu::always_inline]] inline void prefetchSources(const CsrView<Id>& view, const LaborDraw<Id>& labor, uint64_t first,
                                                   uint64_t last, const OffsetOf& offsetOf) {
  for (uint64_t i = first; i < last; ++i) {
    const Id gid = view.neighbors[offsetOf(i)];
    if (gid < labor.sources) __builtin_prefetch(labor.sourceIds + gid);
  }
}

// Calls visit(i, number) for the row's edges first .. last, in order.
template <typename Id, typename OffsetOf, typename Visit>
[[gnu::always_inline]] inline void numberEdges(const CsrView<Id>& view, const LaborDraw<Id>& labor, uint64_t first,
                                               uint64_t last, const OffsetOf& offsetOf, const Visit& visit) {
  prefetchSources(view, labor, first, std::min(first + kSourcesAhead, last), offsetOf);
  for (uint64_t i = first; i < last; ++i) {
    if (last - i > kSourcesAhead) prefetchSources(view, labor, i + kSourcesAhead, i + kSourcesAhead + 1, offsetOf);
    visit(i, numberOf(view, labor, offsetOf(i)));
  }
}

// The edges' offsets, in row order.
inline void appendOffsets(const std::vector<std::pair<uint64_t, uint64_t>>& edges, std::vector<uint64_t>* offsets) {
  const size_t first = offsets->size();
  for (const auto& [number, offset] : edges) offsets->push_back(offset);
  std::sort(offsets->begin() + static_cast<ptrdiff_t>(first), offsets->end());
}

// The `wanted` smallest of a row of more edges, whose edge number i lies at offsetOf(i); by offset. Of equal numbers
// those with the smaller offsets. `heap`: the largest first.
template <typename Id, typename OffsetOf>
void takeSmallest(const CsrView<Id>& view, const LaborDraw<Id>& labor, uint64_t degree, uint64_t wanted,
                  const OffsetOf& offsetOf, std::vector<std::pair<uint64_t, uint64_t>>* heap,
                  std::vector<uint64_t>* offsets) {
  heap->clear();
  // What is below this are hardly ever fewer than wanted: six standard deviations more are expected. So most edges cost one
  // comparison whose outcome is foreseen; where they are fewer, the pass over the row is made again.
  const uint64_t expected = wanted + 6 * static_cast<uint64_t>(std::sqrt(static_cast<double>(wanted))) + 6;
  if (expected < degree / 2) {
    const uint64_t below = static_cast<uint64_t>((static_cast<Uint128>(expected) << 64) / degree);
    numberEdges(view, labor, 0, degree, offsetOf, [&](uint64_t i, uint64_t number) {
      if (number < below) heap->emplace_back(number, offsetOf(i));
    });
    if (heap->size() >= wanted) {
      std::nth_element(heap->begin(), heap->begin() + static_cast<ptrdiff_t>(wanted), heap->end());
      heap->resize(wanted);
      appendOffsets(*heap, offsets);
      return;
    }
    heap->clear();
  }
  numberEdges(view, labor, 0, degree, offsetOf, [&](uint64_t i, uint64_t number) {
    if (i < wanted) {
      heap->emplace_back(number, offsetOf(i));
      if (i + 1 == wanted) std::make_heap(heap->begin(), heap->end());
      return;
    }
    if (number >= heap->front().first) return;
    std::pop_heap(heap->begin(), heap->end());
    heap->back() = {number, offsetOf(i)};
    std::push_heap(heap->begin(), heap->end());
  });
  appendOffsets(*heap, offsets);
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
    numberEdges(view, labor, 0, degree, offsetOf, [&](uint64_t i, uint64_t number) {
      if (number < below) offsets->push_back(offsetOf(i));
    });
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
    const std::span<const RowRange> chunk = rows.subspan(first, std::min(kPrefetchRows, rows.size() - first));
    // Two stages, so that the misses of short rows overlap too: where rows begin, then their first sources.
    for (const RowRange& row : chunk) __builtin_prefetch(view.neighbors + row.from);
    for (const RowRange& row : chunk) {
      if (fanout < 0 || row.to - row.from <= static_cast<uint64_t>(fanout)) continue;  // all are taken, unread
      prefetchSources(view, labor, row.from, std::min(row.from + kSourcesAhead, row.to), [](uint64_t i) { return i; });
    }
    for (const RowRange& row : chunk) {
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
