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

// What is asked of one machine, and this machine's reply to itself.
struct Asked {
  int machine = 0;
  SubgraphRequest request;
  std::vector<rpc::Bytes> own;
};

}  // namespace

Task<absl::Status> BatchSampler::induce(BatchWorkspace* work, SampledBatch* batch) const {
  absl::Status status;
  for (size_t type = 0; type < work->frontiers_.size() && status.ok(); ++type) {
    work->frontiers_[type].first = 0;
    work->frontiers_[type].last = work->numbering_[type].size();
    status = plan_.bucket(*batch, static_cast<int>(type), &work->frontiers_[type]);
  }
  if (!status.ok()) co_return status;

  std::vector<uint64_t> setSizes;
  PositionsByType positions;
  for (const PodVector<uint64_t>& nodes : batch->nodes) {
    setSizes.push_back(nodes.size());
    positions.push_back(nodes.empty() ? nullptr : std::make_unique<const NodePositions>(nodes));
  }
  std::vector<Asked> asked;
  work->messages_.clear();
  std::shared_ptr<const rpc::Bytes> sets;  // one for all machines
  for (int machine = 0; machine < graph_->machines(); ++machine) {
    Asked one{machine, inducedRows(machine, *work), {}};
    if (one.request.runs.empty()) continue;
    if (machine != graph_->machine()) {
      if (sets == nullptr) sets = std::make_shared<const rpc::Bytes>(encodeNodeSets(batch->nodes, *graph_));
      work->messages_.push_back({machine, oneArray(encodeSubgraphRows(one.request))});
      work->messages_.back().request.push_back({sets->data(), sets->size(), sets});
    }
    asked.push_back(std::move(one));
  }
  std::function<absl::Status()> ownWork = [this, &asked, &positions]() -> absl::Status {
    for (Asked& one : asked) {
      if (one.machine != graph_->machine()) continue;
      FARHOP_ASSIGN_OR_RETURN(one.own, serveSubgraph(one.request, positions, *graph_, kMaxOwnInducedBytes));
    }
    return absl::OkStatus();
  };
  const ExchangeOptions options{agent_, executor_, kSubgraphMethod, Deadline::after(options_.requestTimeout), &batch->traffic};
  status = co_await exchange(&options, &work->messages_, std::move(ownWork));
  if (!status.ok()) co_return status;

  for (std::vector<DrawSlice>& slices : work->slices_) std::fill(slices.begin(), slices.end(), DrawSlice{});
  uint64_t remote = 0;
  auto message = work->messages_.begin();
  for (const Asked& one : asked) {
    const bool isOwn = one.machine == graph_->machine();
    auto slices = sliceSubgraphReply(one.request, isOwn ? one.own : (message++)->reply->arrays, setSizes, *graph_);
    if (!slices.ok()) co_return annotate(slices.status(), absl::StrCat("machine ", one.machine));
    for (size_t r = 0; r < slices->size(); ++r) {
      for (size_t i = 0; i < one.request.runs.size(); ++i) {
        if ((*slices)[r][i].counts == nullptr) continue;
        work->slices_[r][one.request.runs[i].partition] = (*slices)[r][i];
        remote += isOwn ? 0 : (*slices)[r][i].edges;
      }
    }
    if (!isOwn) batch->traffic.requestedNodes += one.request.rows.size();
  }
  batch->traffic.remoteEdges = remote;
  co_return placeInducedEdges(work, batch);
}

SubgraphRequest BatchSampler::inducedRows(int machine, const BatchWorkspace& work) const {
  SubgraphRequest request;
  request.wantEdgeIds = options_.edgeIds;
  for (size_t type = 0; type < work.frontiers_.size(); ++type) {
    for (int k = 0; k < graph_->book().numPartitions(); ++k) {
      const std::vector<uint32_t>& rows = work.frontiers_[type].rows[k];
      if (graph_->owner(k) != machine || rows.empty()) continue;
      request.runs.push_back({static_cast<uint32_t>(type), static_cast<uint32_t>(k), static_cast<uint32_t>(rows.size()), 0});
      request.rows.insert(request.rows.end(), rows.begin(), rows.end());
    }
  }
  return request;
}

absl::Status BatchSampler::placeInducedEdges(BatchWorkspace* work, SampledBatch* batch) const {
  const std::vector<partition::Relation>& relations = graph_->schema().relations;
  batch->relations.resize(relations.size());  // where each hop had CSRs of its own there were more
  batch->traffic.sampledEdges = 0;
  for (size_t r = 0; r < relations.size(); ++r) {
    SampledRelation& induced = batch->relations[r];
    induced = {};
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
