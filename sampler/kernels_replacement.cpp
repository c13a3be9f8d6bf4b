// Uniform with replacement.
#include "base/random.h"
#include "sampler/kernel_chunks.h"
#include "sampler/kernels.h"

namespace farhop::sampler {

template <typename Id>
void sampleUniformWithReplacement(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey,
                                  int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (fanout <= 0) return sampleUniform(view, rows, hopKey, fanout, wantEdgeIds, out, scratch);
  const uint64_t wanted = static_cast<uint64_t>(fanout);
  const size_t size = chunkRows(wanted);
  std::vector<uint64_t>& offsets = scratch->positions;
  offsets.resize(size * wanted);
  uint32_t* counts = out->counts.reserveMore(rows.size());
  prefetchRows(view.indptr, view.originalIds, chunkOf(rows, 0, size));
  for (size_t first = 0; first < rows.size(); first += size) {
    prefetchRows(view.indptr, view.originalIds, chunkOf(rows, first + size, size));
    uint64_t* next = offsets.data();
    for (uint32_t row : chunkOf(rows, first, size)) {
      const uint64_t from = view.indptr[row], degree = view.indptr[row + 1] - from;
      *counts++ = degree == 0 ? 0 : static_cast<uint32_t>(wanted);
      if (degree == 0) continue;
      KeyedRandom random(nodeKey(hopKey, view.originalIds[row]));
      for (uint64_t i = 0; i < wanted; ++i) {
        *next = from + random.below(degree);
        __builtin_prefetch(view.neighbors + *next++);
      }
    }
    appendEdges(view, {offsets.data(), next}, wantEdgeIds, out);
  }
  out->counts.addSize(rows.size());
}

template void sampleUniformWithReplacement<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, uint64_t,
                                                     int64_t, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleUniformWithReplacement<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, uint64_t,
                                                     int64_t, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
