#include "farhop/neighbor_loader.h"

#include <utility>

#include "base/random.h"
#include "runtime/api/loader_core.h"
#include "runtime/api/loader_options.h"
#include "runtime/api/status_error.h"
#include "runtime/topology.h"
#include "runtime/api/walk_options.h"
#include "sampler/seed_set.h"

namespace farhop {
namespace {

using api::valueOrThrow;

}  // namespace

struct NeighborLoader::Impl : api::LoaderCore {};

NeighborLoader::NeighborLoader(const Graph& graph, const Seeds& seeds, const NeighborLoaderOptions& options)
    : NeighborLoader(graph, seeds, options,
                     std::make_unique<sampler::SamplingOptions>(api::samplingOptions(*graph.core(), options))) {}

NeighborLoader::NeighborLoader(const Graph& graph, const Seeds& seeds, const NeighborLoaderOptions& options,
                               std::unique_ptr<sampler::SamplingOptions> owned)
    : impl_(std::make_unique<Impl>()) {
  impl_->core = graph.core();
  const GraphCore& core = *impl_->core;
  sampler::SamplingOptions& sampling = *owned;
  const sampler::DealOptions deal = api::dealOptions(core, options);
  const int type = core.nodeType(seeds.nodeType());
  if (!sampling.temporal && !seeds.times_.empty()) {
    if (sampling.walks || sampling.importance) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the seeds have times, which random walks do not heed: they would look ahead; give seeds without times");
    }
    throw Error(ErrorCode::kInvalidArgument,
                "the seeds have times, but NeighborLoaderOptions::temporal is kOff: their neighbourhoods would look ahead");
  }
  api::checkWalkStart(core, sampling, type);
  api::checkSeedsDraw(core, sampling, {type});
  sampler::SeedSet set = valueOrThrow(
      seeds.isAll_     ? sampler::seedSetOfNodes(*core.graph, type, deal.deal)
      : seeds.isSplit_ ? sampler::seedSetOfSplit(*core.graph, seeds.name(), type, deal.deal)
                       : sampler::seedSetOfIds(*core.graph, seeds.originalIds_, type, deal.deal, seeds.times_));
  if (sampling.temporal && seeds.times_.empty()) {
    api::okOrThrow(core.explained(sampler::addNodeTimes(*core.graph, core.puller.get(), deal.deal,
                                                        Deadline::after(options.requestTimeout), &set)));
  }
  sampler::SeedDealer dealer = valueOrThrow(sampler::SeedDealer::make(std::move(set), deal));

  uint64_t key = combineKey(hashName(seeds.nodeType() + "/" + seeds.name()), static_cast<uint64_t>(seeds.count()));
  for (int64_t id : seeds.originalIds_) key = combineKey(key, static_cast<uint64_t>(id));
  for (int64_t time : seeds.times_) key = combineKey(key, static_cast<uint64_t>(time));
  impl_->setOwnPosition(combineKey(key, api::fingerprint(core, sampling, deal)), deal);
  impl_->configure(options, sampling, type);
  const runtime::ScopedThreadBinding samplers(core.session->serviceProcessors());
  impl_->stream = std::make_unique<sampler::BatchStream>(
      core.graph, core.session->agent(), std::move(dealer), std::move(sampling), impl_->streamOptions(options), core.metrics);
}

NeighborLoader::~NeighborLoader() = default;
NeighborLoader::NeighborLoader(NeighborLoader&&) noexcept = default;
NeighborLoader& NeighborLoader::operator=(NeighborLoader&&) noexcept = default;

int64_t NeighborLoader::numBatches() const { return static_cast<int64_t>(impl_->stream->dealer().numSteps()); }

NeighborLoader::Epoch NeighborLoader::epoch(int64_t epoch) {
  impl_->start(epoch);
  return Epoch(this);
}

std::string NeighborLoader::state() const { return impl_->state(); }
int64_t NeighborLoader::restore(const std::string& state, OtherProcesses otherProcesses) {
  return impl_->restore(state, otherProcesses);
}

bool NeighborLoader::next(Batch* batch) {
  std::shared_ptr<BatchCore> core = impl_->next();
  if (core == nullptr) return false;
  *batch = Batch(std::move(core));
  return true;
}

}  // namespace farhop
