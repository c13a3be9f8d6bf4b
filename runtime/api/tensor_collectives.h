// Collectives on libtorch tensors, over the runtime's own on plain memory.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "runtime/collectives.h"

namespace farhop::api {

// What a process says of itself in the message that carries its gradients, and how many processes said so.
struct Presence {
  bool active = true;  // has a batch
  bool stop = false;   // wants the job to stop
};
struct PresenceCounts {
  int64_t active = 0;
  int64_t stop = 0;
};

// Averages gradients over the processes that are active, in place, as one flat message per dtype. Inactive processes
// contribute zeros. float32 and float64 CPU tensors.
absl::StatusOr<PresenceCounts> averageGradients(const std::vector<torch::Tensor>& parameters, Presence presence,
                                         runtime::Collectives& collectives, Deadline deadline);

// Rank 0's values into everyone's tensors, in place. Any dtype, contiguous CPU tensors.
absl::Status broadcastTensors(const std::vector<torch::Tensor>& tensors, int worldRank,
                              runtime::Collectives& collectives, Deadline deadline);

}  // namespace farhop::api
