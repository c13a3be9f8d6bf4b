// What the kernels share: rows are drawn a chunk at a time, and each stage asks for the memory that the next one
// reads, so that cache misses overlap. Included by the kernels alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sampler/kernels.h"

namespace farhop::sampler {

// Rows whose memory is asked for ahead of their use.
inline constexpr size_t kPrefetchRows = 64;
// Edges of a chunk of rows, about: what is drawn in one stage should still be in the first cache in the next.
inline constexpr size_t kChunkEdges = 1024;

inline void prefetchRows(const uint64_t* indptr, const uint64_t* originalIds, std::span<const uint32_t> rows) {
  for (uint32_t row : rows) {
    __builtin_prefetch(indptr + row);
    __builtin_prefetch(originalIds + row);
  }
}

// rows[first ..], at most `size` of them; empty beyond the end.
inline std::span<const uint32_t> chunkOf(std::span<const uint32_t> rows, size_t first, size_t size) {
  first = std::min(first, rows.size());
  return rows.subspan(first, std::min(size, rows.size() - first));
}

// Rows of a chunk when each draws about `edgesPerRow`.
inline size_t chunkRows(uint64_t edgesPerRow) {
  return static_cast<size_t>(std::clamp<uint64_t>(kChunkEdges / std::max<uint64_t>(edgesPerRow, 1), 1, kPrefetchRows));
}

// Appends the edges at `offsets` to `out`; their counts are the caller's.
template <typename Id>
void appendEdges(const CsrView<Id>& view, std::span<const uint64_t> offsets, bool wantEdgeIds, DrawnNeighbors<Id>* out) {
  Id* const neighbors = out->neighbors.reserveMore(offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) neighbors[i] = view.neighbors[offsets[i]];
  out->neighbors.addSize(offsets.size());
  if (!wantEdgeIds) return;
  uint64_t* const edgeIds = out->edgeIds.reserveMore(offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) edgeIds[i] = view.edgeIdAt(offsets[i]);
  out->edgeIds.addSize(offsets.size());
}

}  // namespace farhop::sampler
