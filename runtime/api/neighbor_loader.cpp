#include "farhop/neighbor_loader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "runtime/api/batch_core.h"
#include "runtime/api/loader_options.h"
#include "runtime/api/status_error.h"
#include "sampler/batch_stream.h"
#include "sampler/seed_set.h"

namespace farhop {
namespace {

using api::valueOrThrow;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

// A loader's position, as NeighborLoader::state() writes it: little-endian, fixed size.
struct Position {
  char magic[8] = {'F', 'H', 'P', 'L', 'O', 'A', 'D', '1'};
  uint64_t fingerprint = 0;
  uint64_t epoch = 0;
  uint64_t step = 0;
};

}  // namespace

struct NeighborLoader::Impl {
  std::shared_ptr<GraphCore> core;
  size_t hops = 0;
  bool expandsAll = false;
  bool edgeIds = false;
  std::shared_ptr<const sampler::SamplingOptions> sampling;
  std::chrono::milliseconds pullTimeout{0};
  Position position;           // after the last batch handed out
  bool restored = false;       // the next epoch of position.epoch starts at position.step
  std::unique_ptr<sampler::BatchStream> stream;
};

NeighborLoader::NeighborLoader(const Graph& graph, const Seeds& seeds, const NeighborLoaderOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->core = graph.core();
  const GraphCore& core = *impl_->core;
  sampler::SamplingOptions sampling = api::samplingOptions(core, options);
  const sampler::DealOptions deal = api::dealOptions(core, options);
  const int type = core.nodeType(seeds.nodeType());
  if (!sampling.temporal && !seeds.times_.empty()) {
    refuse("the seeds have times, but NeighborLoaderOptions::temporal is kOff: their neighbourhoods would look ahead");
  }
  sampler::SeedSet set = valueOrThrow(
      seeds.isSplit_ ? sampler::seedSetOfSplit(*core.graph, seeds.name(), type, deal.deal)
                     : sampler::seedSetOfIds(*core.graph, seeds.originalIds_, type, deal.deal, seeds.times_));
  if (sampling.temporal && seeds.times_.empty()) {
    api::okOrThrow(core.explained(sampler::addNodeTimes(*core.graph, core.puller.get(), deal.deal,
                                                        Deadline::after(options.requestTimeout), &set)));
  }
  sampler::SeedDealer dealer = valueOrThrow(sampler::SeedDealer::make(std::move(set), deal));

  uint64_t key = combineKey(hashName(seeds.nodeType() + "/" + seeds.name()), static_cast<uint64_t>(seeds.count()));
  for (int64_t id : seeds.originalIds_) key = combineKey(key, static_cast<uint64_t>(id));
  for (int64_t time : seeds.times_) key = combineKey(key, static_cast<uint64_t>(time));
  impl_->position.fingerprint = combineKey(key, api::fingerprint(core, sampling, deal));
  impl_->hops = sampling.fanouts.size();
  impl_->expandsAll = options.expand == Expand::kAll;
  impl_->edgeIds = options.edgeIds;
  impl_->sampling = std::make_shared<const sampler::SamplingOptions>(sampling);
  impl_->pullTimeout = options.requestTimeout;
  impl_->stream = std::make_unique<sampler::BatchStream>(
      core.graph, core.session->agent(), std::move(dealer), std::move(sampling),
      sampler::StreamOptions{options.samplerThreads, options.batchesUnderWay}, core.metrics);
}

NeighborLoader::~NeighborLoader() = default;
NeighborLoader::NeighborLoader(NeighborLoader&&) noexcept = default;
NeighborLoader& NeighborLoader::operator=(NeighborLoader&&) noexcept = default;

int64_t NeighborLoader::numBatches() const { return static_cast<int64_t>(impl_->stream->dealer().numSteps()); }

NeighborLoader::Epoch NeighborLoader::epoch(int64_t epoch) {
  if (epoch < 0) refuse(absl::StrCat("epoch ", epoch, " is negative"));
  if (*impl_->core->left) {
    throw Error(ErrorCode::kFailedPrecondition, "the runtime has left the job; iterate before Runtime::leave()");
  }
  Position& position = impl_->position;
  const bool resumes = std::exchange(impl_->restored, false) && position.epoch == static_cast<uint64_t>(epoch);
  if (!resumes) position.step = 0;
  position.epoch = static_cast<uint64_t>(epoch);
  impl_->stream->start(position.epoch, position.step);
  return Epoch(this);
}

std::string NeighborLoader::state() const {
  return std::string(reinterpret_cast<const char*>(&impl_->position), sizeof(Position));
}

int64_t NeighborLoader::restore(const std::string& state) {
  Position position;
  if (state.size() != sizeof(position) || state.compare(0, sizeof(position.magic), position.magic, sizeof(position.magic)) != 0) {
    refuse(absl::StrCat("restore: these ", state.size(), " bytes are no loader's state"));
  }
  std::memcpy(static_cast<void*>(&position), state.data(), sizeof(position));
  if (position.fingerprint != impl_->position.fingerprint) {
    throw Error(ErrorCode::kFailedPrecondition,
                "restore: the state is of another store, seeds, loader options or number of processes; continue with "
                "the same, or start with the next whole epoch");
  }
  if (position.step > impl_->stream->dealer().numSteps()) refuse("restore: the state's step is beyond the epoch");
  impl_->position = position;
  impl_->restored = true;
  return static_cast<int64_t>(position.epoch);
}

bool NeighborLoader::next(Batch* batch) {
  const absl::Status failure = impl_->core->session->failure().status();
  api::okOrThrow(failure);
  auto sampled = impl_->stream->next();
  if (!sampled.ok()) throw api::toError(impl_->core->explained(sampled.status()));
  if (*sampled == nullptr) return false;
  auto core = std::make_shared<BatchCore>();
  core->graph = impl_->core;
  core->sampled = sampler::BatchPool::share(impl_->stream->pool(), std::move(*sampled));
  core->hops = impl_->hops;
  core->expandsAll = impl_->expandsAll;
  core->hasEdgeIds = impl_->edgeIds;
  core->sampling = impl_->sampling;
  core->pullTimeout = impl_->pullTimeout;
  impl_->position.step = core->sampled->step + 1;
  *batch = Batch(std::move(core));
  return true;
}

NeighborLoader::Iterator& NeighborLoader::Iterator::operator++() {
  batch_ = Batch();  // its memory goes before the next one's comes
  if (!loader_->next(&batch_)) loader_ = nullptr;
  return *this;
}

NeighborLoader::Iterator NeighborLoader::Epoch::begin() {
  Iterator iterator;
  iterator.loader_ = loader_;
  return ++iterator;
}

}  // namespace farhop
