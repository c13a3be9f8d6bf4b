// Collectives on libtorch tensors, over the runtime's own on plain memory.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "runtime/collectives.h"

namespace farhop::api {

// Averages gradients over the processes that are `active` (have a batch), in place, as one flat message per
// dtype; returns how many were. Inactive processes contribute zeros. float32 and float64 CPU tensors.
absl::StatusOr<int64_t> averageGradients(const std::vector<torch::Tensor>& parameters, bool active,
                                         runtime::Collectives& collectives, Deadline deadline);

// Rank 0's values into everyone's tensors, in place. Any dtype, contiguous CPU tensors.
absl::Status broadcastTensors(const std::vector<torch::Tensor>& tensors, int worldRank,
                              runtime::Collectives& collectives, Deadline deadline);

}  // namespace farhop::api
