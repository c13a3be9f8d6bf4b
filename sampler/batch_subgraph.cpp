// Batches whose edges are all that the graph has between their nodes.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "sampler/batch_sampler.h"
#include "sampler/subgraph_wire.h"

namespace farhop::sampler {
namespace {

// Appends a row's edges to `induced`, without those from the sources in `excluded`. Returns how many are left out.
uint32_t appendRow(const DrawSlice& row, uint32_t count, std::span<const ExcludedEdge> excluded,
                   const PodVector<uint64_t>& nodes, SampledRelation* induced) {
  const uint32_t* const sources = static_cast<const uint32_t*>(row.neighbors);
  if (excluded.empty()) {
    induced->indices.append(sources, count);
    if (row.edgeIds != nullptr) induced->edgeIds.append(row.edgeIds, count);
    return 0;
  }
  uint32_t left = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const auto at = std::lower_bound(excluded.begin(), excluded.end(), nodes[sources[i]],
                                     [](const ExcludedEdge& edge, uint64_t source) { return edge.source < source; });
    if (at != excluded.end() && at->source == nodes[sources[i]]) {
      ++left;
      continue;
    }
    induced->indices.push_back(sources[i]);
    if (row.edgeIds != nullptr) induced->edgeIds.push_back(row.edgeIds[i]);
  }
  return left;
}

}  // namespace

Task<absl::Status> BatchSampler::induce(BatchWorkspace* work, SampledBatch* batch) const {
  InducingWorkspace& inducing = work->inducing_;
  absl::Status status;
  for (size_t type = 0; type < work->frontiers_.size() && status.ok(); ++type) {
    work->frontiers_[type].first = 0;
    work->frontiers_[type].last = work->numbering_[type].size();
    status = plan_.bucket(*batch, static_cast<int>(type), &work->frontiers_[type]);
  }
  if (!status.ok()) co_return status;

  inducing.positions.resize(batch->nodes.size());
  inducing.setSizes.resize(batch->nodes.size());
  for (size_t type = 0; type < batch->nodes.size(); ++type) {
    const PodVector<uint64_t>& numbers = options_.disjoint ? work->treeNodes_[type] : batch->nodes[type];
    inducing.positions[type].assign({numbers.data(), numbers.size()});
    inducing.setSizes[type] = numbers.size();
  }
  inducing.requests.resize(static_cast<size_t>(graph_->machines()));
  work->messages_.clear();
  std::shared_ptr<const rpc::Bytes> sets;  // one for all machines
  for (int machine = 0; machine < graph_->machines(); ++machine) {
    SubgraphRequest& request = inducing.requests[static_cast<size_t>(machine)];
    askForInducedRows(machine, *work, &request);
    if (request.runs.empty() || machine == graph_->machine()) continue;
    if (sets == nullptr) {
      sets = std::make_shared<const rpc::Bytes>(encodeNodeSets(batch->nodes, batch->trees, options_.disjoint, *graph_));
    }
    work->messages_.push_back({machine, oneArray(encodeSubgraphRows(request))});
    work->messages_.back().request.push_back({sets->data(), sets->size(), sets});
  }
  std::function<absl::Status()> ownWork = [this, &inducing]() -> absl::Status {
    return induceEdges(inducing.requests[static_cast<size_t>(graph_->machine())], inducing.positions, *graph_,
                       kMaxOwnInducedBytes, &inducing.own);
  };
  const ExchangeOptions options{agent_, executor_, kSubgraphMethod, Deadline::after(options_.requestTimeout), &batch->traffic};
  status = co_await exchange(&options, &work->messages_, std::move(ownWork));
  if (status.ok()) status = sliceInducedReplies(work, batch);
  if (!status.ok()) co_return status;
  co_return placeInducedEdges(work, batch);
}

