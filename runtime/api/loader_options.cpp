#include "runtime/api/loader_options.h"

#include <algorithm>
#include <map>

#include "base/random.h"
#include "runtime/api/status_error.h"
#include "runtime/api/walk_options.h"
#include "sampler/seed_set.h"
#include "sampler/tree_nodes.h"

namespace farhop::api {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

// The relations of which an option for relation `name` speaks, by the direction.
std::vector<size_t> relationsOf(const GraphCore& core, Direction direction, const std::string& name) {
  const std::vector<partition::Relation>& relations = core.graph->schema().relations;
  std::vector<size_t> forward;
  for (size_t r = 0; r < relations.size(); ++r) {
    if (relations[r].reverseOf < 0) forward.push_back(r);
  }
  // Without a name: the only one, also beside its reverse.
  const size_t named = direction != Direction::kAsStored && name.empty() && forward.size() == 1
                           ? forward[0]
                           : static_cast<size_t>(core.relation(name));
  if (direction == Direction::kAsStored) return {named};
  if (relations[named].reverseOf >= 0) {
    refuse(absl::StrCat("relation '", name, "' is a reverse one; with a direction, name ",
                        core.graph->schema().relationText(relations[named].reverseOf)));
  }
  std::vector<size_t> both = {named};
  for (size_t r = 0; r < relations.size(); ++r) {
    if (relations[r].reverseOf == static_cast<int>(named)) both.push_back(r);
  }
  return both;
}

// One value per relation: those that `own` names, otherwise `common`.
template <typename T>
std::vector<T> byRelation(const GraphCore& core, Direction direction, const T& common, const std::map<std::string, T>& own) {
  std::vector<T> values(core.graph->schema().relations.size(), common);
  std::vector<const std::string*> names(values.size());
  for (const auto& [name, value] : own) {
    for (size_t relation : relationsOf(core, direction, name)) {
      if (names[relation] != nullptr) refuseTwoNames(core, static_cast<int>(relation), *names[relation], name);
      names[relation] = &name;
      values[relation] = value;
    }
  }
  return values;
}

// Out-neighbours are the in-neighbours of reverse relations.
void checkReverse(const GraphCore& core, size_t relation) {
  const partition::Schema& schema = core.graph->schema();
  for (const partition::Relation& other : schema.relations) {
    if (other.reverseOf == static_cast<int>(relation)) return;
  }
  throw Error(ErrorCode::kNotFound,
              absl::StrCat(core.graph->store().directory(), " has no reverse of ",
                           schema.relationText(static_cast<int>(relation)),
                           ", through which its out-neighbours would be drawn; partition the data with --add-reverse"));
}

std::vector<std::vector<int64_t>> fanoutsByHop(const GraphCore& core, const NeighborLoaderOptions& options) {
  size_t hops = options.fanouts.size();
  if (hops == 0 && !options.fanoutsByRelation.empty()) hops = options.fanoutsByRelation.begin()->second.size();
  if (hops == 0 && options.subgraph == Subgraph::kInduced) return {};
  if (hops == 0) refuse("fanouts is empty; give one number per hop, e.g. {15, 10}");
  const std::vector<partition::Relation>& relations = core.graph->schema().relations;
  const std::vector<int64_t> common = options.fanouts.empty() ? std::vector<int64_t>(hops, 0) : options.fanouts;
  for (const auto& [name, own] : options.fanoutsByRelation) {
    if (own.size() == hops) continue;
    refuse(absl::StrCat("fanouts of relation '", name, "' have ", own.size(), " hops, the others ", hops));
  }
  const auto byRelations = byRelation(core, options.direction, common, options.fanoutsByRelation);
  std::vector<std::vector<int64_t>> fanouts(hops, std::vector<int64_t>(relations.size()));
  for (size_t r = 0; r < relations.size(); ++r) {
    const bool reverse = relations[r].reverseOf >= 0;
    const bool draws = std::any_of(byRelations[r].begin(), byRelations[r].end(), [](int64_t fanout) { return fanout != 0; });
    const bool outwards = options.direction == Direction::kOut || options.direction == Direction::kBoth;
    if (outwards && !reverse && draws) checkReverse(core, r);
    const bool left = (options.direction == Direction::kIn && reverse) || (options.direction == Direction::kOut && !reverse);
    for (size_t hop = 0; hop < hops; ++hop) fanouts[hop][r] = left ? 0 : byRelations[r][hop];
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

// What draws in place of a uniform draw.
sampler::DrawKind plainKind(const NeighborLoaderOptions& options, bool replace, bool hasTimes) {
  using Kind = sampler::DrawKind;
  if (options.labor != Labor::kOff) {
    return options.labor == Labor::kPoisson ? Kind::kLaborPoisson : Kind::kLabor;
  }
  if (options.temporal == Temporal::kMostRecent && hasTimes) return Kind::kMostRecent;
  return replace ? Kind::kUniformWithReplacement : Kind::kUniform;
}

// Which of a relation's options cannot go together.
void checkTogether(const NeighborLoaderOptions& options, bool replace, const std::string& weight, bool hasTimes,
                   const std::string& relation) {
  const bool recent = options.temporal == Temporal::kMostRecent && hasTimes;
  const char* const kind = recent ? "the most recent edges are taken" : "labor shares draws";
  if (options.labor != Labor::kOff && recent) refuse("labor and Temporal::kMostRecent exclude each other");
  if (options.labor == Labor::kOff && !recent) return;
  if (replace) refuse(absl::StrCat("relation '", relation, "': ", kind, " without replacement; set no replace"));
  if (!weight.empty()) refuse(absl::StrCat("relation '", relation, "': ", kind, " without weights; set no weight"));
}

std::vector<sampler::RelationKind> kindsOf(const GraphCore& core, const NeighborLoaderOptions& options,
                                           const std::vector<std::vector<int64_t>>& fanouts) {
  const partition::Schema& schema = core.graph->schema();
  const auto replaces = byRelation(core, options.direction, options.replace, options.replaceByRelation);
  const auto weights = byRelation(core, options.direction, options.weight, options.weightByRelation);
  std::vector<sampler::RelationKind> kinds(schema.relations.size());
  for (size_t r = 0; r < kinds.size(); ++r) {
    const int relation = static_cast<int>(r);
    bool draws = false;
    for (const auto& hop : fanouts) {
      draws = draws || hop[r] != 0;
      if (!replaces[r] || hop[r] <= sampler::kMaxFanoutWithReplacement) continue;
      refuse(absl::StrCat("fanout ", hop[r], " of relation '", schema.relationText(relation),
                          "' is too large with replacement; at most ", sampler::kMaxFanoutWithReplacement));
    }
    using Kind = sampler::DrawKind;
    if (draws) checkTogether(options, replaces[r], weights[r], schema.hasTimes(relation), schema.relationText(relation));
    kinds[r].kind = plainKind(options, replaces[r], schema.hasTimes(relation));
    if (!draws || weights[r].empty()) continue;
    kinds[r].kind = replaces[r] ? Kind::kWeightedWithReplacement : Kind::kWeighted;
    kinds[r].weight = valueOrThrow(sampler::weightIndex(*core.graph, relation, weights[r]));
    valueOrThrow(core.graph->edgeWeights(relation, kinds[r].weight));  // checked and made before the first batch
  }
  return kinds;
}

// Something that is drawn (or induced) must have times: otherwise nothing would be limited, which cannot be meant.
void checkTimes(const GraphCore& core, const std::vector<std::vector<int64_t>>& fanouts, bool induced) {
  const partition::Schema& schema = core.graph->schema();
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    const bool draws = std::any_of(fanouts.begin(), fanouts.end(), [&](const auto& hop) { return hop[r] != 0; });
    if ((draws || induced) && schema.hasTimes(static_cast<int>(r))) return;
  }
  throw Error(ErrorCode::kNotFound,
              absl::StrCat("temporal sampling draws from no relation with times; ", core.graph->store().directory(),
                           " has times of: ", sampler::timesText(schema),
                           "; declare a feature as times when the data is partitioned"));
}

}  // namespace

sampler::SamplingOptions commonSamplingOptions(const NeighborLoaderOptions& options) {
  if (options.samplerThreads < 1) refuse(absl::StrCat("samplerThreads is ", options.samplerThreads, "; at least 1"));
  if (options.batchesUnderWay < 1) refuse(absl::StrCat("batchesUnderWay is ", options.batchesUnderWay, "; at least 1"));
  if (options.requestTimeout.count() < 1) refuse("requestTimeout must be at least 1 ms");
  sampler::SamplingOptions sampling;
  sampling.seed = options.seed;
  sampling.edgeIds = options.edgeIds;
  sampling.requestTimeout = options.requestTimeout;
  return sampling;
}

sampler::SamplingOptions samplingOptions(const GraphCore& core, const NeighborLoaderOptions& options) {
  sampler::SamplingOptions sampling = commonSamplingOptions(options);
  const bool limited = options.disjoint || options.temporal != Temporal::kOff;
  if (options.layerDependency && options.labor == Labor::kOff) refuse("layerDependency needs labor");
  if (options.importance && (limited || options.labor != Labor::kOff || options.direction != Direction::kAsStored)) {
    refuse("importance neighbours are not disjoint or temporal, and have neither labor nor a direction");
  }
  sampling.fanouts = fanoutsByHop(core, options);
  sampling.subgraph = options.subgraph == Subgraph::kInduced ? sampler::Subgraph::kInduced : sampler::Subgraph::kSampled;
  if (options.importance) {
    sampling.importance = importanceOptions(core, options);
    return sampling;
  }
  sampling.kinds = kindsOf(core, options, sampling.fanouts);
  sampling.expand = options.expand == Expand::kAll ? sampler::Expand::kAll : sampler::Expand::kNew;
  sampling.temporal = options.temporal != Temporal::kOff;
  sampling.disjoint = options.disjoint || sampling.temporal;
  sampling.layerDependency = options.layerDependency;
  if (sampling.temporal) checkTimes(core, sampling.fanouts, sampling.subgraph == sampler::Subgraph::kInduced);
  if (sampling.disjoint) {
    okOrThrow(sampler::checkTrees(*core.graph, static_cast<uint64_t>(std::max<int64_t>(options.batchSize, 0))));
  }
  return sampling;
}

void refuseTwoNames(const GraphCore& core, int relation, const std::string& one, const std::string& other) {
  refuse(absl::StrCat("options name relation ", core.graph->schema().relationText(relation), " twice, as '", one, "' and as '",
                      other, "'; name it once"));
}

void checkSeedsDraw(const GraphCore& core, const sampler::SamplingOptions& sampling, const std::vector<int>& seedTypes) {
  if (sampling.walks || sampling.importance || sampling.subgraph == sampler::Subgraph::kInduced) return;
  const partition::Schema& schema = core.graph->schema();
  const auto draws = [&](size_t relation) {
    return std::any_of(sampling.fanouts.begin(), sampling.fanouts.end(), [&](const auto& hop) { return hop[relation] != 0; });
  };
  bool drawsAny = false;
  std::string leading;
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    const bool leads = std::find(seedTypes.begin(), seedTypes.end(), schema.relations[r].destination) != seedTypes.end();
    if (leads && draws(r)) return;
    drawsAny = drawsAny || draws(r);
    if (leads) absl::StrAppend(&leading, leading.empty() ? "" : ", ", schema.relationText(static_cast<int>(r)));
  }
  if (!drawsAny) return;  // nothing but the seeds is wanted
  refuse(absl::StrCat("the seeds are of type '", schema.nodeTypes[seedTypes.front()].name,
                      "', into which no relation leads that draws, so that all blocks would be empty; relations into it: ",
                      leading.empty() ? "none (partition with --add-reverse to have reverse ones)" : leading,
                      "; give one of them a fanout, or set all fanouts to 0"));
}

