#include "farhop/batch.h"
#include "runtime/api/batch_core.h"
#include "runtime/api/status_error.h"

namespace farhop {

std::shared_ptr<FeatureState> BatchCore::edgeFeatureState(const std::string& relationName, const std::string& name,
                                                          size_t firstHop, size_t endHop) {
  const int relation = graph->relation(relationName);
  if (sampling == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "the batches of this loader have no edge features: their edges are not the graph's");
  }
  if (!drawn && !hasEdgeIds) {
    throw Error(ErrorCode::kFailedPrecondition,
                "edges that are not drawn have features by their ids alone; set NeighborLoaderOptions::edgeIds");
  }
  std::lock_guard lock(mutex);
  std::shared_ptr<FeatureState>& state = edgeFeatures[{relation, name, firstHop, endHop}];
  if (state) return state;
  const uint32_t feature = api::valueOrThrow(sampler::edgeFeatureIndex(*graph->graph, relation, name));
  const partition::FeatureSpec spec = sampler::edgeFeatureSpec(*graph->graph, relation, feature);
  auto made = std::make_shared<FeatureState>();
  made->core = graph;
  made->batch = sampled;
  made->name = name;
  made->feature = feature;
  made->edges = sampler::EdgeRange{sampled, sampling, relation, firstHop, endHop, drawn};
  made->timeout = pullTimeout;
  made->describe(spec, sampler::edgeCount(*graph->graph, *made->edges));
  state = std::move(made);
  return state;
}

FeatureHandle Batch::edgeFeature(const std::string& name, const std::string& relation) const {
  return FeatureHandle(FeatureClaim::of(core_->edgeFeatureState(relation, name, 0, core_->hops)));
}

FeatureHandle Block::edgeFeature(const std::string& name, const std::string& relation) const {
  const size_t endHop = batch_->hops - static_cast<size_t>(layer_);
  return FeatureHandle(
      FeatureClaim::of(batch_->edgeFeatureState(relation, name, batch_->expandsAll ? endHop - 1 : 0, endHop)));
}

}  // namespace farhop
