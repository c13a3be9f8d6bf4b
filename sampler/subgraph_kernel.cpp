#include "sampler/subgraph_kernel.h"

#include <algorithm>
#include <bit>

#include "sampler/kernel_chunks.h"
#include "sampler/tree_nodes.h"

namespace farhop::sampler {
namespace {

// Appends the edges from .. to whose sources, as `numberOf` counts them, are in the set.
template <typename Id, typename NumberOf>
void induceRow(const CsrView<Id>& view, uint64_t from, uint64_t to, const NodePositions& set, bool wantEdgeIds,
               const NumberOf& numberOf, InducedEdges* out) {
  for (uint64_t e = from; e < to; ++e) {
    const uint32_t position = set.find(numberOf(view.neighbors[e]));
    if (position == NodePositions::kAbsent) continue;
    out->sources.push_back(position);
    if (wantEdgeIds) out->edgeIds.push_back(view.edgeIds[e]);
  }
}

}  // namespace

void NodePositions::assign(std::span<const uint64_t> numbers) {
  size_ = numbers.size();
  slots_.assign(std::bit_ceil(std::max<size_t>(2 * numbers.size(), 16)), Slot{});
  mask_ = slots_.size() - 1;
  filter_.assign(std::bit_ceil(std::max<size_t>(numbers.size() / 8, 1)), 0);
  filterMask_ = filter_.size() - 1;
  for (uint32_t i = 0; i < numbers.size(); ++i) {
    const uint64_t hash = mix64(numbers[i]);
    filter_[(hash >> 32) & filterMask_] |= uint64_t{1} << (hash >> 58);
    size_t index = hash & mask_;
    while (slots_[index].position != kAbsent && slots_[index].number != numbers[i]) index = (index + 1) & mask_;
    slots_[index] = {numbers[i], i};
  }
}

template <typename Id>
void induceRows(const CsrView<Id>& view, std::span<const uint32_t> rows, const RowLimits& limits, const NodePositions& set,
                bool wantEdgeIds, InducedEdges* out) {
  out->counts.reserve(out->counts.size() + rows.size());
  const bool timed = limits.edgeTimes != nullptr && !limits.times.empty();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kPrefetchRows < rows.size()) __builtin_prefetch(view.indptr + rows[i + kPrefetchRows]);
    if (i + 8 < rows.size()) __builtin_prefetch(view.neighbors + view.indptr[rows[i + 8]]);
    const size_t before = out->sources.size();
    const uint64_t from = view.indptr[rows[i]];
    uint64_t to = view.indptr[rows[i] + 1];
    if (timed) {
      to = static_cast<uint64_t>(std::upper_bound(limits.edgeTimes + from, limits.edgeTimes + to, limits.times[i]) -
                                 limits.edgeTimes);
    }
    if (limits.occurrences.empty()) {
      induceRow(view, from, to, set, wantEdgeIds, [](Id gid) { return uint64_t{gid}; }, out);
    } else {
      const uint32_t tree = limits.occurrences[i];
      induceRow(view, from, to, set, wantEdgeIds, [tree](Id gid) { return treeNode(tree, gid); }, out);
    }
    out->counts.push_back(static_cast<uint32_t>(out->sources.size() - before));
  }
}

template void induceRows<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, const RowLimits&,
                                   const NodePositions&, bool, InducedEdges*);
template void induceRows<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, const RowLimits&,
                                   const NodePositions&, bool, InducedEdges*);

}  // namespace farhop::sampler
