// What the kernels share: rows are drawn a chunk at a time, and each stage asks for the memory that the next one
// reads, so that cache misses overlap. Included by the kernels alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/random.h"
#include "sampler/kernels.h"
#include "sampler/row_ranges.h"

namespace farhop::sampler {

// Rows whose memory is asked for ahead of their use.
inline constexpr size_t kPrefetchRows = 64;
// Edges of a chunk of rows, about: what is drawn in one stage should still be in the first cache in the next.
inline constexpr size_t kChunkEdges = 1024;

[[gnu::always_inline]] inline void prefetchRows(const uint64_t* indptr, const uint64_t* originalIds, std::span<const uint32_t> rows) {
  for (uint32_t row : rows) {
    __builtin_prefetch(indptr + row);
    __builtin_prefetch(originalIds + row);
  }
}

// Rows as a kernel reads them, by their place in the request: first the whole rows of plain draws, read from the CSR as
// they are needed, then rows that something limits, worked out before. Row i's draw is keyed by key(i) and takes edges
// of from(i) .. to(i); its tables span from(i) .. end(i).
template <typename Id>
class WholeRows {
 public:
  WholeRows(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey)
      : view_(view), rows_(rows), hopKey_(hopKey) {}
  size_t size() const { return rows_.size(); }
  // Asks for what from(), to() and key() of rows first .. first + count read; they may lie beyond the last.
  // Inlined by force: GCC takes a function that only prefetches for one without effect, and leaves its calls out.
  [[gnu::always_inline]] inline void prefetch(size_t first, size_t count) const {
    for (size_t i = first; i < std::min(first + count, rows_.size()); ++i) {
      __builtin_prefetch(view_.indptr + rows_[i]);
      __builtin_prefetch(view_.originalIds + rows_[i]);
    }
  }
  uint64_t from(size_t i) const { return view_.indptr[rows_[i]]; }
  uint64_t to(size_t i) const { return view_.indptr[rows_[i] + 1]; }
  uint64_t end(size_t i) const { return to(i); }
  uint64_t key(size_t i) const { return nodeKey(hopKey_, view_.originalIds[rows_[i]]); }

 private:
  const CsrView<Id>& view_;
  std::span<const uint32_t> rows_;
  uint64_t hopKey_;
};

class LimitedRows {
 public:
  explicit LimitedRows(std::span<const RowRange> ranges) : ranges_(ranges) {}
  size_t size() const { return ranges_.size(); }
  void prefetch(size_t, size_t) const {}
  uint64_t from(size_t i) const { return ranges_[i].from; }
  uint64_t to(size_t i) const { return ranges_[i].to; }
  uint64_t end(size_t i) const { return ranges_[i].end; }
  uint64_t key(size_t i) const { return ranges_[i].key; }

 private:
  std::span<const RowRange> ranges_;
};

// rows[first ..], at most `size` of them; empty beyond the end.
inline std::span<const uint32_t> chunkOf(std::span<const uint32_t> rows, size_t first, size_t size) {
  first = std::min(first, rows.size());
  return rows.subspan(first, std::min(size, rows.size() - first));
}

// Rows of a chunk when each draws about `edgesPerRow`.
inline size_t chunkRows(uint64_t edgesPerRow) {
  return static_cast<size_t>(std::clamp<uint64_t>(kChunkEdges / std::max<uint64_t>(edgesPerRow, 1), 1, kPrefetchRows));
}

// The two parts of one random number: a slot of `degree`, and a fraction to compare with its threshold.
inline SlotDraw drawSlot(KeyedRandom* random, uint64_t from, uint64_t degree) {
  const Uint128 product = static_cast<Uint128>(random->next()) * degree;
  return {from + static_cast<uint64_t>(product >> 64), static_cast<uint32_t>(static_cast<uint64_t>(product) >> 32)};
}

// Where the drawn edge lies; kNoEdge when all weights of the row are zero.
inline constexpr uint64_t kNoEdge = std::numeric_limits<uint64_t>::max();
inline uint64_t resolve(const AliasSlot* slots, SlotDraw draw, uint64_t from) {
  const AliasSlot slot = slots[draw.offset];
  if (draw.fraction < slot.threshold) return draw.offset;
  return slot.alias == kNoAlias ? kNoEdge : from + slot.alias;
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
