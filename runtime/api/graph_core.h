// What Graph, NeighborLoader, Batch and FeatureHandle share: the opened graph of one runtime.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/npy.h"
#include "runtime/session.h"
#include "sampler/edge_puller.h"
#include "sampler/feature_puller.h"
#include "sampler/partitioned_graph.h"
#include "sampler/sampler_metrics.h"

namespace farhop {

// Held by every handle, so that one that outlives its runtime finds a closed session, not freed memory.
struct GraphCore {
  std::shared_ptr<runtime::Session> session;
  std::shared_ptr<const std::atomic<bool>> left;  // the runtime has left the job; session is closed
  std::shared_ptr<const sampler::PartitionedGraph> graph;
  std::shared_ptr<sampler::SamplerMetrics> metrics;
  std::chrono::milliseconds collectiveTimeout{0};
  std::unique_ptr<sampler::FeaturePuller> puller;
  std::unique_ptr<sampler::EdgePuller> edgePuller;

  // What to report for `status`: the job's first failure where there is one, since it explains an error better
  // than its consequence at this call. A lost peer that this call is the first to see becomes that failure.
  absl::Status explained(const absl::Status& status) const;

  // Empty names the only one there is; otherwise InvalidArgument or NotFound, listing what exists.
  int nodeType(const std::string& name) const;  // throws Error
  int relation(const std::string& name) const;  // throws Error
};

// The stored dtype for libtorch's; none for those that are not stored.
std::optional<DType> storedType(torch::ScalarType type);
// libtorch's type for a stored dtype; throws Error for those that it lacks (uint16, uint32).
torch::ScalarType torchType(DType dtype);

}  // namespace farhop
