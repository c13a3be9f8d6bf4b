// Uniform with replacement.
#include "base/random.h"
#include "sampler/kernel_chunks.h"
#include "sampler/kernels.h"

namespace farhop::sampler {

namespace {

template <typename Id, typename Rows>
void sampleRepeatedly(const CsrView<Id>& view, const Rows& rows, uint64_t wanted, bool wantEdgeIds,
                      DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const size_t size = chunkRows(wanted);
  std::vector<uint64_t>& offsets = scratch->positions;
  offsets.resize(size * wanted);
  uint32_t* counts = out->counts.reserveMore(rows.size());
  rows.prefetch(0, size);
  for (size_t first = 0; first < rows.size(); first += size) {
    rows.prefetch(first + size, size);
    uint64_t* next = offsets.data();
    for (size_t row = first; row < std::min(first + size, rows.size()); ++row) {
      const uint64_t from = rows.from(row), degree = rows.to(row) - from;
      *counts++ = degree == 0 ? 0 : static_cast<uint32_t>(wanted);
      if (degree == 0) continue;
      KeyedRandom random(rows.key(row));
      for (uint64_t i = 0; i < wanted; ++i) {
        *next = from + random.below(degree);
        __builtin_prefetch(view.neighbors + *next++);
      }
    }
    appendEdges(view, {offsets.data(), next}, wantEdgeIds, out);
  }
  out->counts.addSize(rows.size());
}

}  // namespace

template <typename Id>
void sampleUniformWithReplacement(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey,
                                  int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (fanout <= 0) return sampleUniform(view, rows, hopKey, fanout, wantEdgeIds, out, scratch);
  sampleRepeatedly(view, WholeRows<Id>(view, rows, hopKey), static_cast<uint64_t>(fanout), wantEdgeIds, out, scratch);
}

template <typename Id>
void sampleUniformWithReplacement(const CsrView<Id>& view, std::span<const RowRange> rows, int64_t fanout,
                                  bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (fanout <= 0) return sampleUniform(view, rows, fanout, wantEdgeIds, out, scratch);
  sampleRepeatedly(view, LimitedRows(rows), static_cast<uint64_t>(fanout), wantEdgeIds, out, scratch);
}

template void sampleUniformWithReplacement<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, uint64_t,
                                                     int64_t, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleUniformWithReplacement<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, uint64_t,
                                                     int64_t, bool, DrawnNeighbors<uint64_t>*, PositionSet*);
template void sampleUniformWithReplacement<uint32_t>(const CsrView<uint32_t>&, std::span<const RowRange>, int64_t, bool,
                                                     DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleUniformWithReplacement<uint64_t>(const CsrView<uint64_t>&, std::span<const RowRange>, int64_t, bool,
                                                     DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
