// What all loaders are: a stream of batches, and a position in it that can be saved and resumed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "farhop/neighbor_loader.h"
#include "runtime/api/batch_core.h"
#include "sampler/batch_stream.h"
#include "sampler/prefetcher.h"
#include "sampler/stream_position.h"

namespace farhop::api {

// Not thread-safe.
struct LoaderCore {
  std::shared_ptr<GraphCore> core;
  size_t hops = 0;
  bool expandsAll = false;
  bool drawn = true;  // edges are a result of hops of draws
  bool importance = false;
  int64_t walkLength = 0;  // of batches of random walks
  bool edgeIds = false;
  bool cache = true;
  std::shared_ptr<const sampler::SamplingOptions> sampling;
  std::chrono::milliseconds pullTimeout{0};
  sampler::StreamPosition position;  // after the last batch handed out
  bool restored = false;             // the next epoch of position.epoch starts at position.step
  std::unique_ptr<sampler::Prefetcher> prefetcher;  // or null; before the stream, whose batches go through it
  std::unique_ptr<sampler::BatchStream> stream;

  // What position() says of the loader itself; `made` is of all that makes its batches but the number of processes.
  void setOwnPosition(uint64_t made, const sampler::DealOptions& deal);
  // Takes over what batches need of the options. Throws Error.
  void configure(const NeighborLoaderOptions& options, const sampler::SamplingOptions& samplingOptions, int seedType);
  // For the stream; after configure().
  sampler::StreamOptions streamOptions(const NeighborLoaderOptions& options) const;
  // Throw Error as the functions of NeighborLoader do.
  void start(int64_t epoch);
  std::string state() const;
  int64_t restore(const std::string& state, OtherProcesses otherProcesses);
  // Null at the end of the epoch.
  std::shared_ptr<BatchCore> next();
};

}  // namespace farhop::api
