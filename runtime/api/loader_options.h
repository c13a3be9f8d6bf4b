// What the loaders of the public API share: their options, checked and brought into the sampler's form.
#pragma once

#include <string>
#include <vector>

#include "farhop/neighbor_loader.h"
#include "runtime/api/graph_core.h"
#include "sampler/batch_sampler.h"
#include "sampler/seed_dealer.h"

namespace farhop::api {

// Throws Error as NeighborLoader's constructor says. Makes the tables of weights that are asked for.
sampler::SamplingOptions samplingOptions(const GraphCore& core, const NeighborLoaderOptions& options);

// Throws Error(kInvalidArgument) where hops would find nothing: relations draw, but none that leads into a seeds' type.
void checkSeedsDraw(const GraphCore& core, const sampler::SamplingOptions& sampling, const std::vector<int>& seedTypes);

// Throws Error(kInvalidArgument): two names in one option mean the same relation.
[[noreturn]] void refuseTwoNames(const GraphCore& core, int relation, const std::string& one, const std::string& other);

// The part that loaders of other kinds have too: seed, edge ids, time-out. Throws Error.
sampler::SamplingOptions commonSamplingOptions(const NeighborLoaderOptions& options);

// This process's place in the job, batch size, order and tail. Throws Error.
sampler::DealOptions dealOptions(const GraphCore& core, const NeighborLoaderOptions& options);

// Of all that makes a loader's batches but its seeds and the number of processes: store, draws, dealing.
uint64_t fingerprint(const GraphCore& core, const sampler::SamplingOptions& sampling, const sampler::DealOptions& deal);

}  // namespace farhop::api
