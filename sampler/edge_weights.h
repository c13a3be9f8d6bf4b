// Edge weights of one relation, checked, with tables to draw by them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/pod_vector.h"
#include "base/status.h"
#include "partition/graph_store.h"
#include "sampler/kernels.h"
#include "sampler/made_once.h"

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

// Weights that loaders and peers have asked for, by (relation, feature); [partition], empty for those of others. Making
// them takes some nanoseconds per edge.
using EdgeWeightsCache = MadeOnce<std::pair<int, uint32_t>, std::vector<std::optional<EdgeWeights>>>;

}  // namespace farhop::sampler
