#include "sampler/subgraph_kernel.h"

#include <algorithm>
#include <bit>

#include "sampler/kernel_chunks.h"

namespace farhop::sampler {

NodePositions::NodePositions(std::span<const uint64_t> gids) {
  slots_.resize(std::bit_ceil(std::max<size_t>(2 * gids.size(), 16)));
  mask_ = slots_.size() - 1;
  filter_.resize(std::bit_ceil(std::max<size_t>(gids.size() / 8, 1)));
  filterMask_ = filter_.size() - 1;
  for (uint32_t i = 0; i < gids.size(); ++i) {
    const uint64_t hash = mix64(gids[i]);
    filter_[(hash >> 32) & filterMask_] |= uint64_t{1} << (hash >> 58);
    size_t index = hash & mask_;
    while (slots_[index].position != kAbsent && slots_[index].gid != gids[i]) index = (index + 1) & mask_;
    slots_[index] = {gids[i], i};
  }
}

template <typename Id>
void induceRows(const CsrView<Id>& view, std::span<const uint32_t> rows, const NodePositions& set, bool wantEdgeIds,
                InducedEdges* out) {
  out->counts.reserve(out->counts.size() + rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kPrefetchRows < rows.size()) __builtin_prefetch(view.indptr + rows[i + kPrefetchRows]);
    if (i + 8 < rows.size()) __builtin_prefetch(view.neighbors + view.indptr[rows[i + 8]]);
    const size_t before = out->sources.size();
    for (uint64_t e = view.indptr[rows[i]], end = view.indptr[rows[i] + 1]; e < end; ++e) {
      const uint32_t position = set.find(view.neighbors[e]);
      if (position == NodePositions::kAbsent) continue;
      out->sources.push_back(position);
      if (wantEdgeIds) out->edgeIds.push_back(view.edgeIds[e]);
    }
    out->counts.push_back(static_cast<uint32_t>(out->sources.size() - before));
  }
}

template void induceRows<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, const NodePositions&, bool,
                                   InducedEdges*);
template void induceRows<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, const NodePositions&, bool,
                                   InducedEdges*);

}  // namespace farhop::sampler
