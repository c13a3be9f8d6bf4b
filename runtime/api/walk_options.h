// Options of random walks, checked and brought into the sampler's form.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "farhop/random_walk_loader.h"
#include "runtime/api/graph_core.h"
#include "sampler/sampling_options.h"

namespace farhop::api {

// Throw Error as RandomWalkLoader's and NeighborLoader's constructors say. Make the tables that are needed.
sampler::WalkOptions walkOptions(const GraphCore& core, const RandomWalkLoaderOptions& options);
sampler::ImportanceOptions importanceOptions(const GraphCore& core, const NeighborLoaderOptions& options);

// Throws Error(kInvalidArgument) unless walks, where the options have any, can start at this node type.
void checkWalkStart(const GraphCore& core, const sampler::SamplingOptions& sampling, int nodeType);

// Of all that makes walks, importance neighbours and the choice of edges; 0 for options that have none of these.
uint64_t walkFingerprint(const sampler::SamplingOptions& sampling);

}  // namespace farhop::api
