// Uniform without replacement.
#include "sampler/kernels.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/random.h"
#include "sampler/kernel_chunks.h"

namespace farhop::sampler {
namespace {

// Up to this many positions a scan of those drawn beats a hash table.
constexpr int64_t kLinearScanFanout = 48;

}  // namespace

void PositionSet::reset(size_t count) {
  const size_t size = std::bit_ceil(std::max<size_t>(2 * count, 16));
  slots_.assign(size, 0);
  mask_ = size - 1;
}

bool PositionSet::insert(uint64_t position) {
  for (size_t slot = mix64(position) & mask_;; slot = (slot + 1) & mask_) {
    if (slots_[slot] == 0) {
      slots_[slot] = position + 1;
      return true;
    }
    if (slots_[slot] == position + 1) return false;
  }
}

bool PositionSet::contains(uint64_t position) const {
  size_t slot = mix64(position) & mask_;
  while (slots_[slot] != 0 && slots_[slot] != position + 1) slot = (slot + 1) & mask_;
  return slots_[slot] != 0;
}

void drawPositions(uint64_t key, uint64_t degree, int64_t fanout, std::vector<uint64_t>* positions,
                   PositionSet* scratch) {
  const size_t first = positions->size();
  if (fanout < 0 || degree <= static_cast<uint64_t>(fanout)) {
    positions->resize(first + degree);
    for (uint64_t i = 0; i < degree; ++i) (*positions)[first + i] = i;
    return;
  }
  const uint64_t wanted = static_cast<uint64_t>(fanout);
  positions->resize(first + wanted);
  uint64_t* const drawn = positions->data() + first;
  KeyedRandom random(key);
  if (fanout <= kLinearScanFanout) {
    for (uint64_t i = 0; i < wanted; ++i) {
      const uint64_t last = degree - wanted + i;
      const uint64_t candidate = random.below(last + 1);
      drawn[i] = std::find(drawn, drawn + i, candidate) == drawn + i ? candidate : last;
    }
    return;
  }
  scratch->reset(wanted);
  for (uint64_t i = 0; i < wanted; ++i) {
    const uint64_t last = degree - wanted + i;
    const uint64_t candidate = random.below(last + 1);
    if (scratch->insert(candidate)) {
      drawn[i] = candidate;
    } else {
      drawn[i] = last;
      scratch->insert(last);
    }
  }
}

namespace {

// Floyd's draw of `wanted` of `degree` > wanted positions, as offsets into the edge arrays. The positions drawn
// so far are compared with all at once: a fixed number of lanes, so that the compiler makes vector compares of
// them; lanes not drawn yet hold what no position is.
template <int kLanes>
void drawFew(uint64_t key, uint64_t from, uint32_t degree, uint32_t wanted, uint64_t* offsets) {
  alignas(64) uint32_t drawn[kLanes];
  std::fill_n(drawn, kLanes, std::numeric_limits<uint32_t>::max());
  KeyedRandom random(key);
  for (uint32_t i = 0; i < wanted; ++i) {
    const uint32_t last = degree - wanted + i;
    const uint32_t candidate = static_cast<uint32_t>(random.below(uint64_t{last} + 1));
    uint32_t hits = 0;
    for (int lane = 0; lane < kLanes; ++lane) hits |= static_cast<uint32_t>(drawn[lane] == candidate);
    drawn[i] = hits != 0 ? last : candidate;
    offsets[i] = from + drawn[i];
  }
}

// Small fanouts: draws the edge offsets of a chunk of rows, asks for their memory, then reads them. The next
// chunk's row bounds are on their way meanwhile.
template <int kLanes, typename Id, typename Rows>
void sampleFew(const CsrView<Id>& view, const Rows& rows, uint32_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out) {
  uint64_t offsets[kPrefetchRows * kLanes];
  uint32_t* counts = out->counts.reserveMore(rows.size());
  Id* neighbors = out->neighbors.reserveMore(rows.size() * fanout);
  uint64_t* edgeIds = wantEdgeIds ? out->edgeIds.reserveMore(rows.size() * fanout) : nullptr;
  size_t drawn = 0;
  rows.prefetch(0, kPrefetchRows);
  for (size_t first = 0; first < rows.size(); first += kPrefetchRows) {
    rows.prefetch(first + kPrefetchRows, kPrefetchRows);
    size_t edges = 0;
    for (size_t row = first; row < std::min(first + kPrefetchRows, rows.size()); ++row) {
      const uint64_t from = rows.from(row), degree = rows.to(row) - from;
      const uint32_t count = static_cast<uint32_t>(std::min<uint64_t>(degree, fanout));
      if (degree <= fanout) {
        for (uint32_t i = 0; i < count; ++i) offsets[edges + i] = from + i;
      } else if (degree < std::numeric_limits<uint32_t>::max()) {
        drawFew<kLanes>(rows.key(row), from, static_cast<uint32_t>(degree), fanout, offsets + edges);
      } else {
        std::vector<uint64_t> positions;
        PositionSet unused;
        drawPositions(rows.key(row), degree, fanout, &positions, &unused);
        for (uint32_t i = 0; i < count; ++i) offsets[edges + i] = from + positions[i];
      }
      for (uint32_t i = 0; i < count; ++i) __builtin_prefetch(view.neighbors + offsets[edges + i]);
      *counts++ = count;
      edges += count;
    }
    for (size_t i = 0; i < edges; ++i) neighbors[drawn + i] = view.neighbors[offsets[i]];
    if (wantEdgeIds) {
      for (size_t i = 0; i < edges; ++i) edgeIds[drawn + i] = view.edgeIdAt(offsets[i]);
    }
    drawn += edges;
  }
  out->counts.addSize(rows.size());
  out->neighbors.addSize(drawn);
  if (wantEdgeIds) out->edgeIds.addSize(drawn);
}

// Any fanout.
template <typename Id, typename Rows>
void sampleMany(const CsrView<Id>& view, const Rows& rows, int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out,
                PositionSet* scratch) {
  std::vector<uint64_t>& positions = scratch->positions;
  for (size_t first = 0; first < rows.size(); first += kPrefetchRows) {
    rows.prefetch(first, kPrefetchRows);
    for (size_t row = first; row < std::min(first + kPrefetchRows, rows.size()); ++row) {
      const uint64_t from = rows.from(row), degree = rows.to(row) - from;
      positions.clear();
      drawPositions(rows.key(row), degree, fanout, &positions, scratch);
      const size_t count = positions.size();
      out->counts.push_back(static_cast<uint32_t>(count));
      Id* neighbors = out->neighbors.reserveMore(count);
      for (size_t i = 0; i < count; ++i) neighbors[i] = view.neighbors[from + positions[i]];
      out->neighbors.addSize(count);
      if (!wantEdgeIds) continue;
      uint64_t* edgeIds = out->edgeIds.reserveMore(count);
      for (size_t i = 0; i < count; ++i) edgeIds[i] = view.edgeIdAt(from + positions[i]);
      out->edgeIds.addSize(count);
    }
  }
}

template <typename Id, typename Rows>
void sampleDistinct(const CsrView<Id>& view, const Rows& rows, int64_t fanout, bool wantEdgeIds,
                    DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const uint32_t few = static_cast<uint32_t>(fanout);
  if (fanout > 0 && fanout <= 8) return sampleFew<8>(view, rows, few, wantEdgeIds, out);
  if (fanout > 0 && fanout <= 16) return sampleFew<16>(view, rows, few, wantEdgeIds, out);
  if (fanout > 0 && fanout <= 32) return sampleFew<32>(view, rows, few, wantEdgeIds, out);
  sampleMany(view, rows, fanout, wantEdgeIds, out, scratch);
}

}  // namespace

template <typename Id>
void sampleUniform(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey, int64_t fanout,
                   bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  sampleDistinct(view, WholeRows<Id>(view, rows, hopKey), fanout, wantEdgeIds, out, scratch);
}

template <typename Id>
void sampleUniform(const CsrView<Id>& view, std::span<const RowRange> rows, int64_t fanout, bool wantEdgeIds,
                   DrawnNeighbors<Id>* out, PositionSet* scratch) {
  sampleDistinct(view, LimitedRows(rows), fanout, wantEdgeIds, out, scratch);
}

template void sampleUniform<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, uint64_t, int64_t, bool,
                                      DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleUniform<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, uint64_t, int64_t, bool,
                                      DrawnNeighbors<uint64_t>*, PositionSet*);
template void sampleUniform<uint32_t>(const CsrView<uint32_t>&, std::span<const RowRange>, int64_t, bool,
                                      DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleUniform<uint64_t>(const CsrView<uint64_t>&, std::span<const RowRange>, int64_t, bool,
                                      DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
