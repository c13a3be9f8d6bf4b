#include "sampler/sampled_batch.h"

#include <utility>

namespace farhop::sampler {

void SampledBatch::reset(size_t nodeTypes, size_t relationCount) {
  seeds.clear();
  seedIndex.clear();
  otherSeeds.clear();
  otherIndex.clear();
  link.edges = link.negatives = 0;
  link.positions.clear();
  link.unresolved.clear();
  for (std::vector<ExcludedEdge>& edges : excluded) edges.clear();
  nodes.resize(nodeTypes);
  trees.resize(nodeTypes);
  treeTimes.clear();
  nodesByHop.resize(nodeTypes);
  relations.resize(relationCount);
  for (auto& list : nodes) list.clear();
  for (auto& list : trees) list.clear();
  for (auto& list : nodesByHop) list.clear();
  for (SampledRelation& relation : relations) {
    relation.indptr.clear();
    relation.indices.clear();
    relation.edgeIds.clear();
    relation.visits.clear();
  }
  walks.clear();
  restarted.clear();
  traffic = {};
}

std::unique_ptr<SampledBatch> BatchPool::take() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<SampledBatch> batch = std::move(idle_.back());
      idle_.pop_back();
      return batch;
    }
  }
  return std::make_unique<SampledBatch>();
}

void BatchPool::giveBack(std::unique_ptr<SampledBatch> batch) {
  std::lock_guard lock(mutex_);
  if (idle_.size() < maxIdle_) idle_.push_back(std::move(batch));
}

std::shared_ptr<const SampledBatch> BatchPool::share(std::shared_ptr<BatchPool> pool,
                                                     std::unique_ptr<SampledBatch> batch) {
  return std::shared_ptr<const SampledBatch>(batch.release(), [pool = std::move(pool)](const SampledBatch* over) {
    pool->giveBack(std::unique_ptr<SampledBatch>(const_cast<SampledBatch*>(over)));
  });
}

}  // namespace farhop::sampler
