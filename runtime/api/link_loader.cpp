#include "farhop/link_loader.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/file.h"
#include "base/random.h"
#include "runtime/api/link_batch_core.h"
#include "runtime/api/loader_core.h"
#include "runtime/api/loader_options.h"
#include "runtime/api/status_error.h"
#include "runtime/topology.h"
#include "sampler/link_sampler.h"
#include "sampler/seed_set.h"

namespace farhop {
namespace {

using api::valueOrThrow;

// Seed edges and negatives of a batch: one message holds the question whether all are edges.
constexpr double kMaxBatchEnds = 1 << 24;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

// The relation whose edges are the reverses of `relation`'s.
int reverseOf(const GraphCore& core, int relation, const std::string& name) {
  const partition::Schema& schema = core.graph->schema();
  const partition::Relation& edges = schema.relations[relation];
  if (!name.empty()) {
    const int reverse = core.relation(name);
    if (schema.relations[reverse].source == edges.destination && schema.relations[reverse].destination == edges.source) {
      return reverse;
    }
    refuse(absl::StrCat("reverseRelation '", name, "' does not run the other way than ", schema.relationText(relation)));
  }
  if (edges.reverseOf >= 0) return edges.reverseOf;
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    if (schema.relations[r].reverseOf == relation) return static_cast<int>(r);
  }
  if (edges.source == edges.destination) return relation;
  refuse(absl::StrCat("the store has no reverse of ", schema.relationText(relation),
                      " to exclude; name one with reverseRelation, or use ExcludeSeedEdges::kSelf"));
}

void checkNegatives(const LinkLoaderOptions& options, bool hasLabels) {
  if (options.negatives == Negatives::kNone) return;
  const double ratio = options.negativesPerEdge;
  if (!(ratio > 0) || !std::isfinite(ratio)) refuse(absl::StrCat("negativesPerEdge is ", ratio, "; it must be above 0"));
  const bool triplets = options.negatives == Negatives::kTriplet;
  if (triplets && ratio != std::floor(ratio)) {
    refuse(absl::StrCat("negativesPerEdge is ", ratio, "; triplets need a whole number of at least 1"));
  }
  if (triplets && options.negativeEnds == NegativeEnds::kBoth) {
    refuse("NegativeEnds::kBoth does not fit triplets, which share their source; use kDestination");
  }
  if (triplets && hasLabels) refuse("the seeds have labels, which triplets do not; use Negatives::kBinary or kNone");
  if (static_cast<double>(options.batchSize) * (1 + ratio) > kMaxBatchEnds) {
    refuse(absl::StrCat("negativesPerEdge is ", ratio, ", too many for a batch of ", options.batchSize, " seed edges"));
  }
}

sampler::LinkOptions linkOptions(const GraphCore& core, int relation, const LinkLoaderOptions& options, bool hasLabels) {
  checkNegatives(options, hasLabels);
  sampler::LinkOptions link;
  link.relation = relation;
  link.negativesPerEdge = options.negatives == Negatives::kNone ? 0 : options.negativesPerEdge;
  link.drawSources = options.negatives == Negatives::kBinary && options.negativeEnds == NegativeEnds::kBoth;
  link.nodes = options.negativeNodes == NegativeNodes::kDegree ? sampler::NegativeNodes::kDegree
                                                               : sampler::NegativeNodes::kUniform;
  link.strict = options.strictNegatives;
  link.excludeSeeds = options.excludeSeedEdges != ExcludeSeedEdges::kNone;
  if (options.excludeSeedEdges == ExcludeSeedEdges::kReverse) {
    link.reverseRelation = reverseOf(core, relation, options.reverseRelation);
  }
  link.seed = options.seed;
  link.requestTimeout = options.requestTimeout;
  return link;
}

// Temporal sampling needs a time of every seed edge, and nothing else heeds times.
void checkTimes(const GraphCore& core, bool temporal, int relation, const EdgeSeeds& seeds, bool allEdges) {
  const partition::Schema& schema = core.graph->schema();
  if (!temporal && seeds.hasTimes()) {
    refuse("the seed edges have times, but LinkLoaderOptions::temporal is kOff: their neighbourhoods would look ahead");
  }
  if (!temporal || seeds.hasTimes() || (allEdges && schema.hasTimes(relation))) return;
  if (!allEdges) {
    refuse(absl::StrCat("temporal sampling needs a time of every seed edge, and '", seeds.name(), "' of ",
                        schema.relationText(relation), " has none; give them with EdgeSeeds::withTimes()"));
  }
  throw Error(ErrorCode::kNotFound, absl::StrCat(core.graph->store().directory(), " has no times of ",
                                                 schema.relationText(relation), ", whose edges are the seeds; it has times of: ",
                                                 sampler::timesText(schema)));
}

// Where nodes have times, negatives of temporal sampling are none that come later than their seed edge.
void addNodeTimes(const GraphCore& core, Deadline deadline, sampler::LinkOptions* link) {
  if (link->negativesPerEdge == 0) return;
  const partition::Schema& schema = core.graph->schema();
  const partition::Relation& ends = schema.relations[link->relation];
  const auto timesOf = [&](int type) -> std::shared_ptr<const sampler::NodeTimes> {
    if (schema.nodeTypes[type].timeFeature.empty()) return nullptr;
    auto times = sampler::NodeTimes::make(*core.graph, core.puller.get(), type, deadline);
    api::okOrThrow(core.explained(times.status()));
    return *std::move(times);
  };
  link->destinationTimes = timesOf(ends.destination);
  if (!link->drawSources) return;
  link->sourceTimes = ends.source == ends.destination ? link->destinationTimes : timesOf(ends.source);
}

uint64_t fingerprintOf(const sampler::LinkOptions& link, Negatives negatives) {
  uint64_t key = hashName("links");
  for (uint64_t part : {static_cast<uint64_t>(link.relation), static_cast<uint64_t>(negatives),
                        std::bit_cast<uint64_t>(link.negativesPerEdge), uint64_t{link.drawSources},
                        static_cast<uint64_t>(link.nodes), uint64_t{link.strict}, uint64_t{link.excludeSeeds},
                        static_cast<uint64_t>(link.reverseRelation)}) {
    key = combineKey(key, part);
  }
  return key;
}

}  // namespace

