#include "sampler/link_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"

namespace farhop::sampler {

absl::StatusOr<std::shared_ptr<const LinkSampler>> LinkSampler::make(std::shared_ptr<const PartitionedGraph> graph,
                                                                     rpc::Agent* agent,
                                                                     std::shared_ptr<const SeedPairs> pairs,
                                                                     LinkOptions options) {
  std::shared_ptr<LinkSampler> made(new LinkSampler());
  if (options.negativesPerEdge > 0) {
    FARHOP_ASSIGN_OR_RETURN(made->destinations_, NegativeNodeDraw::make(*graph, options.relation, true, options.nodes));
    if (options.drawSources) {
      FARHOP_ASSIGN_OR_RETURN(made->sources_, NegativeNodeDraw::make(*graph, options.relation, false, options.nodes));
    }
  }
  made->graph_ = std::move(graph);
  made->agent_ = agent;
  made->pairs_ = std::move(pairs);
  made->options_ = options;
  return std::shared_ptr<const LinkSampler>(std::move(made));
}

NodePair LinkSampler::drawNegative(uint64_t batchKey, uint64_t j, uint64_t occurrence, uint64_t source) const {
  KeyedRandom random(nodeKey(batchKey, j, occurrence));
  NodePair pair;
  pair.destination = destinations_->gid(random.next());
  pair.source = sources_ ? sources_->gid(random.next()) : source;
  return pair;
}

absl::Status LinkSampler::checkNegatives(const std::vector<NodePair>& negatives) const {
  const partition::Relation& edges = graph_->schema().relations[options_.relation];
  const uint64_t sources = graph_->book().numNodes(edges.source), destinations = graph_->book().numNodes(edges.destination);
  for (const NodePair& pair : negatives) {
    if (pair.source < sources && pair.destination < destinations) continue;
    return absl::DataLossError(absl::StrCat(graph_->store().directory(),
                                            ": an id map is damaged; check the store with farhop inspect --verify"));
  }
  return absl::OkStatus();
}

Task<absl::StatusOr<std::vector<uint32_t>>> LinkSampler::redraw(uint64_t batchKey, const std::vector<SeedPair>* seeds,
                                                                std::vector<NodePair>* negatives,
                                                                Executor* executor) const {
  using Result = absl::StatusOr<std::vector<uint32_t>>;
  // Seed edges may be missing from the store: a split that is held out.
  std::vector<std::pair<uint64_t, uint64_t>> own;
  for (const SeedPair& seed : *seeds) own.emplace_back(seed.source, seed.destination);
  std::sort(own.begin(), own.end());
  std::vector<uint32_t> open(negatives->size());
  for (uint32_t j = 0; j < open.size(); ++j) open[j] = j;
  for (int round = 0; !open.empty(); ++round) {
    std::vector<NodePair> asked;
    for (uint32_t j : open) asked.push_back((*negatives)[j]);
    absl::StatusOr<std::vector<uint8_t>> found =
        co_await findEdges(graph_, agent_, executor, options_.relation, std::move(asked), options_.requestTimeout);
    if (!found.ok()) co_return Result(found.status());
    std::vector<uint32_t> still;
    for (size_t i = 0; i < open.size(); ++i) {
      const NodePair& pair = (*negatives)[open[i]];
      const bool isSeed = std::binary_search(own.begin(), own.end(), std::pair(pair.source, pair.destination));
      if ((*found)[i] != 0 || isSeed) still.push_back(open[i]);
    }
    open = std::move(still);
    if (round == kMaxRedraws) break;
    for (uint32_t j : open) {
      const uint64_t edge = edgeOfNegative(j, seeds->size(), negatives->size());
      (*negatives)[j] = drawNegative(batchKey, j, static_cast<uint64_t>(round) + 1, (*seeds)[edge].source);
    }
    const absl::Status drawn = checkNegatives(*negatives);
    if (!drawn.ok()) co_return Result(drawn);
  }
  co_return Result(std::move(open));
}

void LinkSampler::excludeSeedEdges(const std::vector<SeedPair>& seeds, std::vector<ExcludedPair>* excluded) const {
  for (const SeedPair& seed : seeds) {
    if (options_.excludeSeeds) excluded->push_back({options_.relation, seed.destination, seed.source});
    if (options_.reverseRelation >= 0) excluded->push_back({options_.reverseRelation, seed.source, seed.destination});
  }
}

Task<absl::StatusOr<std::unique_ptr<SampledBatch>>> LinkSampler::sample(const BatchSampler* sampler,
                                                                        BatchRequest request,
                                                                        BatchWorkspace* workspace,
                                                                        std::unique_ptr<SampledBatch> memory) const {
  using Result = absl::StatusOr<std::unique_ptr<SampledBatch>>;
  LinkSeeds link;
  std::vector<SeedPair> seeds;
  for (uint64_t index : request.seeds) seeds.push_back(pairs_->at(index));
  link.edges = seeds.size();
  link.negatives = static_cast<uint64_t>(std::ceil(static_cast<double>(seeds.size()) * options_.negativesPerEdge));
  for (const SeedPair& seed : seeds) link.positions.push_back(seed.position);
  const uint64_t batchKey = hopKey(options_.seed, request.epoch, request.number, 0, Purpose::kNegatives,
                                   graph_->relationHash(options_.relation));
  std::vector<NodePair> negatives;
  for (uint64_t j = 0; j < link.negatives; ++j) {
    negatives.push_back(drawNegative(batchKey, j, 0, seeds[edgeOfNegative(j, seeds.size(), link.negatives)].source));
  }
  absl::Status status = checkNegatives(negatives);
  if (status.ok() && options_.strict && !negatives.empty()) {
    absl::StatusOr<std::vector<uint32_t>> unresolved = co_await redraw(batchKey, &seeds, &negatives, sampler->executor());
    status = unresolved.status();
    if (unresolved.ok()) link.unresolved = *std::move(unresolved);
  }
  if (!status.ok()) co_return Result(annotate(status, absl::StrCat("drawing negatives of batch ", request.number)));
  const partition::Relation& edges = graph_->schema().relations[options_.relation];
  request.seedType = edges.source;
  request.otherType = edges.destination;
  request.seeds.clear();
  for (const SeedPair& seed : seeds) {
    request.seeds.push_back(seed.source);
    request.otherSeeds.push_back(seed.destination);
  }
  for (const NodePair& pair : negatives) {
    if (options_.drawSources) request.seeds.push_back(pair.source);
    request.otherSeeds.push_back(pair.destination);
  }
  excludeSeedEdges(seeds, &request.excluded);
  Result batch = co_await sampler->sample(std::move(request), workspace, std::move(memory));
  if (batch.ok()) (*batch)->link = std::move(link);
  co_return std::move(batch);
}

}  // namespace farhop::sampler
