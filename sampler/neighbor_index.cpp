#include "sampler/neighbor_index.h"

#include <algorithm>

namespace farhop::sampler {

template <typename Id>
absl::StatusOr<const Id*> NeighborIndex::sortRows(const partition::RelationShard& edges, const Id* neighbors,
                                                  PodVector<Id>* own) {
  bool sorted = true;
  for (uint64_t row = 0; row < edges.rows(); ++row) {
    const uint64_t from = edges.indptr[row], to = edges.indptr[row + 1];
    if (to < from || to > edges.edges()) {
      return absl::DataLossError(absl::StrCat("the row bounds of row ", row, " are damaged; copy the store again"));
    }
    sorted = sorted && std::is_sorted(neighbors + from, neighbors + to);
  }
  if (sorted) return neighbors;
  own->append(neighbors, edges.edges());
  for (uint64_t row = 0; row < edges.rows(); ++row) {
    std::sort(own->begin() + edges.indptr[row], own->begin() + edges.indptr[row + 1]);
  }
  return static_cast<const Id*>(own->data());
}

absl::StatusOr<NeighborIndex> NeighborIndex::make(const partition::RelationShard& edges) {
  NeighborIndex index;
  index.indptr_ = edges.indptr.data();
  if (!edges.neighbors64.empty()) {
    FARHOP_ASSIGN_OR_RETURN(index.sorted64_, sortRows(edges, edges.neighbors64.data(), &index.own64_));
  } else {
    FARHOP_ASSIGN_OR_RETURN(index.sorted32_, sortRows(edges, edges.neighbors32.data(), &index.own32_));
  }
  return index;
}

bool NeighborIndex::contains(uint32_t row, uint64_t gid) const {
  const uint64_t from = indptr_[row], to = indptr_[row + 1];
  if (sorted64_ != nullptr) return std::binary_search(sorted64_ + from, sorted64_ + to, gid);
  return gid <= UINT32_MAX && std::binary_search(sorted32_ + from, sorted32_ + to, static_cast<uint32_t>(gid));
}

}  // namespace farhop::sampler
