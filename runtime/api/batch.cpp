#include "farhop/batch.h"

#include "runtime/api/batch_core.h"
#include "runtime/api/status_error.h"

namespace farhop {
namespace {

using sampler::SampledBatch;

// A tensor over memory of the batch, which it keeps alive.
template <typename T>
torch::Tensor borrow(std::shared_ptr<const SampledBatch> batch, const T* data, int64_t count, torch::ScalarType dtype) {
  return torch::from_blob(const_cast<T*>(data), {count}, [batch = std::move(batch)](void*) {},
                          torch::TensorOptions().dtype(dtype));
}

}  // namespace

std::shared_ptr<FeatureState> BatchCore::featureState(int nodeType, const std::string& name, bool ofSeeds) {
  std::lock_guard lock(mutex);
  std::shared_ptr<FeatureState>& state = features[{nodeType, name, ofSeeds}];
  if (state) return state;
  const uint32_t feature = api::valueOrThrow(sampler::featureIndex(*graph->graph, nodeType, name));
  const partition::FeatureSpec spec = sampler::featureSpec(*graph->graph, nodeType, feature);
  auto made = std::make_shared<FeatureState>();
  made->core = graph;
  made->batch = sampled;
  made->name = name;
  made->nodeType = nodeType;
  made->feature = feature;
  made->ofSeeds = ofSeeds;
  made->cache = cache;
  made->timeout = pullTimeout;
  made->describe(spec, ofSeeds ? sampled->seeds.size() : sampled->nodes[static_cast<size_t>(nodeType)].size());
  state = std::move(made);
  return state;
}

int64_t Batch::epoch() const { return static_cast<int64_t>(core_->sampled->epoch); }
int64_t Batch::step() const { return static_cast<int64_t>(core_->sampled->step); }
int64_t Batch::number() const { return static_cast<int64_t>(core_->sampled->number); }
int64_t Batch::numSeeds() const { return static_cast<int64_t>(core_->sampled->seeds.size()); }

torch::Tensor Batch::seedIndex() const {
  // As int64, since index_select over seeds is its use; a few kB.
  return borrow(core_->sampled, core_->sampled->seedIndex.data(), numSeeds(), torch::kInt32).to(torch::kInt64);
}

torch::Tensor Batch::tree(const std::string& nodeType) const {
  const size_t type = static_cast<size_t>(core_->graph->nodeType(nodeType));
  // Walks and importance neighbours are drawn without such options.
  if (core_->sampling == nullptr || !core_->sampling->disjoint) {
    throw Error(ErrorCode::kFailedPrecondition,
                "tree: seeds are not disjoint; set NeighborLoaderOptions::disjoint or temporal");
  }
  return borrow(core_->sampled, core_->sampled->trees[type].data(), numNodes(nodeType), torch::kInt32).to(torch::kInt64);
}

torch::Tensor Batch::seedTimes() const {
  if (core_->sampling == nullptr || !core_->sampling->temporal) {
    throw Error(ErrorCode::kFailedPrecondition, "seedTimes: seeds have no times; set NeighborLoaderOptions::temporal");
  }
  // One per tree: of seed edges fewer than their ends.
  const std::vector<int64_t>& times = core_->sampled->treeTimes;
  return borrow(core_->sampled, times.data(), static_cast<int64_t>(times.size()), torch::kInt64);
}

int64_t Batch::numNodes(const std::string& nodeType) const {
  return static_cast<int64_t>(core_->sampled->nodes[core_->graph->nodeType(nodeType)].size());
}
int64_t Batch::numEdges() const { return static_cast<int64_t>(core_->sampled->traffic.sampledEdges); }
int64_t Batch::numRemoteEdges() const { return static_cast<int64_t>(core_->sampled->traffic.remoteEdges); }
int Batch::numBlocks() const { return static_cast<int>(core_->hops); }

Block Batch::block(int layer) const {
  if (layer < 0 || layer >= numBlocks()) {
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat("block ", layer, " does not exist: the batch has ", numBlocks(), " blocks"));
  }
  return Block(core_, layer);
}

namespace {

void refuseWithoutWalks(const BatchCore& batch) {
  if (batch.walkLength > 0) return;
  throw Error(ErrorCode::kFailedPrecondition, "the batch has no walks; they come from a RandomWalkLoader");
}

}  // namespace

torch::Tensor Batch::walks() const {
  refuseWithoutWalks(*core_);
  const PodVector<int64_t>& walks = core_->sampled->walks;
  return borrow(core_->sampled, walks.data(), static_cast<int64_t>(walks.size()), torch::kInt64).view({-1, core_->walkLength + 1});
}

