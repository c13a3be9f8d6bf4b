#include "farhop/neighbor_loader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "runtime/api/batch_core.h"
#include "runtime/api/status_error.h"
#include "sampler/batch_stream.h"
#include "sampler/seed_set.h"

namespace farhop {
namespace {

using api::valueOrThrow;

void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

std::vector<std::vector<int64_t>> fanoutsByHop(const GraphCore& core, const NeighborLoaderOptions& options) {
  size_t hops = options.fanouts.size();
  if (hops == 0 && !options.fanoutsByRelation.empty()) hops = options.fanoutsByRelation.begin()->second.size();
  if (hops == 0) refuse("fanouts is empty; give one number per hop, e.g. {15, 10}");
  const size_t relations = core.graph->schema().relations.size();
  const std::vector<int64_t> common = options.fanouts.empty() ? std::vector<int64_t>(hops, 0) : options.fanouts;
  std::vector<std::vector<int64_t>> fanouts(hops, std::vector<int64_t>(relations));
  for (size_t hop = 0; hop < hops; ++hop) std::fill(fanouts[hop].begin(), fanouts[hop].end(), common[hop]);
  for (const auto& [name, own] : options.fanoutsByRelation) {
    const int relation = core.relation(name);
    if (own.size() != hops) {
      refuse(absl::StrCat("fanouts of relation '", name, "' have ", own.size(), " hops, the others ", hops));
    }
    for (size_t hop = 0; hop < hops; ++hop) fanouts[hop][static_cast<size_t>(relation)] = own[hop];
  }
  for (const auto& hop : fanouts) {
    for (int64_t fanout : hop) {
      if (fanout < -1 || fanout > (int64_t{1} << 30)) {
        refuse(absl::StrCat("fanout ", fanout, " is out of range; -1 takes all neighbours, 0 none"));
      }
    }
  }
  return fanouts;
}

std::vector<sampler::RelationKind> kindsOf(const GraphCore& core, const NeighborLoaderOptions& options,
                                           const std::vector<std::vector<int64_t>>& fanouts) {
  const partition::Schema& schema = core.graph->schema();
  std::vector<bool> replace(schema.relations.size(), options.replace);
  for (const auto& [name, own] : options.replaceByRelation) replace[static_cast<size_t>(core.relation(name))] = own;
  std::vector<std::string> weights(schema.relations.size(), options.weight);
  for (const auto& [name, own] : options.weightByRelation) weights[static_cast<size_t>(core.relation(name))] = own;
  std::vector<sampler::RelationKind> kinds(schema.relations.size());
  for (size_t r = 0; r < kinds.size(); ++r) {
    const int relation = static_cast<int>(r);
    bool draws = false;
    for (const auto& hop : fanouts) {
      draws = draws || hop[r] != 0;
      if (!replace[r] || hop[r] <= sampler::kMaxFanoutWithReplacement) continue;
      refuse(absl::StrCat("fanout ", hop[r], " of relation '", schema.relationText(relation),
                          "' is too large with replacement; at most ", sampler::kMaxFanoutWithReplacement));
    }
    using Kind = sampler::DrawKind;
    kinds[r].kind = replace[r] ? Kind::kUniformWithReplacement : Kind::kUniform;
    if (!draws || weights[r].empty()) continue;
    kinds[r].kind = replace[r] ? Kind::kWeightedWithReplacement : Kind::kWeighted;
    kinds[r].weight = valueOrThrow(sampler::weightIndex(*core.graph, relation, weights[r]));
    valueOrThrow(core.graph->edgeWeights(relation, kinds[r].weight));  // checked and made before the first batch
  }
  return kinds;
}

// A loader's position, as NeighborLoader::state() writes it: little-endian, fixed size.
struct Position {
  char magic[8] = {'F', 'H', 'P', 'L', 'O', 'A', 'D', '1'};
  uint64_t fingerprint = 0;
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// Of all that makes a loader's batches.
uint64_t fingerprintOf(const GraphCore& core, const Seeds& seeds, uint64_t numSeeds, const sampler::SamplingOptions& sampling,
                       const sampler::DealOptions& deal) {
  uint64_t key = core.graph->store().fingerprint();
  key = combineKey(combineKey(key, hashName(seeds.nodeType() + "/" + seeds.name())), numSeeds);
  for (const auto& hop : sampling.fanouts) {
    for (int64_t fanout : hop) key = combineKey(key, static_cast<uint64_t>(fanout));
    key = combineKey(key, hop.size());
  }
  for (size_t r = 0; r < sampling.kinds.size(); ++r) {
    const sampler::RelationKind& kind = sampling.kinds[r];
    if (kind.kind == sampler::DrawKind::kUniform) continue;
    key = combineKey(combineKey(combineKey(key, r), static_cast<uint64_t>(kind.kind)), kind.weight);
  }
  if (sampling.expand == sampler::Expand::kAll) key = combineKey(key, hashName("expand all"));
  for (uint64_t part : {sampling.seed, uint64_t{sampling.edgeIds}, deal.batchSize, uint64_t{deal.shuffle},
                        static_cast<uint64_t>(deal.deal), static_cast<uint64_t>(deal.tail),
                        static_cast<uint64_t>(deal.numMachines), static_cast<uint64_t>(deal.procsPerMachine)}) {
    key = combineKey(key, part);
  }
  return key;
}

}  // namespace

struct NeighborLoader::Impl {
  std::shared_ptr<GraphCore> core;
  size_t hops = 0;
  bool expandsAll = false;
  bool edgeIds = false;
  std::chrono::milliseconds pullTimeout{0};
  Position position;           // after the last batch handed out
  bool restored = false;       // the next epoch of position.epoch starts at position.step
  std::unique_ptr<sampler::BatchStream> stream;
};

NeighborLoader::NeighborLoader(const Graph& graph, const Seeds& seeds, const NeighborLoaderOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->core = graph.core();
  const GraphCore& core = *impl_->core;
  if (options.batchSize < 1) refuse(absl::StrCat("batchSize is ", options.batchSize, "; it must be at least 1"));
  if (options.samplerThreads < 1) refuse(absl::StrCat("samplerThreads is ", options.samplerThreads, "; at least 1"));
  if (options.batchesUnderWay < 1) refuse(absl::StrCat("batchesUnderWay is ", options.batchesUnderWay, "; at least 1"));
  if (options.requestTimeout.count() < 1) refuse("requestTimeout must be at least 1 ms");
  sampler::SamplingOptions sampling;
  sampling.fanouts = fanoutsByHop(core, options);
  sampling.kinds = kindsOf(core, options, sampling.fanouts);
  sampling.expand = options.expand == Expand::kAll ? sampler::Expand::kAll : sampler::Expand::kNew;
  sampling.seed = options.seed;
  sampling.edgeIds = options.edgeIds;
  sampling.requestTimeout = options.requestTimeout;

  const runtime::LaunchContract& contract = core.session->contract();
  sampler::DealOptions deal;
  deal.batchSize = static_cast<uint64_t>(options.batchSize);
  deal.shuffle = options.shuffle;
  deal.deal = options.deal == SeedDeal::kGlobal ? sampler::Deal::kGlobal : sampler::Deal::kByOwner;
  deal.tail = options.tail == EpochTail::kWrap   ? sampler::Tail::kWrap
              : options.tail == EpochTail::kDrop ? sampler::Tail::kDrop
                                                 : sampler::Tail::kUneven;
  deal.seed = options.seed;
  deal.machine = contract.machine;
  deal.numMachines = contract.numMachines;
  deal.proc = contract.proc;
  deal.procsPerMachine = contract.procsPerMachine;
  const int type = core.nodeType(seeds.nodeType());
  sampler::SeedSet set = valueOrThrow(
      seeds.isSplit_ ? sampler::seedSetOfSplit(*core.graph, seeds.name(), type, deal.deal)
                     : sampler::seedSetOfIds(*core.graph, seeds.originalIds_, type, deal.deal));
  sampler::SeedDealer dealer = valueOrThrow(sampler::SeedDealer::make(std::move(set), deal));

  for (int64_t id : seeds.originalIds_) impl_->position.fingerprint = combineKey(impl_->position.fingerprint, static_cast<uint64_t>(id));
  impl_->position.fingerprint = combineKey(
      impl_->position.fingerprint, fingerprintOf(core, seeds, static_cast<uint64_t>(seeds.count()), sampling, deal));
  impl_->hops = sampling.fanouts.size();
  impl_->expandsAll = options.expand == Expand::kAll;
  impl_->edgeIds = options.edgeIds;
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
