// Edge weights of one relation, checked, with tables to draw by them.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/pod_vector.h"
#include "base/status.h"
#include "partition/graph_store.h"
#include "sampler/kernels.h"

namespace farhop::sampler {

// One partition's weights. Owns 8 bytes per edge of tables, and 4 more where the feature is not float32; borrows the
// shard's mapping.
class EdgeWeights {
 public:
  // InvalidArgument unless it is one integer, float32 or float64 per edge.
  static absl::Status checkFeature(const partition::FeatureSpec& spec);
  // `feature` as checkFeature() accepts it. InvalidArgument naming `file` and the row for a weight that is negative, infinite or not a number.
  static absl::StatusOr<EdgeWeights> make(const partition::RelationShard& edges, const partition::FeatureTable& feature,
                                          const std::string& file);

  // Valid while this and the shard live.
  WeightView view() const { return {weights_, slots_.data()}; }

 private:
  const float* weights_ = nullptr;  // of the mapping, or of own_
  PodVector<float> own_;
  PodVector<AliasSlot> slots_;
};

// The weights that loaders and peers have asked for so far, kept until the graph is closed. Thread-safe.
class EdgeWeightsCache {
 public:
  using Partitions = std::vector<std::optional<EdgeWeights>>;  // [partition]; empty for those of others
  using Result = absl::StatusOr<std::shared_ptr<const Partitions>>;

  // The first caller for a (relation, feature) makes it; others wait for that, some nanoseconds per edge.
  template <typename Make>
  Result get(int relation, uint32_t feature, const Make& make) const {
    std::promise<Result> promise;
    std::shared_future<Result> known;
    {
      std::lock_guard lock(mutex_);
      const auto [at, isNew] = made_.try_emplace({relation, feature});
      if (isNew) {
        at->second = promise.get_future().share();
      } else {
        known = at->second;
      }
    }
    if (known.valid()) return known.get();
    Result result = make();
    promise.set_value(result);
    return result;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::pair<int, uint32_t>, std::shared_future<Result>> made_;  // guarded by mutex_
};

}  // namespace farhop::sampler