torch::Tensor Batch::restarted() const {
  refuseWithoutWalks(*core_);
  const PodVector<uint8_t>& restarted = core_->sampled->restarted;
  return borrow(core_->sampled, restarted.data(), static_cast<int64_t>(restarted.size()), torch::kBool).view({-1, core_->walkLength});
}

FeatureHandle Batch::feature(const std::string& name, const std::string& nodeType) const {
  return FeatureHandle(FeatureClaim::of(core_->featureState(core_->graph->nodeType(nodeType), name, false)));
}

FeatureHandle Batch::seedFeature(const std::string& name) const {
  return FeatureHandle(FeatureClaim::of(core_->featureState(core_->sampled->seedType, name, true)));
}

int64_t Block::numSrc(const std::string& nodeType) const {
  return batch_->sampled->nodesByHop[batch_->graph->nodeType(nodeType)][batch_->hops - static_cast<size_t>(layer_)];
}

int64_t Block::numDst(const std::string& nodeType) const {
  return batch_->sampled->nodesByHop[batch_->graph->nodeType(nodeType)][batch_->hops - static_cast<size_t>(layer_) - 1];
}

namespace {

// A block's edges of one relation: a prefix of the batch's CSR, or all of its hop's own.
struct RelationPrefix {
  const sampler::SampledRelation* edges;
  int64_t rows;
  int64_t count;
};

RelationPrefix prefixOf(const BatchCore& batch, int layer, const std::string& name) {
  if (batch.importance) {
    if (!name.empty()) {
      throw Error(ErrorCode::kInvalidArgument, absl::StrCat("importance neighbours are of no relation of the graph; leave out '",
                                                            name, "'"));
    }
    const sampler::SampledRelation& edges = batch.sampled->relations[0];
    const int64_t rows = batch.sampled->nodesByHop[batch.sampled->seedType][batch.hops - static_cast<size_t>(layer) - 1];
    return {&edges, rows, edges.indptr[static_cast<size_t>(rows)]};
  }
  const int relation = batch.graph->relation(name);
  const int destination = batch.graph->graph->schema().relations[relation].destination;
  const size_t hop = batch.hops - static_cast<size_t>(layer) - 1;
  const size_t relations = batch.graph->graph->schema().relations.size();
  const sampler::SampledRelation& edges =
      batch.sampled->relations[(batch.expandsAll ? hop * relations : 0) + static_cast<size_t>(relation)];
  const int64_t rows = batch.sampled->nodesByHop[destination][hop];
  return {&edges, rows, edges.indptr[static_cast<size_t>(rows)]};
}

}  // namespace

int64_t Block::numEdges(const std::string& relation) const { return prefixOf(*batch_, layer_, relation).count; }

torch::Tensor Block::indptr(const std::string& relation) const {
  const RelationPrefix prefix = prefixOf(*batch_, layer_, relation);
  return borrow(batch_->sampled, prefix.edges->indptr.data(), prefix.rows + 1, torch::kInt32);
}

torch::Tensor Block::indices(const std::string& relation) const {
  const RelationPrefix prefix = prefixOf(*batch_, layer_, relation);
  return borrow(batch_->sampled, prefix.edges->indices.data(), prefix.count, torch::kInt32);
}

torch::Tensor Block::edgeIndex(const std::string& relation) const {
  const RelationPrefix prefix = prefixOf(*batch_, layer_, relation);
  torch::Tensor edges = torch::empty({2, prefix.count}, torch::kInt64);
  int64_t* sources = edges.data_ptr<int64_t>();
  int64_t* destinations = sources + prefix.count;
  for (int64_t row = 0; row < prefix.rows; ++row) {
    const uint32_t end = prefix.edges->indptr[static_cast<size_t>(row) + 1];
    for (uint32_t edge = prefix.edges->indptr[static_cast<size_t>(row)]; edge < end; ++edge) {
      sources[edge] = prefix.edges->indices[edge];
      destinations[edge] = row;
    }
  }
  return edges;
}

torch::Tensor Block::visits() const {
  if (!batch_->importance) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the loader draws no importance neighbours; set NeighborLoaderOptions::importance");
  }
  const RelationPrefix prefix = prefixOf(*batch_, layer_, "");
  return borrow(batch_->sampled, prefix.edges->visits.data(), prefix.count, torch::kInt32);
}

torch::Tensor Block::edgeIds(const std::string& relation) const {
  if (!batch_->hasEdgeIds) {
    throw Error(ErrorCode::kFailedPrecondition, "the loader carries no edge ids; set NeighborLoaderOptions::edgeIds");
  }
  const RelationPrefix prefix = prefixOf(*batch_, layer_, relation);
  return borrow(batch_->sampled, prefix.edges->edgeIds.data(), prefix.count, torch::kInt64);
}

}  // namespace farhop
