// The baseline: the sampler's algorithm as one writes it first, with a std::unordered_map for the numbering and
// no prefetch, no reused memory. It draws the same neighbours from the same keys and numbers them alike, so its
// batches equal the sampler's and a difference in speed is one of technique alone. Homogeneous graphs.
#pragma once

#include <memory>

#include "sampler/batch_sampler.h"

namespace farhop::benchmarks {

// Uniform without replacement, every node expanded in the hop that found it; no edge ids. The machine owns all
// partitions of `graph`.
std::unique_ptr<sampler::SampledBatch> sampleOverUnorderedMap(const sampler::PartitionedGraph& graph,
                                                              const sampler::SamplingOptions& options,
                                                              const sampler::BatchRequest& request);

}  // namespace farhop::benchmarks