absl::Status BatchSampler::sliceInducedReplies(BatchWorkspace* work, SampledBatch* batch) const {
  const InducingWorkspace& inducing = work->inducing_;
  for (std::vector<DrawSlice>& slices : work->slices_) std::fill(slices.begin(), slices.end(), DrawSlice{});
  const SubgraphRequest& own = inducing.requests[static_cast<size_t>(graph_->machine())];
  FARHOP_RETURN_IF_ERROR(sliceInduced(own, InducedView::of(inducing.own, options_.edgeIds), inducing.setSizes, *graph_,
                                      &work->slices_)
                             .status());
  batch->traffic.remoteEdges = 0;
  for (const MachineMessage& message : work->messages_) {
    const SubgraphRequest& request = inducing.requests[static_cast<size_t>(message.machine)];
    const auto slice = [&]() -> absl::StatusOr<uint64_t> {
      FARHOP_ASSIGN_OR_RETURN(const InducedView view,
                              viewSubgraphReply(request, message.reply->arrays, inducing.setSizes, *graph_));
      return sliceInduced(request, view, inducing.setSizes, *graph_, &work->slices_);
    };
    const absl::StatusOr<uint64_t> edges = slice();
    if (!edges.ok()) return annotate(edges.status(), absl::StrCat("machine ", message.machine));
    batch->traffic.remoteEdges += *edges;
    batch->traffic.requestedNodes += request.rows.size();
  }
  return absl::OkStatus();
}

void BatchSampler::askForInducedRows(int machine, const BatchWorkspace& work, SubgraphRequest* request) const {
  request->wantEdgeIds = options_.edgeIds;
  request->runs.clear();
  request->rows.clear();
  request->trees.clear();
  request->times.clear();
  for (size_t type = 0; type < work.frontiers_.size(); ++type) {
    const HopFrontier& frontier = work.frontiers_[type];
    for (int k = 0; k < graph_->book().numPartitions(); ++k) {
      const std::vector<uint32_t>& rows = frontier.rows[k];
      if (graph_->owner(k) != machine || rows.empty()) continue;
      request->runs.push_back({static_cast<uint32_t>(type), static_cast<uint32_t>(k), static_cast<uint32_t>(rows.size()), 0});
      request->rows.insert(request->rows.end(), rows.begin(), rows.end());
      request->trees.insert(request->trees.end(), frontier.trees[k].begin(), frontier.trees[k].end());
      request->times.insert(request->times.end(), frontier.times[k].begin(), frontier.times[k].end());
    }
  }
}

absl::Status BatchSampler::placeInducedEdges(BatchWorkspace* work, SampledBatch* batch) const {
  const std::vector<partition::Relation>& relations = graph_->schema().relations;
  batch->relations.resize(relations.size());  // where each hop had CSRs of its own there were more
  batch->traffic.sampledEdges = 0;
  for (size_t r = 0; r < relations.size(); ++r) {
    SampledRelation& induced = batch->relations[r];
    induced.indptr.clear();
    induced.indices.clear();
    induced.edgeIds.clear();
    uint64_t total = 0;
    for (const DrawSlice& slice : work->slices_[r]) total += slice.edges;
    if (total > kMaxEdges) return tooManyEdges(static_cast<int>(r));
    induced.indices.reserve(total);
    induced.edgeIds.reserve(options_.edgeIds ? total : 0);
    induced.indptr.push_back(0);
    // By (row, source).
    std::span<const ExcludedEdge> excluded;
    if (!batch->excluded.empty()) excluded = batch->excluded[r];
    uint32_t row = 0;
    for (uint16_t partition : work->frontiers_[relations[r].destination].partitionOfRow) {
      DrawSlice& slice = work->slices_[r][partition];  // advanced as rows are read
      size_t ofRow = 0;
      while (ofRow < excluded.size() && excluded[ofRow].row == row) ++ofRow;
      // No slice where the batch has no nodes of the source type.
      if (slice.counts != nullptr) {
        const uint32_t count = *slice.counts++;
        const uint32_t left = appendRow(slice, count, excluded.first(ofRow), batch->nodes[relations[r].source], &induced);
        if (!graph_->isOwn(partition)) batch->traffic.remoteEdges -= left;
        slice.neighbors = static_cast<const uint32_t*>(slice.neighbors) + count;
        if (slice.edgeIds != nullptr) slice.edgeIds += count;
      }
      excluded = excluded.subspan(ofRow);
      induced.indptr.push_back(static_cast<uint32_t>(induced.indices.size()));
      ++row;
    }
    batch->traffic.sampledEdges += induced.indices.size();
  }
  // One block: every node is a destination, and every node a source.
  for (size_t type = 0; type < batch->nodes.size(); ++type) {
    batch->nodesByHop[type].assign(2, static_cast<uint32_t>(batch->nodes[type].size()));
  }
  return absl::OkStatus();
}

}  // namespace farhop::sampler
