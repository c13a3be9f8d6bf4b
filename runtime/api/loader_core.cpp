#include "runtime/api/loader_core.h"

#include <algorithm>
#include <utility>

#include "runtime/api/prefetch.h"
#include "runtime/api/status_error.h"

namespace farhop::api {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

}  // namespace

void LoaderCore::setOwnPosition(uint64_t made, const sampler::DealOptions& deal) {
  position.fingerprint = made;
  position.seed = deal.seed;
  position.numMachines = deal.numMachines;
  position.procsPerMachine = deal.procsPerMachine;
}

void LoaderCore::configure(const NeighborLoaderOptions& options, const sampler::SamplingOptions& samplingOptions, int seedType) {
  const bool induced = samplingOptions.subgraph == sampler::Subgraph::kInduced;
  hops = induced ? 1 : samplingOptions.fanouts.size();
  expandsAll = options.expand == Expand::kAll && !induced;
  importance = samplingOptions.importance.has_value();
  walkLength = samplingOptions.walks ? samplingOptions.walks->plan.length : 0;
  drawn = !induced;
  // Walks and importance neighbours are no edges of the graph.
  if (!samplingOptions.walks && !importance) {
    sampling = std::make_shared<const sampler::SamplingOptions>(samplingOptions);
  }
  edgeIds = options.edgeIds;
  cache = options.cache;
  pullTimeout = options.requestTimeout;
  prefetcher = makePrefetcher(core, options, seedType);
}

sampler::StreamOptions LoaderCore::streamOptions(const NeighborLoaderOptions& options) const {
  sampler::StreamOptions result{options.samplerThreads, options.batchesUnderWay};
  if (prefetcher != nullptr) {
    result.sampled = [prefetcher = prefetcher.get()](const sampler::SampledBatch& batch) {
      try {
        prefetcher->add(batch);
      } catch (const std::bad_alloc&) {
        // The batch can be had all the same; what is not prefetched is pulled when asked for.
      }
    };
  }
  return result;
}

void LoaderCore::start(int64_t epoch) {
  if (epoch < 0) refuse(absl::StrCat("epoch ", epoch, " is negative"));
  if (*core->left) {
    throw Error(ErrorCode::kFailedPrecondition, "the runtime has left the job; iterate before Runtime::leave()");
  }
  const bool resumes = std::exchange(restored, false) && position.epoch == static_cast<uint64_t>(epoch);
  if (!resumes) position.step = 0;
  position.epoch = static_cast<uint64_t>(epoch);
  if (prefetcher != nullptr) {
    stream->stop();
    prefetcher->clear();
  }
  core->session->board().beginEpoch(epoch);
  stream->start(position.epoch, position.step);
}

std::string LoaderCore::state() const { return sampler::encodePosition(position); }

int64_t LoaderCore::restore(const std::string& state, OtherProcesses otherProcesses) {
  const auto resized =
      otherProcesses == OtherProcesses::kNextEpoch ? sampler::Resized::kNextEpoch : sampler::Resized::kRefuse;
  const auto continued = [&]() -> absl::StatusOr<sampler::StreamPosition> {
    FARHOP_ASSIGN_OR_RETURN(const sampler::StreamPosition saved, sampler::decodePosition(state));
    return sampler::continuePosition(saved, position, stream->dealer(), resized);
  }();
  if (!continued.ok()) throw toError(annotate(continued.status(), "restore"));
  position = *continued;
  restored = true;
  return static_cast<int64_t>(position.epoch);
}

std::shared_ptr<BatchCore> LoaderCore::next() {
  const absl::Status failure = core->session->failure().status();
  okOrThrow(failure);
  auto sampled = stream->next();
  if (!sampled.ok()) throw toError(core->explained(sampled.status()));
  if (*sampled == nullptr) return nullptr;
  auto batch = std::make_shared<BatchCore>();
  batch->graph = core;
  batch->sampled = sampler::BatchPool::share(stream->pool(), std::move(*sampled));
  batch->hops = hops;
  batch->expandsAll = expandsAll;
  batch->drawn = drawn;
  batch->importance = importance;
  batch->walkLength = walkLength;
  batch->hasEdgeIds = edgeIds;
  batch->sampling = sampling;
  batch->cache = cache;
  batch->pullTimeout = pullTimeout;
  if (prefetcher != nullptr) {
    adoptPrefetched(*prefetcher, prefetcher->take(batch->sampled->epoch, batch->sampled->step), batch.get());
  }
  position.step = batch->sampled->step + 1;
  core->session->board().countBatch();
  return batch;
}

}  // namespace farhop::api
