// The edges of CSR rows whose sources belong to a set of nodes.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/pod_vector.h"
#include "base/random.h"
#include "sampler/kernels.h"

namespace farhop::sampler {

// Which position a gid has in a list. Immutable; thread-safe.
class NodePositions {
 public:
  static constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();

  // Of a gid that is listed twice, one of its positions. Fewer than 2^31 gids.
  explicit NodePositions(std::span<const uint64_t> gids);

  uint32_t find(uint64_t gid) const {
    const uint64_t hash = mix64(gid);
    // Most edges of a graph lead out of the set: eight bits per node, which stay in the cache, say so for seven of
    // eight of them.
    if ((filter_[(hash >> 32) & filterMask_] >> (hash >> 58) & 1) == 0) return kAbsent;
    for (size_t index = hash & mask_;; index = (index + 1) & mask_) {
      if (slots_[index].position == kAbsent || slots_[index].gid == gid) return slots_[index].position;
    }
  }

 private:
  struct Slot {
    uint64_t gid = 0;
    uint32_t position = kAbsent;
  };
  std::vector<Slot> slots_;  // at most half full
  std::vector<uint64_t> filter_;
  size_t mask_ = 0, filterMask_ = 0;
};

// Edges between nodes of a set, rows in the order asked for.
struct InducedEdges {
  PodVector<uint32_t> counts;   // [rows]
  PodVector<uint32_t> sources;  // [sum of counts] positions of the sources in the set, in row order
  PodVector<uint64_t> edgeIds;  // as long as sources when asked for, else empty
};

// For each of `rows` appends its edges from nodes of `set`. Parallel edges and self loops are edges like others. A pass
// over each row. Rows must be below view.rows.
template <typename Id>
void induceRows(const CsrView<Id>& view, std::span<const uint32_t> rows, const NodePositions& set, bool wantEdgeIds,
                InducedEdges* out);

extern template void induceRows<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, const NodePositions&, bool,
                                          InducedEdges*);
extern template void induceRows<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, const NodePositions&, bool,
                                          InducedEdges*);

}  // namespace farhop::sampler
