#include "farhop/random_walk_loader.h"

#include <memory>

#include "runtime/api/loader_options.h"
#include "runtime/api/walk_options.h"

namespace farhop {
namespace {

// What a loader of walks shares with one of neighbours.
NeighborLoaderOptions commonOptions(const RandomWalkLoaderOptions& options) {
  NeighborLoaderOptions common;
  common.batchSize = options.batchSize;
  common.seed = options.seed;
  common.shuffle = options.shuffle;
  common.deal = options.deal;
  common.tail = options.tail;
  common.samplerThreads = options.samplerThreads;
  common.batchesUnderWay = options.batchesUnderWay;
  common.requestTimeout = options.requestTimeout;
  common.cache = options.cache;
  common.prefetch = options.prefetch;
  common.prefetchByType = options.prefetchByType;
  common.prefetchOfSeeds = options.prefetchOfSeeds;
  common.prefetchBytes = options.prefetchBytes;
  return common;
}

std::unique_ptr<sampler::SamplingOptions> samplingOf(const GraphCore& core, const RandomWalkLoaderOptions& options) {
  auto sampling = std::make_unique<sampler::SamplingOptions>(api::commonSamplingOptions(commonOptions(options)));
  sampling->walks = api::walkOptions(core, options);
  return sampling;
}

}  // namespace

RandomWalkLoader::RandomWalkLoader(const Graph& graph, const Seeds& seeds, const RandomWalkLoaderOptions& options)
    : loader_(graph, seeds, commonOptions(options), samplingOf(*graph.core(), options)) {}

}  // namespace farhop