sampler::DealOptions dealOptions(const GraphCore& core, const NeighborLoaderOptions& options) {
  if (options.batchSize < 1) refuse(absl::StrCat("batchSize is ", options.batchSize, "; it must be at least 1"));
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
  return deal;
}

uint64_t fingerprint(const GraphCore& core, const sampler::SamplingOptions& sampling, const sampler::DealOptions& deal) {
  uint64_t key = core.graph->store().fingerprint();
  for (const auto& hop : sampling.fanouts) {
    for (int64_t fanout : hop) key = combineKey(key, static_cast<uint64_t>(fanout));
    key = combineKey(key, hop.size());
  }
  for (size_t r = 0; r < sampling.kinds.size(); ++r) {
    const sampler::RelationKind& kind = sampling.kinds[r];
    if (kind.kind == sampler::DrawKind::kUniform) continue;
    key = combineKey(combineKey(combineKey(key, r), static_cast<uint64_t>(kind.kind)), kind.weight);
  }
  key ^= walkFingerprint(sampling);
  if (sampling.expand == sampler::Expand::kAll) key = combineKey(key, hashName("expand all"));
  if (sampling.disjoint) key = combineKey(key, hashName("disjoint"));
  if (sampling.temporal) key = combineKey(key, hashName("temporal"));
  if (sampling.layerDependency) key = combineKey(key, hashName("layer dependency"));
  for (uint64_t part : {sampling.seed, uint64_t{sampling.edgeIds}, deal.batchSize, uint64_t{deal.shuffle},
                        static_cast<uint64_t>(deal.deal), static_cast<uint64_t>(deal.tail)}) {
    key = combineKey(key, part);
  }
  return key;
}

}  // namespace farhop::api
