#include "sampler/hop_plan.h"

#include "base/random.h"

namespace farhop::sampler {

void HopPlan::setRange(const SampledBatch& batch, size_t hop, int type, HopFrontier* frontier) const {
  const std::vector<uint32_t>& known = batch.nodesByHop[type];
  frontier->first = options_->expand == Expand::kAll || hop == 0 ? 0 : known[hop - 1];
  frontier->last = known[hop];
}

absl::Status HopPlan::bucket(const SampledBatch& batch, int type, HopFrontier* frontier) const {
  const partition::PartitionBook& book = graph_->book();
  for (std::vector<uint32_t>& rows : frontier->rows) rows.clear();
  frontier->trees.resize(frontier->rows.size());
  frontier->times.resize(frontier->rows.size());
  for (std::vector<uint32_t>& trees : frontier->trees) trees.clear();
  for (std::vector<int64_t>& times : frontier->times) times.clear();
  frontier->partitionOfRow.clear();
  const PodVector<uint64_t>& nodes = batch.nodes[type];
  const uint64_t known = book.numNodes(type);
  for (uint32_t number = frontier->first; number < frontier->last; ++number) {
    if (nodes[number] >= known) {
      return absl::DataLossError(absl::StrCat(
          graph_->store().directory(), ": gid ", nodes[number], " of node type '", graph_->schema().nodeTypes[type].name,
          "' does not exist; check the store with farhop inspect --verify"));
    }
    const int owner = book.partitionOf(type, nodes[number]);
    frontier->partitionOfRow.push_back(static_cast<uint16_t>(owner));
    frontier->rows[owner].push_back(static_cast<uint32_t>(nodes[number] - book.begin(type, owner)));
    if (!options_->disjoint) continue;
    const uint32_t tree = batch.trees[type][number];
    frontier->trees[owner].push_back(tree);
    if (!batch.treeTimes.empty()) frontier->times[owner].push_back(batch.treeTimes[tree]);
  }
  frontier->excluded.resize(batch.excluded.size());
  for (size_t r = 0; r < batch.excluded.size(); ++r) {
    frontier->excluded[r].reset(frontier->rows.size());
    if (graph_->schema().relations[r].destination != type) continue;
    bucketExcluded(batch.excluded[r], frontier->first, frontier->partitionOfRow, &frontier->excluded[r]);
  }
  return absl::OkStatus();
}

RelationDraw HopPlan::drawOf(const SampledBatch& batch, size_t hop, int relation) const {
  RelationDraw draw;
  draw.relation = static_cast<uint32_t>(relation);
  draw.fanout = static_cast<int32_t>(options_->fanouts[hop][relation]);
  if (drawsBySource(options_->kinds[relation].kind)) {
    const int source = graph_->schema().relations[relation].source;
    draw.hopKey = hopKey(options_->seed, batch.epoch, batch.number, options_->layerDependency ? 0 : hop, Purpose::kLabor,
                         graph_->nodeTypeHash(source));
  } else {
    draw.hopKey =
        hopKey(options_->seed, batch.epoch, batch.number, hop, Purpose::kNeighbors, graph_->relationHash(relation));
  }
  draw.kind = static_cast<uint32_t>(options_->kinds[relation].kind);
  draw.weight = options_->kinds[relation].weight;
  return draw;
}

DrawRows HopPlan::ownRows(const SampledBatch&, size_t, int relation, const HopFrontier& frontier, int partition) const {
  DrawRows draws;
  draws.rows = frontier.rows[partition];
  draws.occurrences = frontier.trees[partition];
  draws.times = frontier.times[partition];
  if (!frontier.excluded.empty()) draws.excluded = frontier.excluded[relation].edges[partition];
  return draws;
}

NeighborRequest HopPlan::request(const SampledBatch& batch, size_t hop, std::span<const HopFrontier> frontiers,
                                 std::span<const int> relations, int machine) const {
  NeighborRequest request;
  request.wantEdgeIds = options_->edgeIds;
  for (size_t type = 0; type < frontiers.size(); ++type) {
    std::vector<RelationDraw> draws;
    for (int r : relations) {
      if (graph_->schema().relations[r].destination != static_cast<int>(type) || options_->fanouts[hop][r] == 0) continue;
      draws.push_back(drawOf(batch, hop, r));
    }
    if (draws.empty()) continue;
    const size_t runsBefore = request.runs.size();
    const uint32_t rowsBefore = static_cast<uint32_t>(request.rows.size());
    for (int k = 0; k < graph_->book().numPartitions(); ++k) {
      const std::vector<uint32_t>& rows = frontiers[type].rows[k];
      if (graph_->owner(k) != machine || rows.empty()) continue;
      request.runs.push_back({static_cast<uint32_t>(type), static_cast<uint32_t>(k),
                              static_cast<uint32_t>(rows.size()), 0});
      request.rows.insert(request.rows.end(), rows.begin(), rows.end());
      const std::vector<uint32_t>& trees = frontiers[type].trees[k];
      request.occurrences.insert(request.occurrences.end(), trees.begin(), trees.end());
      const std::vector<int64_t>& times = frontiers[type].times[k];
      request.times.insert(request.times.end(), times.begin(), times.end());
    }
    if (request.runs.size() == runsBefore) continue;
    for (const RelationDraw& draw : draws) {
      uint32_t firstRow = rowsBefore;
      for (size_t run = runsBefore; run < request.runs.size(); ++run) {
        const DrawRows rows = ownRows(batch, hop, static_cast<int>(draw.relation), frontiers[type],
                                      static_cast<int>(request.runs[run].partition));
        for (const ExcludedEdge& edge : rows.excluded) {
          request.excluded.push_back({static_cast<uint32_t>(request.draws.size()), firstRow + edge.row, edge.source});
        }
        firstRow += request.runs[run].count;
      }
      request.draws.push_back(draw);
    }
  }
  return request;
}

}  // namespace farhop::sampler
