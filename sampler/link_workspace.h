// Memory that a batch of seed edges works in beside what all batches use, kept from batch to batch.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sampler/batch_exclusion.h"
#include "sampler/edge_lookup.h"
#include "sampler/seed_pairs.h"

namespace farhop::sampler {

struct LinkWorkspace {
  std::vector<SeedPair> seeds;
  std::vector<NodePair> negatives;
  std::vector<std::pair<uint64_t, uint64_t>> own;  // the seeds' ends, sorted
  std::vector<uint32_t> open;                      // negatives that may still be edges
  // What a request's columns of these names take, and bring back when their batch is numbered.
  std::vector<ExcludedPair> excluded;
  std::vector<uint32_t> trees;
};

}  // namespace farhop::sampler
