#include "sampler/row_ranges.h"

#include <algorithm>

#include "base/random.h"
#include "sampler/kernel_chunks.h"

namespace farhop::sampler {
namespace {

// A binary search under way in one row: of its edges before `from` + `skipped` all are visible, from
// `skipped` + `left` on none.
struct Search {
  uint64_t at = 0;    // offset of the first edge not known to be visible
  uint64_t left = 0;  // edges not known to be either
  int64_t time = 0;
  uint32_t range = 0;
};

// Ends when every row's visible edges are known. One step of each search per round: while its edge's time is on the way
// from memory, the others take theirs.
void findVisible(Search* searches, size_t count, const int64_t* edgeTimes, RowRange* ranges) {
  while (count > 0) {
    size_t open = 0;
    for (size_t i = 0; i < count; ++i) {
      Search search = searches[i];
      const uint64_t half = search.left / 2;
      const bool visible = edgeTimes[search.at + half] <= search.time;
      search.at = visible ? search.at + half + 1 : search.at;
      search.left = visible ? search.left - half - 1 : half;
      __builtin_prefetch(edgeTimes + search.at + search.left / 2);
      ranges[search.range].to = search.at;
      searches[open] = search;
      open += search.left > 0 ? 1 : 0;
    }
    count = open;
  }
}

}  // namespace

template <typename Id>
void limitRows(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey, const RowLimits& limits,
               RowRange* ranges) {
  const bool timed = limits.edgeTimes != nullptr && !limits.times.empty();
  Search searches[kPrefetchRows];
  prefetchRows(view.indptr, view.originalIds, chunkOf(rows, 0, kPrefetchRows));
  for (size_t first = 0; first < rows.size(); first += kPrefetchRows) {
    prefetchRows(view.indptr, view.originalIds, chunkOf(rows, first + kPrefetchRows, kPrefetchRows));
    size_t open = 0;
    for (size_t i = first; i < std::min(first + kPrefetchRows, rows.size()); ++i) {
      const uint32_t row = rows[i];
      const uint64_t from = view.indptr[row], end = view.indptr[row + 1];
      const uint32_t occurrence = limits.occurrences.empty() ? 0 : limits.occurrences[i];
      ranges[i] = {from, end, end, nodeKey(hopKey, view.originalIds[row], occurrence)};
      if (!timed || from == end) continue;
      searches[open++] = {from, end - from, limits.times[i], static_cast<uint32_t>(i)};
      __builtin_prefetch(limits.edgeTimes + from + (end - from) / 2);
    }
    if (timed) findVisible(searches, open, limits.edgeTimes, ranges);
  }
}

template <typename Id>
void sampleLast(const CsrView<Id>& view, std::span<const RowRange> rows, int64_t fanout, bool wantEdgeIds,
                DrawnNeighbors<Id>* out) {
  const auto countOf = [&](const RowRange& row) {
    return fanout < 0 ? row.to - row.from : std::min<uint64_t>(row.to - row.from, static_cast<uint64_t>(fanout));
  };
  uint32_t* const counts = out->counts.reserveMore(rows.size());
  for (size_t first = 0; first < rows.size(); first += kPrefetchRows) {
    const std::span<const RowRange> chunk = rows.subspan(first, std::min(kPrefetchRows, rows.size() - first));
    uint64_t edges = 0;
    for (size_t i = 0; i < chunk.size(); ++i) {
      const uint64_t count = countOf(chunk[i]);
      counts[first + i] = static_cast<uint32_t>(count);
      edges += count;
      if (count > 0) {
        __builtin_prefetch(view.neighbors + chunk[i].to - count);
        __builtin_prefetch(view.neighbors + chunk[i].to - 1);
      }
    }
    Id* neighbors = out->neighbors.reserveMore(edges);
    for (const RowRange& row : chunk) {
      neighbors = std::copy(view.neighbors + row.to - countOf(row), view.neighbors + row.to, neighbors);
    }
    out->neighbors.addSize(edges);
    if (!wantEdgeIds) continue;
    uint64_t* ids = out->edgeIds.reserveMore(edges);
    for (const RowRange& row : chunk) {
      for (uint64_t e = row.to - countOf(row); e < row.to; ++e) *ids++ = view.edgeIdAt(e);
    }
    out->edgeIds.addSize(edges);
  }
  out->counts.addSize(rows.size());
}

template void limitRows<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, uint64_t, const RowLimits&,
                                  RowRange*);
template void limitRows<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, uint64_t, const RowLimits&,
                                  RowRange*);
template void sampleLast<uint32_t>(const CsrView<uint32_t>&, std::span<const RowRange>, int64_t, bool,
                                   DrawnNeighbors<uint32_t>*);
template void sampleLast<uint64_t>(const CsrView<uint64_t>&, std::span<const RowRange>, int64_t, bool,
                                   DrawnNeighbors<uint64_t>*);

}  // namespace farhop::sampler
