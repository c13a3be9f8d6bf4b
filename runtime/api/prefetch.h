// The loader's prefetch options, made into a prefetcher, and what it brings made into features of a batch.
#pragma once

#include <memory>

#include "farhop/neighbor_loader.h"
#include "runtime/api/batch_core.h"
#include "sampler/prefetcher.h"

namespace farhop::api {

// Null where nothing is to be prefetched. Throws Error: kNotFound for a feature that no type has, listing those that
// exist, kInvalidArgument for a negative number of bytes.
std::unique_ptr<sampler::Prefetcher> makePrefetcher(const std::shared_ptr<GraphCore>& core, const NeighborLoaderOptions& options,
                                                    int seedType);

// Hands a batch the pulls that were started for it; it keeps them from being given up.
void adoptPrefetched(const sampler::Prefetcher& prefetcher, const std::vector<sampler::Prefetched>& pulls, BatchCore* batch);

}  // namespace farhop::api
