// Whether a node is a neighbour of another, by gid. A row of the store is in order of original ids, which a process does
// not know of other machines' nodes; so each row is kept in order of gids beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/pod_vector.h"
#include "base/status.h"
#include "partition/graph_store.h"
#include "sampler/made_once.h"

namespace farhop::sampler {

// One partition's rows of one relation. Owns 4 bytes per edge (8 where gids take 64 bits), nothing where the rows are in
// order of gids as they are; borrows the shard's mapping.
class NeighborIndex {
 public:
  // DataLoss when the row bounds are damaged.
  static absl::StatusOr<NeighborIndex> make(const partition::RelationShard& edges);

  // True when a node with this gid is a source of an in-edge of `row`, which must be below the number of rows.
  // Logarithmic in the degree.
  bool contains(uint32_t row, uint64_t gid) const;

 private:
  template <typename Id>
  static absl::StatusOr<const Id*> sortRows(const partition::RelationShard& edges, const Id* neighbors,
                                            PodVector<Id>* own);

  const uint64_t* indptr_ = nullptr;
  const uint32_t* sorted32_ = nullptr;  // of the mapping, or of own32_; the one of the two that is not null
  const uint64_t* sorted64_ = nullptr;
  PodVector<uint32_t> own32_;
  PodVector<uint64_t> own64_;
};

// By relation; [partition], empty for those of others.
using NeighborIndexCache = MadeOnce<int, std::vector<std::optional<NeighborIndex>>>;

}  // namespace farhop::sampler
