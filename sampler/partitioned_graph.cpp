#include "sampler/partitioned_graph.h"

#include <limits>

#include "base/random.h"
#include "partition/layout.h"

namespace farhop::sampler {

absl::StatusOr<std::shared_ptr<const PartitionedGraph>> PartitionedGraph::open(
    std::shared_ptr<const partition::GraphStore> store, int machine, int machines) {
  auto graph = std::make_shared<PartitionedGraph>();
  FARHOP_ASSIGN_OR_RETURN(graph->owners_, store->assign(machines));
  graph->machine_ = machine;
  graph->machines_ = machines;
  const partition::Schema& schema = store->schema();
  for (int k = 0; k < store->numPartitions(); ++k) {
    for (size_t type = 0; type < schema.nodeTypes.size(); ++type) {
      if (store->book().count(static_cast<int>(type), k) > std::numeric_limits<uint32_t>::max()) {
        return absl::InvalidArgumentError(absl::StrCat(store->directory(), ": partition ", k, " has more than 2^32 nodes of type '",
                                                       schema.nodeTypes[type].name, "'; partition into more parts"));
      }
    }
    graph->shards_.emplace_back();
    if (graph->owners_[k] != machine) continue;
    FARHOP_ASSIGN_OR_RETURN(partition::GraphShard shard, store->openPartition(k));
    graph->shards_.back() = std::move(shard);
  }
  if (store->manifest().cache) graph->featureCache_ = FeatureCache(schema, store->book(), graph->shards_);
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    const uint64_t sources = schema.nodeTypes[schema.relations[r].source].count;
    graph->narrow_.push_back(sources < (uint64_t{1} << 32));
    graph->relationHashes_.push_back(hashName(schema.relationText(static_cast<int>(r))));
  }
  for (const partition::NodeType& type : schema.nodeTypes) graph->typeHashes_.push_back(hashName(type.name));
  graph->store_ = std::move(store);
  return std::shared_ptr<const PartitionedGraph>(std::move(graph));
}

std::vector<int> PartitionedGraph::ownPartitions() const {
  std::vector<int> own;
  for (size_t k = 0; k < owners_.size(); ++k) {
    if (owners_[k] == machine_) own.push_back(static_cast<int>(k));
  }
  return own;
}

template <typename Id>
CsrView<Id> PartitionedGraph::view(int partition, int relation) const {
  const partition::RelationShard& edges = shards_[partition]->relation(relation);
  CsrView<Id> view;
  view.indptr = edges.indptr.data();
  if constexpr (sizeof(Id) == 4) {
    view.neighbors = edges.neighbors32.data();
  } else {
    view.neighbors = edges.neighbors64.data();
  }
  view.edgeIds = edges.edgeIds.data();
  view.originalIds = shards_[partition]->originalIds(schema().relations[relation].destination).data();
  view.rows = edges.rows();
  return view;
}

const int64_t* PartitionedGraph::edgeTimes(int partition, int relation) const {
  return schema().hasTimes(relation) ? shards_[partition]->relation(relation).times.data() : nullptr;
}

template <typename Id>
absl::StatusOr<std::span<const Id>> PartitionedGraph::sourceIds(int relation) const {
  const size_t type = static_cast<size_t>(schema().relations[relation].source);
  partition::IdArray ids;
  {
    std::lock_guard lock(idsMutex_);
    sourceIds_.resize(schema().nodeTypes.size());
    if (sourceIds_[type]) ids = *sourceIds_[type];
  }
  if (ids.size() == 0) {
    FARHOP_ASSIGN_OR_RETURN(ids, store_->originalIdsByGid(static_cast<int>(type)));
    std::lock_guard lock(idsMutex_);
    sourceIds_[type] = ids;
  }
  if constexpr (sizeof(Id) == 4) {
    return ids.narrow;
  } else {
    return ids.wide;
  }
}

absl::Status PartitionedGraph::checkWeight(int relation, uint32_t feature) const {
  const std::vector<partition::FeatureSpec>& features = schema().relations[relation].features;
  if (feature == kStoredWeights) {
    if (schema().storesWeights(relation)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("relation ", schema().relationText(relation), " has no file of weights"));
  }
  if (feature >= features.size()) {
    return absl::InvalidArgumentError(absl::StrCat("relation ", schema().relationText(relation), " has ", features.size(),
                                                   " features, no number ", feature));
  }
  return EdgeWeights::checkFeature(features[feature]);
}

EdgeWeightsCache::Result PartitionedGraph::edgeWeights(int relation, uint32_t feature) const {
  return weights_.get({relation, feature}, [&]() -> EdgeWeightsCache::Result {
    FARHOP_RETURN_IF_ERROR(checkWeight(relation, feature));
    const bool stored = feature == kStoredWeights;
    const partition::Relation& edges = schema().relations[relation];
    const std::string& name = stored ? edges.weightFeature : edges.features[feature].name;
    auto made = std::make_shared<EdgeWeightsCache::Made>(shards_.size());
    for (int k : ownPartitions()) {
      const partition::RelationShard& shard = shards_[k]->relation(relation);
      const std::string file = absl::StrCat(store_->directory(), "/",
                                            stored ? partition::relationPath(schema(), k, relation, "weights")
                                                   : partition::edgeFeaturePath(schema(), k, relation, name));
      const partition::FeatureTable own{{name, DType::kFloat32, {}}, shard.edges(),
                                        reinterpret_cast<const std::byte*>(shard.weights.data())};
      const partition::FeatureTable* const table = stored ? &own : shards_[k]->edgeFeature(relation, name);
      if (table == nullptr) return absl::FailedPreconditionError(absl::StrCat(file, " is missing; copy it again"));
      FARHOP_ASSIGN_OR_RETURN((*made)[k], EdgeWeights::make(shard, *table, file));
    }
    return std::shared_ptr<const EdgeWeightsCache::Made>(std::move(made));
  });
}

NeighborIndexCache::Result PartitionedGraph::neighborIndex(int relation) const {
  return indexes_.get(relation, [&]() -> NeighborIndexCache::Result {
    auto made = std::make_shared<NeighborIndexCache::Made>(shards_.size());
    for (int k : ownPartitions()) {
      FARHOP_ASSIGN_OR_RETURN((*made)[k], NeighborIndex::make(shards_[k]->relation(relation)));
    }
    return std::shared_ptr<const NeighborIndexCache::Made>(std::move(made));
  });
}

template CsrView<uint32_t> PartitionedGraph::view<uint32_t>(int, int) const;
template CsrView<uint64_t> PartitionedGraph::view<uint64_t>(int, int) const;
template absl::StatusOr<std::span<const uint32_t>> PartitionedGraph::sourceIds<uint32_t>(int) const;
template absl::StatusOr<std::span<const uint64_t>> PartitionedGraph::sourceIds<uint64_t>(int) const;

}  // namespace farhop::sampler
