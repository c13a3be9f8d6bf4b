#include "runtime/api/walk_options.h"

#include <bit>
#include <utility>

#include "base/random.h"
#include "runtime/api/loader_options.h"
#include "runtime/api/status_error.h"
#include "sampler/neighbor_draw.h"
#include "sampler/walker.h"

namespace farhop::api {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

std::vector<sampler::WalkStep> metapathOf(const GraphCore& core, const std::vector<std::string>& names,
                                          const std::string& weight, const std::map<std::string, std::string>& weightByRelation) {
  std::vector<sampler::WalkStep> metapath;
  if (names.empty()) metapath.push_back({core.relation("")});
  for (const std::string& name : names) metapath.push_back({core.relation(name)});
  std::map<int, std::pair<std::string, std::string>> own;  // relation -> its name as given, feature
  for (const auto& [name, feature] : weightByRelation) {
    const auto [at, isNew] = own.try_emplace(core.relation(name), name, feature);
    if (!isNew) refuseTwoNames(core, at->first, at->second.first, name);
  }
  for (sampler::WalkStep& step : metapath) {
    const auto named = own.find(step.relation);
    const std::string& feature = named == own.end() ? weight : named->second.second;
    if (feature.empty()) continue;
    step.weighted = true;
    step.weight = valueOrThrow(sampler::weightIndex(*core.graph, step.relation, feature));
  }
  return metapath;
}

// `walks` at once, each of which visits its start and plan.length nodes.
void checkSize(uint64_t walks, const sampler::WalkPlan& plan, const char* what) {
  if (walks <= sampler::kMaxWalksTogether && walks <= sampler::kMaxNodesTogether / (plan.length + uint64_t{1})) return;
  refuse(absl::StrCat(what, " are ", walks, " walks of ", plan.length, " steps; at most ", sampler::kMaxWalksTogether,
                      " walks and ", sampler::kMaxNodesTogether, " visited nodes are possible"));
}

uint64_t keyOf(const sampler::WalkPlan& plan, uint64_t key) {
  for (const sampler::WalkStep& step : plan.metapath) {
    key = combineKey(combineKey(key, static_cast<uint64_t>(step.relation)), step.weighted ? step.weight + uint64_t{1} : 0);
  }
  for (uint64_t part : {plan.metapath.size(), uint64_t{plan.length}, std::bit_cast<uint64_t>(plan.restart),
                        std::bit_cast<uint64_t>(plan.p), std::bit_cast<uint64_t>(plan.q)}) {
    key = combineKey(key, part);
  }
  return key;
}

}  // namespace

sampler::WalkOptions walkOptions(const GraphCore& core, const RandomWalkLoaderOptions& options) {
  if (options.length < 1 || options.length > sampler::kMaxWalkLength) {
    refuse(absl::StrCat("length is ", options.length, "; walks have 1 to ", sampler::kMaxWalkLength, " steps"));
  }
  if (options.walksPerSeed < 1) refuse(absl::StrCat("walksPerSeed is ", options.walksPerSeed, "; it must be at least 1"));
  if (options.batchSize < 1) refuse(absl::StrCat("batchSize is ", options.batchSize, "; it must be at least 1"));
  sampler::WalkOptions walks;
  walks.plan.metapath = metapathOf(core, options.metapath, options.weight, options.weightByRelation);
  walks.plan.length = static_cast<uint32_t>(options.length);
  walks.plan.restart = options.restart;
  walks.plan.p = options.p;
  walks.plan.q = options.q;
  okOrThrow(sampler::checkWalkPlan(walks.plan, *core.graph));
  const uint64_t perSeed = static_cast<uint64_t>(options.walksPerSeed), seeds = static_cast<uint64_t>(options.batchSize);
  if (perSeed > sampler::kMaxWalksTogether || seeds > sampler::kMaxWalksTogether) {
    refuse(absl::StrCat("batchSize ", seeds, " and walksPerSeed ", perSeed, " make more than ", sampler::kMaxWalksTogether,
                        " walks"));
  }
  checkSize(perSeed * seeds, walks.plan, "batchSize times walksPerSeed");
  walks.walksPerSeed = static_cast<uint32_t>(perSeed);
  okOrThrow(sampler::prepareWalks(walks.plan, *core.graph));
  return walks;
}

