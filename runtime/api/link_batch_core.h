// Shared state of LinkBatch.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>

#include "farhop/link_loader.h"
#include "partition/graph_store.h"
#include "runtime/api/batch_core.h"

namespace farhop {

// What all batches of a loader share.
struct LinkTraits {
  std::string relation;
  Negatives negatives = Negatives::kNone;
  bool drawsSources = false;
  bool ofPairs = false;                    // positions are those of the user's pairs
  torch::Tensor labels;                    // of the user's pairs; or
  partition::FeatureTable splitLabels;     // of a split, in the mapping; or none
};

struct LinkBatchCore {
  std::shared_ptr<BatchCore> batch;
  std::shared_ptr<const LinkTraits> traits;
};

}  // namespace farhop
