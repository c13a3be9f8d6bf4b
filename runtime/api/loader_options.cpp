#include "runtime/api/loader_options.h"

#include <algorithm>

#include "base/random.h"
#include "runtime/api/status_error.h"
#include "runtime/api/walk_options.h"

namespace farhop::api {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

std::vector<std::vector<int64_t>> fanoutsByHop(const GraphCore& core, const NeighborLoaderOptions& options) {
  size_t hops = options.fanouts.size();
  if (hops == 0 && !options.fanoutsByRelation.empty()) hops = options.fanoutsByRelation.begin()->second.size();
  if (hops == 0 && options.subgraph == Subgraph::kInduced) return {};
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
  sampling.fanouts = fanoutsByHop(core, options);
  sampling.subgraph = options.subgraph == Subgraph::kInduced ? sampler::Subgraph::kInduced : sampler::Subgraph::kSampled;
  if (options.importance) {
    sampling.importance = importanceOptions(core, options);
    return sampling;
  }
  sampling.kinds = kindsOf(core, options, sampling.fanouts);
  sampling.expand = options.expand == Expand::kAll ? sampler::Expand::kAll : sampler::Expand::kNew;
  return sampling;
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
  for (uint64_t part : {sampling.seed, uint64_t{sampling.edgeIds}, deal.batchSize, uint64_t{deal.shuffle},
                        static_cast<uint64_t>(deal.deal), static_cast<uint64_t>(deal.tail),
                        static_cast<uint64_t>(deal.numMachines), static_cast<uint64_t>(deal.procsPerMachine)}) {
    key = combineKey(key, part);
  }
  return key;
}

}  // namespace farhop::api
