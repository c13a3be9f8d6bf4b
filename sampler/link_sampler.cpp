#include "sampler/link_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"

namespace farhop::sampler {

namespace {

template <typename T>
void takeOver(std::vector<T>* from, std::vector<T>* to) {
  to->swap(*from);
  to->clear();
}

// What the last batches held, for the next one. `over` may be null.
void takeMemory(SampledBatch* over, LinkWorkspace* work, BatchRequest* request, LinkSeeds* link) {
  takeOver(&work->excluded, &request->excluded);
  takeOver(&work->trees, &request->trees);
  if (over == nullptr) return;
  takeOver(&over->otherSeeds, &request->otherSeeds);
  takeOver(&over->treeTimes, &request->treeTimes);
  takeOver(&over->link.positions, &link->positions);
  takeOver(&over->link.unresolved, &link->unresolved);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LinkSampler>> LinkSampler::make(std::shared_ptr<const PartitionedGraph> graph,
                                                                     rpc::Agent* agent,
                                                                     std::shared_ptr<const SeedPairs> pairs,
                                                                     LinkOptions options) {
  std::shared_ptr<LinkSampler> made(new LinkSampler());
  if (options.negativesPerEdge > 0) {
    FARHOP_ASSIGN_OR_RETURN(made->destinations_, NegativeNodeDraw::make(*graph, options.relation, true, options.nodes,
                                                                        options.destinationTimes));
    if (options.drawSources) {
      FARHOP_ASSIGN_OR_RETURN(made->sources_, NegativeNodeDraw::make(*graph, options.relation, false, options.nodes,
                                                                     options.sourceTimes));
    }
  }
  made->graph_ = std::move(graph);
  made->agent_ = agent;
  made->pairs_ = std::move(pairs);
  made->options_ = std::move(options);
  return std::shared_ptr<const LinkSampler>(std::move(made));
}

NodePair LinkSampler::drawNegative(const Drawing& drawing, uint64_t j, uint64_t occurrence) const {
  const SeedPair& seed = drawing.work->seeds[edgeOfNegative(j, drawing.link->edges, drawing.link->negatives)];
  KeyedRandom random(nodeKey(drawing.key, j, occurrence));
  // Where every node is too late, the first of all: the caller says so.
  const auto draw = [&](const NegativeNodeDraw& nodes) {
    const uint64_t candidates = drawing.temporal ? nodes.candidates(seed.time) : nodes.allCandidates();
    return nodes.gid(random.next(), std::max<uint64_t>(candidates, 1));
  };
  NodePair pair;
  pair.destination = draw(*destinations_);
  pair.source = sources_ ? draw(*sources_) : seed.source;
  return pair;
}

bool LinkSampler::hasCandidates(const Drawing& drawing, uint64_t j) const {
  if (!drawing.temporal) return true;
  const int64_t time = drawing.work->seeds[edgeOfNegative(j, drawing.link->edges, drawing.link->negatives)].time;
  return destinations_->candidates(time) > 0 && (!sources_ || sources_->candidates(time) > 0);
}

absl::Status LinkSampler::drawNegatives(const Drawing& drawing) const {
  std::vector<NodePair>& negatives = drawing.work->negatives;
  negatives.clear();
  for (uint64_t j = 0; j < drawing.link->negatives; ++j) {
    negatives.push_back(drawNegative(drawing, j, 0));
    if (!hasCandidates(drawing, j)) drawing.link->unresolved.push_back(static_cast<uint32_t>(j));
  }
  return checkNegatives(negatives);
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

Task<absl::Status> LinkSampler::redraw(Drawing drawing, Executor* executor) const {
  LinkWorkspace& work = *drawing.work;
  // Seed edges may be missing from the store: a split that is held out.
  work.own.clear();
  for (const SeedPair& seed : work.seeds) work.own.emplace_back(seed.source, seed.destination);
  std::sort(work.own.begin(), work.own.end());
  std::vector<uint32_t>& open = work.open;
  open.clear();
  // Those that had no choice stay what they are.
  std::vector<uint32_t>& unresolved = drawing.link->unresolved;
  for (uint32_t j = 0; j < work.negatives.size(); ++j) {
    if (!std::binary_search(unresolved.begin(), unresolved.end(), j)) open.push_back(j);
  }
  for (int round = 0; !open.empty(); ++round) {
    std::vector<NodePair> asked;
    for (uint32_t j : open) asked.push_back(work.negatives[j]);
    absl::StatusOr<std::vector<uint8_t>> found =
        co_await findEdges(graph_, agent_, executor, options_.relation, std::move(asked), options_.requestTimeout);
    if (!found.ok()) co_return found.status();
    size_t still = 0;
    for (size_t i = 0; i < open.size(); ++i) {
      const NodePair& pair = work.negatives[open[i]];
      const bool isSeed = std::binary_search(work.own.begin(), work.own.end(), std::pair(pair.source, pair.destination));
      if ((*found)[i] != 0 || isSeed) open[still++] = open[i];
    }
    open.resize(still);
    if (round == kMaxRedraws) break;
    for (uint32_t j : open) work.negatives[j] = drawNegative(drawing, j, static_cast<uint64_t>(round) + 1);
    const absl::Status drawn = checkNegatives(work.negatives);
    if (!drawn.ok()) co_return drawn;
  }
  unresolved.insert(unresolved.end(), open.begin(), open.end());
  std::sort(unresolved.begin(), unresolved.end());
  co_return absl::OkStatus();
}

void LinkSampler::excludeSeedEdges(const std::vector<SeedPair>& seeds, bool disjoint, std::vector<ExcludedPair>* excluded) const {
  for (uint32_t i = 0; i < seeds.size(); ++i) {
    const SeedPair& seed = seeds[i];
    const uint32_t tree = disjoint ? i : 0;
    if (options_.excludeSeeds) excluded->push_back({options_.relation, seed.destination, seed.source, tree});
    if (options_.reverseRelation >= 0) excluded->push_back({options_.reverseRelation, seed.source, seed.destination, tree});
  }
}

void LinkSampler::fillRequest(const Drawing& drawing, const SamplingOptions& sampling, BatchRequest* request) const {
  const LinkWorkspace& work = *drawing.work;
  const partition::Relation& edges = graph_->schema().relations[options_.relation];
  request->seedType = edges.source;
  request->otherType = edges.destination;
  request->seeds.clear();
  for (const SeedPair& seed : work.seeds) {
    request->seeds.push_back(seed.source);
    request->otherSeeds.push_back(seed.destination);
  }
  for (const NodePair& pair : work.negatives) {
    if (options_.drawSources) request->seeds.push_back(pair.source);
    request->otherSeeds.push_back(pair.destination);
  }
  excludeSeedEdges(work.seeds, sampling.disjoint, &request->excluded);
  if (!sampling.disjoint) return;
  const auto addTrees = [&](bool withNegatives) {
    for (uint32_t i = 0; i < drawing.link->edges; ++i) request->trees.push_back(i);
    for (uint64_t j = 0; withNegatives && j < drawing.link->negatives; ++j) {
      request->trees.push_back(static_cast<uint32_t>(edgeOfNegative(j, drawing.link->edges, drawing.link->negatives)));
    }
  };
  addTrees(options_.drawSources);
  addTrees(true);
  if (!sampling.temporal) return;
  for (const SeedPair& seed : work.seeds) request->treeTimes.push_back(seed.time);
}

Task<absl::StatusOr<std::unique_ptr<SampledBatch>>> LinkSampler::sample(const BatchSampler* sampler,
                                                                        BatchRequest request,
                                                                        BatchWorkspace* workspace,
                                                                        std::unique_ptr<SampledBatch> memory) const {
  using Result = absl::StatusOr<std::unique_ptr<SampledBatch>>;
  const SamplingOptions& sampling = sampler->options();
  LinkSeeds link;
  if (sampling.temporal && !pairs_->hasTimes()) co_return Result(absl::InvalidArgumentError("the seed edges have no times"));
  LinkWorkspace& work = workspace->link;
  takeMemory(memory.get(), &work, &request, &link);
  work.seeds.clear();
  for (uint64_t index : request.seeds) work.seeds.push_back(pairs_->at(index));
  for (const SeedPair& seed : work.seeds) link.positions.push_back(seed.position);
  link.edges = work.seeds.size();
  link.negatives = static_cast<uint64_t>(std::ceil(static_cast<double>(link.edges) * options_.negativesPerEdge));
  const Drawing drawing{hopKey(options_.seed, request.epoch, request.number, 0, Purpose::kNegatives,
                               graph_->relationHash(options_.relation)),
                        sampling.temporal, &link, &work};
  absl::Status status = drawNegatives(drawing);
  if (status.ok() && options_.strict && link.negatives > 0) status = co_await redraw(drawing, sampler->executor());
  if (!status.ok()) co_return Result(annotate(status, absl::StrCat("drawing negatives of batch ", request.number)));
  fillRequest(drawing, sampling, &request);
  Result batch = co_await sampler->sample(std::move(request), workspace, std::move(memory));
  if (batch.ok()) (*batch)->link = std::move(link);
  co_return std::move(batch);
}

}  // namespace farhop::sampler