sampler::ImportanceOptions importanceOptions(const GraphCore& core, const NeighborLoaderOptions& options) {
  const ImportanceSampling& asked = *options.importance;
  if (asked.numWalks < 1) refuse(absl::StrCat("importance.numWalks is ", asked.numWalks, "; it must be at least 1"));
  if (asked.walkLength < 1) refuse(absl::StrCat("importance.walkLength is ", asked.walkLength, "; it must be at least 1"));
  if (options.edgeIds) refuse("importance neighbours are no edges of the graph and have no ids; leave edgeIds off");
  if (options.expand != Expand::kNew) refuse("importance neighbours are drawn once for each node; leave expand at kNew");
  if (options.subgraph != Subgraph::kSampled) {
    refuse("importance neighbours and the edges of an induced subgraph are not combined; choose one");
  }
  if (!options.fanoutsByRelation.empty() || options.replace || !options.replaceByRelation.empty() ||
      !options.weight.empty() || !options.weightByRelation.empty()) {
    refuse("with importance neighbours only `fanouts` apply; relations and weights are those of `importance`");
  }
  sampler::ImportanceOptions importance;
  sampler::WalkPlan& plan = importance.plan;
  plan.metapath = metapathOf(core, asked.metapath, asked.weight, {});
  const uint64_t most = sampler::kMaxWalkLength / plan.metapath.size();
  if (static_cast<uint64_t>(asked.walkLength) > most) {
    refuse(absl::StrCat("importance.walkLength is ", asked.walkLength, "; at most ", most, " passes of ",
                        plan.metapath.size(), " steps are possible"));
  }
  plan.length = static_cast<uint32_t>(static_cast<uint64_t>(asked.walkLength) * plan.metapath.size());
  plan.restart = asked.restart;
  okOrThrow(sampler::checkWalkPlan(plan, *core.graph));
  const int from = sampler::walkNodeType(plan, *core.graph, 0), to = sampler::walkNodeType(plan, *core.graph, plan.length);
  const auto& types = core.graph->schema().nodeTypes;
  if (from != to) {
    refuse(absl::StrCat("importance.metapath leads from '", types[from].name, "' to '", types[to].name,
                        "'; importance neighbours are of a node's own type"));
  }
  checkSize(static_cast<uint64_t>(asked.numWalks), plan, "importance.numWalks");
  importance.walksPerNode = static_cast<uint32_t>(asked.numWalks);
  okOrThrow(sampler::prepareWalks(plan, *core.graph));
  return importance;
}

void checkWalkStart(const GraphCore& core, const sampler::SamplingOptions& sampling, int nodeType) {
  if (!sampling.walks && !sampling.importance) return;
  const sampler::WalkPlan& plan = sampling.walks ? sampling.walks->plan : sampling.importance->plan;
  const int start = sampler::walkNodeType(plan, *core.graph, 0);
  if (start == nodeType) return;
  const auto& types = core.graph->schema().nodeTypes;
  refuse(absl::StrCat("the metapath begins at '", types[start].name, "' (a step along ",
                      core.graph->schema().relationText(plan.metapath[0].relation),
                      " goes from its destination to its source), but the seeds are '", types[nodeType].name, "'"));
}

uint64_t walkFingerprint(const sampler::SamplingOptions& sampling) {
  uint64_t key = 0;
  if (sampling.subgraph == sampler::Subgraph::kInduced) key = combineKey(key, hashName("induced"));
  if (sampling.walks) key = keyOf(sampling.walks->plan, combineKey(key, sampling.walks->walksPerSeed));
  if (sampling.importance) {
    key = keyOf(sampling.importance->plan, combineKey(combineKey(key, hashName("importance")), sampling.importance->walksPerNode));
  }
  return key;
}

}  // namespace farhop::api
