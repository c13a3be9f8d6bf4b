// Shared state of Batch, Block and FeatureHandle.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/api/graph_core.h"
#include "sampler/edge_chunks.h"
#include "sampler/sampled_batch.h"

namespace farhop {

// A pull that has not started, is under way or is over. Holds the batch's ids, not the batch: no cycle.
struct FeatureState : std::enable_shared_from_this<FeatureState> {
  std::shared_ptr<GraphCore> core;
  std::shared_ptr<const sampler::SampledBatch> batch;
  std::string name;
  int nodeType = 0;
  uint32_t feature = 0;
  bool ofSeeds = false;
  std::optional<sampler::EdgeRange> edges;  // of edges, not of nodes
  torch::ScalarType dtype = torch::kFloat32;
  std::vector<int64_t> shape;
  bool cache = true;  // NeighborLoaderOptions::cache
  std::chrono::milliseconds timeout{60'000};

  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  enum class Progress { kIdle, kUnderWay, kDone } progress = Progress::kIdle;
  absl::Status status;
  torch::Tensor tensor;

  std::span<const uint64_t> gids() const {
    if (ofSeeds) return batch->seeds;
    return batch->nodes[nodeType];
  }
  // Starts the pull unless it has been started.
  void start();
  bool waitUntilDone(std::chrono::milliseconds limit);
  // The tensor of a finished pull, or throws.
  torch::Tensor result();
};

struct BatchCore {
  std::shared_ptr<GraphCore> graph;
  std::shared_ptr<const sampler::SampledBatch> sampled;
  size_t hops = 0;
  bool expandsAll = false;  // each hop has CSRs of its own
  bool importance = false;  // edges are of no relation of the graph
  int64_t walkLength = 0;   // of batches of random walks
  bool hasEdgeIds = false;
  // How it was sampled, so that its draws can be made again; null for batches whose edges are none of the graph's.
  std::shared_ptr<const sampler::SamplingOptions> sampling;
  bool drawn = true;  // its edges are a result of hops of draws
  bool cache = true;  // NeighborLoaderOptions::cache
  std::chrono::milliseconds pullTimeout{60'000};

  std::mutex mutex;
  std::map<std::tuple<int, std::string, bool>, std::shared_ptr<FeatureState>> features;  // guarded by mutex
  // By relation, name, first hop and number of hops.
  std::map<std::tuple<int, std::string, size_t, size_t>, std::shared_ptr<FeatureState>> edgeFeatures;  // guarded by mutex

  std::shared_ptr<FeatureState> featureState(int nodeType, const std::string& name, bool ofSeeds);
  // Of the edges that hops firstHop to hops - 1 drew. Throws Error.
  std::shared_ptr<FeatureState> edgeFeatureState(const std::string& relation, const std::string& name, size_t firstHop,
                                                 size_t endHop);
};

}  // namespace farhop
