// Batches of seed edges for `farhop-bench sampler`.
#pragma once

#include <memory>

#include "benchmarks/sampler_cases.h"
#include "sampler/link_sampler.h"

namespace farhop::benchmarks {

// Samples as many seed edges as it is asked for seeds, drawn from all edges of relation 0 by the batch's number. All
// partitions are this machine's; `executor` must outlive the maker.
absl::StatusOr<std::unique_ptr<BatchMaker>> makeLinkSampler(std::shared_ptr<const sampler::PartitionedGraph> graph,
                                                            sampler::SamplingOptions sampling,
                                                            sampler::LinkOptions link, Executor* executor);

}  // namespace farhop::benchmarks
