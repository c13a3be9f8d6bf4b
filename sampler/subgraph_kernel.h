// The edges of CSR rows whose sources belong to a set of nodes.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/pod_vector.h"
#include "base/random.h"
#include "sampler/kernels.h"
#include "sampler/row_ranges.h"

namespace farhop::sampler {

// Which position a number has in a list: a gid, or where seeds are disjoint a treeNode(). Thread-safe once assigned.
class NodePositions {
 public:
  static constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();

  NodePositions() = default;
  explicit NodePositions(std::span<const uint64_t> numbers) { assign(numbers); }

  // Replaces the list, keeping memory. Of a number that is listed twice, one of its positions. Fewer than 2^31 numbers.
  void assign(std::span<const uint64_t> numbers);
  size_t size() const { return size_; }

  // The list must not be empty.
  uint32_t find(uint64_t number) const {
    const uint64_t hash = mix64(number);
    // Most edges of a graph lead out of the set: eight bits per node, which stay in the cache, say so for seven of
    // eight of them.
    if ((filter_[(hash >> 32) & filterMask_] >> (hash >> 58) & 1) == 0) return kAbsent;
    for (size_t index = hash & mask_;; index = (index + 1) & mask_) {
      if (slots_[index].position == kAbsent || slots_[index].number == number) return slots_[index].position;
    }
  }

 private:
  struct Slot {
    uint64_t number = 0;
    uint32_t position = kAbsent;
  };
  std::vector<Slot> slots_;  // at most half full
  std::vector<uint64_t> filter_;
  size_t mask_ = 0, filterMask_ = 0, size_ = 0;
};

// Edges between nodes of a set, rows in the order asked for.
struct InducedEdges {
  PodVector<uint32_t> counts;   // [rows]
  PodVector<uint32_t> sources;  // [sum of counts] positions of the sources in the set, in row order
  PodVector<uint64_t> edgeIds;  // as long as sources when asked for, else empty

  void clear() {
    counts.clear();
    sources.clear();
    edgeIds.clear();
  }
};

// For each of `rows` appends its edges from nodes of `set`, which is not empty. Parallel edges and self loops are edges
// like others. limits.occurrences are the rows' trees, in which their sources are looked for; with limits.times a row has
// only the edges that are visible. A pass over each row. Rows must be below view.rows.
template <typename Id>
void induceRows(const CsrView<Id>& view, std::span<const uint32_t> rows, const RowLimits& limits, const NodePositions& set,
                bool wantEdgeIds, InducedEdges* out);

extern template void induceRows<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, const RowLimits&,
                                          const NodePositions&, bool, InducedEdges*);
extern template void induceRows<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, const RowLimits&,
                                          const NodePositions&, bool, InducedEdges*);

}  // namespace farhop::sampler