struct LinkLoader::Impl : api::LoaderCore {
  std::shared_ptr<const LinkTraits> traits;
};

LinkLoader::LinkLoader(const Graph& graph, const EdgeSeeds& seeds, const LinkLoaderOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->core = graph.core();
  const GraphCore& core = *impl_->core;
  if (options.importance) {
    refuse("importance neighbours are not drawn around seed edges: walks cannot leave seed edges out, and both ends' types "
           "would have to draw; leave NeighborLoaderOptions::importance unset, or sample the ends as seeds of a NeighborLoader");
  }
  sampler::SamplingOptions sampling = api::samplingOptions(core, options);
  const sampler::DealOptions deal = api::dealOptions(core, options);
  const int relation = core.relation(seeds.relation());
  const partition::Relation& ends = core.graph->schema().relations[relation];
  api::checkSeedsDraw(core, sampling, {ends.destination, ends.source});
  checkTimes(core, sampling.temporal, relation, seeds, seeds.kind_ == EdgeSeeds::Kind::kAll);
  sampler::LinkOptions link = linkOptions(core, relation, options, seeds.hasLabels());
  sampler::LinkSeedSet set = valueOrThrow(
      seeds.kind_ == EdgeSeeds::Kind::kSplit ? sampler::linkSeedsOfSplit(core.graph, relation, seeds.name(), deal.deal, seeds.times_)
      : seeds.kind_ == EdgeSeeds::Kind::kAll ? sampler::linkSeedsOfRelation(core.graph, relation, deal.deal)
                                             : sampler::linkSeedsOfPairs(core.graph, relation, seeds.ends_, deal.deal, seeds.times_));
  sampler::SeedDealer dealer = valueOrThrow(sampler::SeedDealer::make(std::move(set.set), deal));
  if (sampling.temporal) addNodeTimes(core, Deadline::after(options.requestTimeout), &link);
  const auto sampler =
      valueOrThrow(sampler::LinkSampler::make(core.graph, core.session->agent(), set.pairs, link));

  auto traits = std::make_shared<LinkTraits>();
  traits->relation = seeds.relation();
  traits->negatives = options.negatives;
  traits->drawsSources = link.drawSources;
  traits->ofPairs = seeds.kind_ == EdgeSeeds::Kind::kPairs;
  traits->labels = seeds.labels_;
  traits->splitLabels = set.labels;
  if (set.labels.data != nullptr) torchType(set.labels.spec.dtype);  // throws for what libtorch lacks
  impl_->traits = std::move(traits);

  uint64_t key = combineKey(hashName(seeds.name()), static_cast<uint64_t>(seeds.kind_));
  key = combineKey(key, static_cast<uint64_t>(seeds.count()));
  for (int64_t id : seeds.ends_) key = combineKey(key, static_cast<uint64_t>(id));
  for (int64_t time : seeds.times_) key = combineKey(key, static_cast<uint64_t>(time));
  if (seeds.labels_.defined()) {
    key = combineKey(key, static_cast<uint64_t>(seeds.labels_.scalar_type()));
    key = combineKey(key, checksum64({static_cast<const std::byte*>(seeds.labels_.data_ptr()), seeds.labels_.nbytes()}));
  }
  key = combineKey(key, fingerprintOf(link, options.negatives));
  impl_->setOwnPosition(combineKey(key, api::fingerprint(core, sampling, deal)), deal);
  impl_->configure(options, sampling, core.graph->schema().relations[relation].source);
  sampler::StreamOptions stream = impl_->streamOptions(options);
  stream.make = [sampler](const sampler::BatchSampler* batches, sampler::BatchRequest request,
                          sampler::BatchWorkspace* workspace, std::unique_ptr<sampler::SampledBatch> memory) {
    return sampler->sample(batches, std::move(request), workspace, std::move(memory));
  };
  stream.requestsBeforeHops = link.strict ? sampler::kMaxRedraws + 1 : 0;
  const runtime::ScopedThreadBinding samplers(core.session->serviceProcessors());
  impl_->stream = std::make_unique<sampler::BatchStream>(core.graph, core.session->agent(), std::move(dealer),
                                                         std::move(sampling), std::move(stream), core.metrics);
}

LinkLoader::~LinkLoader() = default;
LinkLoader::LinkLoader(LinkLoader&&) noexcept = default;
LinkLoader& LinkLoader::operator=(LinkLoader&&) noexcept = default;

int64_t LinkLoader::numBatches() const { return static_cast<int64_t>(impl_->stream->dealer().numSteps()); }

LinkLoader::Epoch LinkLoader::epoch(int64_t epoch) {
  impl_->start(epoch);
  return Epoch(this);
}

std::string LinkLoader::state() const { return impl_->state(); }
int64_t LinkLoader::restore(const std::string& state, OtherProcesses otherProcesses) {
  return impl_->restore(state, otherProcesses);
}

bool LinkLoader::next(LinkBatch* batch) {
  std::shared_ptr<BatchCore> core = impl_->next();
  if (core == nullptr) return false;
  *batch = LinkBatch(std::make_shared<LinkBatchCore>(LinkBatchCore{std::move(core), impl_->traits}));
  return true;
}

}  // namespace farhop
