#include "sampler/kernels.h"

#include <algorithm>
#include <bit>

#include "base/random.h"

namespace farhop::sampler {
namespace {

// Up to this many positions a scan of those drawn beats a hash table.
constexpr int64_t kLinearScanFanout = 48;
// Rows whose memory is asked for ahead of their use, so that cache misses overlap.
constexpr size_t kPrefetchRows = 32;

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

template <typename Id>
void sampleUniform(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey, int64_t fanout,
                   bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  out->counts.reserve(out->counts.size() + rows.size());
  std::vector<uint64_t> positions;
  positions.reserve(fanout < 0 ? 64 : static_cast<size_t>(fanout));
  for (size_t chunk = 0; chunk < rows.size(); chunk += kPrefetchRows) {
    const size_t end = std::min(rows.size(), chunk + kPrefetchRows);
    for (size_t i = chunk; i < end; ++i) {
      __builtin_prefetch(view.indptr + rows[i]);
      __builtin_prefetch(view.originalIds + rows[i]);
    }
    for (size_t i = chunk; i < end; ++i) {
      const uint64_t from = view.indptr[rows[i]];
      if (view.indptr[rows[i] + 1] > from) __builtin_prefetch(view.neighbors + from);
    }
    for (size_t i = chunk; i < end; ++i) {
      const uint64_t from = view.indptr[rows[i]], degree = view.indptr[rows[i] + 1] - from;
      positions.clear();
      drawPositions(nodeKey(hopKey, view.originalIds[rows[i]]), degree, fanout, &positions, scratch);
      out->counts.push_back(static_cast<uint32_t>(positions.size()));
      for (uint64_t position : positions) out->neighbors.push_back(view.neighbors[from + position]);
      if (wantEdgeIds) {
        for (uint64_t position : positions) out->edgeIds.push_back(view.edgeIds[from + position]);
      }
    }
  }
}

template void sampleUniform<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, uint64_t, int64_t, bool,
                                      DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleUniform<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, uint64_t, int64_t, bool,
                                      DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
