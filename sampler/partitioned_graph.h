// The graph as one process of a job sees it: which machine owns which partition, and the own ones mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "partition/graph_store.h"
#include "sampler/edge_weights.h"
#include "sampler/feature_cache.h"
#include "sampler/job_features.h"
#include "sampler/kernels.h"
#include "sampler/neighbor_index.h"

namespace farhop::sampler {

// In the place of a feature's index: the weights that the store keeps apart from features (Schema::storesWeights()).
inline constexpr uint32_t kStoredWeights = 0xFFFFFFFF;

// Immutable once opened; shared by samplers, services and loaders of a process. Thread-safe.
class PartitionedGraph {
 public:
  // Maps the partitions that `machine` of `machines` owns.
  static absl::StatusOr<std::shared_ptr<const PartitionedGraph>> open(
      std::shared_ptr<const partition::GraphStore> store, int machine, int machines);

  const partition::GraphStore& store() const { return *store_; }
  const partition::Schema& schema() const { return store_->schema(); }
  const partition::PartitionBook& book() const { return store_->book(); }
  int machine() const { return machine_; }
  int machines() const { return machines_; }

  int owner(int partition) const { return owners_[partition]; }
  bool isOwn(int partition) const { return owners_[partition] == machine_; }
  // The mapped partition; null unless this machine owns it.
  const partition::GraphShard* shard(int partition) const {
    return shards_[partition] ? &*shards_[partition] : nullptr;
  }
  std::vector<int> ownPartitions() const;
  // Copies that the own partitions keep of other machines' rows; empty where the store has none.
  const FeatureCache& featureCache() const { return featureCache_; }

  // True where the relation's source gids are 32-bit on disk and on the wire.
  bool narrowIds(int relation) const { return narrow_[relation]; }
  template <typename Id>
  CsrView<Id> view(int partition, int relation) const;

  // [edges] from when on each edge of an own partition is visible; null where the relation has no times.
  const int64_t* edgeTimes(int partition, int relation) const;
  // Original ids of the relation's sources by gid, those of other machines too, as wide as the gids.
  template <typename Id>
  absl::StatusOr<std::span<const Id>> sourceIds(int relation) const;

  // OK when the relation can be drawn by feature `feature` (its index in the schema): one number per edge. Or by
  // kStoredWeights, where it has them: reverse relations with declared weights, and forward ones that are not float32.
  absl::Status checkWeight(int relation, uint32_t feature) const;
  // Checked weights and tables of the own partitions by a feature that checkWeight() accepts. Made at the first call
  // and kept; until then they cost nothing. InvalidArgument naming file and row for a weight that is none.
  EdgeWeightsCache::Result edgeWeights(int relation, uint32_t feature) const;
  // Who is whose neighbour in the own partitions of a relation, by gid. Made at the first call and kept.
  NeighborIndexCache::Result neighborIndex(int relation) const;

  // What the job adds to the store's node features; the rest of the graph stays as it was opened.
  JobFeatures& jobFeatures() const { return *jobFeatures_; }

  // Key parts of names: hash of "source:name:destination", hash of the type's name.
  uint64_t relationHash(int relation) const { return relationHashes_[relation]; }
  uint64_t nodeTypeHash(int type) const { return typeHashes_[type]; }

 private:
  std::shared_ptr<const partition::GraphStore> store_;
  int machine_ = 0;
  int machines_ = 1;
  std::vector<int> owners_;
  std::vector<std::optional<partition::GraphShard>> shards_;
  FeatureCache featureCache_;  // borrows shards_
  std::vector<bool> narrow_;
  std::vector<uint64_t> relationHashes_;
  std::vector<uint64_t> typeHashes_;
  EdgeWeightsCache weights_;
  NeighborIndexCache indexes_;
  mutable std::mutex idsMutex_;
  mutable std::vector<std::optional<partition::IdArray>> sourceIds_;  // [node type] guarded by idsMutex_
  std::unique_ptr<JobFeatures> jobFeatures_ = std::make_unique<JobFeatures>();
};

}  // namespace farhop::sampler
