// Shared state of Batch, Block and FeatureHandle.
#pragma once

#include <torch/types.h>

#include <chrono>
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
#include "sampler/pending_pull.h"
#include "sampler/prefetcher.h"
#include "sampler/sampled_batch.h"

namespace farhop {

// One pull of a feature.
struct StartedPull {
  std::shared_ptr<sampler::PullHold> hold;
  size_t part = 0;       // which memory of the pull's is the feature's
  bool ofBase = false;   // it brings the whole feature, of which a part is wanted
};

struct FeatureClaim;

// A feature of a batch, or a part of one, and its pull. Holds the batch's ids, not the batch: no cycle.
struct FeatureState : std::enable_shared_from_this<FeatureState> {
  std::shared_ptr<GraphCore> core;
  std::shared_ptr<const sampler::SampledBatch> batch;
  std::string name;
  int nodeType = 0;
  uint32_t feature = 0;
  bool ofSeeds = false;
  std::optional<sampler::EdgeRange> edges;  // of edges, not of nodes
  partition::FeatureSpec spec;              // as stored
  torch::ScalarType dtype = torch::kFloat32;
  std::vector<int64_t> shape;
  bool cache = true;  // NeighborLoaderOptions::cache
  std::chrono::milliseconds timeout{60'000};
  // Of parts: what they are parts of, and where they begin in it.
  std::shared_ptr<FeatureState> base;
  int64_t firstRow = 0;
  int64_t firstColumn = 0;

  std::mutex mutex;  // guards all below
  std::optional<StartedPull> started;  // the last one
  torch::Tensor ofBase;                // the part of a pulled base
  std::weak_ptr<FeatureClaim> claim;

  // What is stored as `spec` for `rows` rows.
  void describe(const partition::FeatureSpec& stored, size_t rows);
  std::span<const uint64_t> gids() const;
  // What to make of stored rows; the default for whole rows as they are.
  sampler::RowFormat format() const;
  // The same but for what the caller changes then.
  std::shared_ptr<FeatureState> makePart();

  // The pull under way or over, if any that has not failed.
  std::optional<StartedPull> current();
  // The current pull, or a new one. Throws Error.
  StartedPull start();
  // Pulls into a tensor that fits. Throws Error.
  void pullInto(torch::Tensor destination);
  // Takes over a pull that has been started; keeps an own one.
  void adopt(const StartedPull& pull);
  // Waits for it, at most `limit`, and returns the tensor. Throws Error.
  torch::Tensor result(const StartedPull& pull, std::chrono::milliseconds limit);
  // Its own deadline ends a pull; the margin is for its completion to run.
  std::chrono::milliseconds longestWait() const { return timeout + std::chrono::seconds(10); }
  // Nobody has a claim any more.
  void abandon();
};

// Who wants a feature, handles and futures, shares one of these: with the last a pull under way is given up.
struct FeatureClaim {
  explicit FeatureClaim(std::shared_ptr<FeatureState> wanted) : state(std::move(wanted)) {}
  ~FeatureClaim() { state->abandon(); }
  FeatureClaim(const FeatureClaim&) = delete;
  FeatureClaim& operator=(const FeatureClaim&) = delete;
  static std::shared_ptr<FeatureClaim> of(const std::shared_ptr<FeatureState>& state);

  const std::shared_ptr<FeatureState> state;
};

struct FuturePull {
  std::shared_ptr<FeatureClaim> claim;
  StartedPull started;
};

// Memory for pulled rows: a tensor, pinned where libtorch has a GPU; the memory's owner is a torch::Tensor.
// ResourceExhausted when there is none.
absl::StatusOr<sampler::PullMemory> makePullMemory(const std::vector<int64_t>& shape, torch::ScalarType dtype);
// FailedPrecondition once the runtime has left.
absl::Status refusePullAfterLeave(const GraphCore& core);

// Counts the time until it goes as time that the caller waited for features.
class PullWait {
 public:
  explicit PullWait(const GraphCore& core) : core_(core) {}
  ~PullWait() { core_.metrics->pullWaitSeconds.add(std::chrono::duration<double>(Clock::now() - begin_).count()); }
  PullWait(const PullWait&) = delete;
  PullWait& operator=(const PullWait&) = delete;

 private:
  const GraphCore& core_;
  const Clock::time_point begin_ = Clock::now();
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

  std::vector<std::shared_ptr<FeatureClaim>> prefetched;  // what is not to be given up while the batch lives

  std::shared_ptr<FeatureState> featureState(int nodeType, const std::string& name, bool ofSeeds);
  // Of the edges that hops firstHop to hops - 1 drew. Throws Error.
  std::shared_ptr<FeatureState> edgeFeatureState(const std::string& relation, const std::string& name, size_t firstHop,
                                                 size_t endHop);
};

}  // namespace farhop
