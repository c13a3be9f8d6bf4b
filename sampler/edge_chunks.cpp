#include "sampler/edge_chunks.h"

#include <algorithm>
#include <utility>

#include "sampler/hop_plan.h"

namespace farhop::sampler {
namespace {

// The rows `keep` (ascending) of a request of one draw.
NeighborRequest selectRows(const NeighborRequest& request, std::span<const uint32_t> keep) {
  NeighborRequest part;
  part.wantEdgeIds = request.wantEdgeIds;
  part.draws = request.draws;
  size_t run = 0;
  uint64_t runEnd = request.runs.empty() ? 0 : request.runs[0].count;
  auto excluded = request.excluded.begin();
  for (uint32_t row : keep) {
    while (row >= runEnd) runEnd += request.runs[++run].count;
    const RowRun& from = request.runs[run];
    if (part.runs.empty() || part.runs.back().partition != from.partition) {
      part.runs.push_back({from.nodeType, from.partition, 0, 0});
    }
    ++part.runs.back().count;
    const uint32_t newRow = static_cast<uint32_t>(part.rows.size());
    part.rows.push_back(request.rows[row]);
    if (!request.occurrences.empty()) part.occurrences.push_back(request.occurrences[row]);
    if (!request.times.empty()) part.times.push_back(request.times[row]);
    while (excluded != request.excluded.end() && excluded->row < row) ++excluded;
    for (; excluded != request.excluded.end() && excluded->row == row; ++excluded) {
      part.excluded.push_back({0, newRow, excluded->source});
    }
  }
  return part;
}

// The rows of one hop that one machine owns.
struct OwnedRows {
  NeighborRequest request;
  std::vector<uint32_t> keep;      // rows of the request that have edges
  std::vector<uint64_t> slots;     // of the first wanted edge of each
  std::vector<uint32_t> skips;     // edges of each row before the first that is wanted
  std::vector<uint32_t> counts;    // edges of each that are wanted
  std::vector<bool> ends;          // the row has more: nothing can follow it in a request
  std::vector<uint64_t> csrEdges;  // where each row's wanted edges begin in the batch
  const SampledRelation* edges = nullptr;

  // Row `row` of the request, with `count` edges, numbered from `edge` on in the pull and from csrEdge in the batch; of
  // which those numbered firstEdge to endEdge are wanted.
  void add(uint32_t row, uint64_t edge, uint64_t csrEdge, uint32_t count, uint64_t firstEdge, uint64_t endEdge) {
    const uint64_t from = std::max(edge, firstEdge), to = std::min(edge + count, endEdge);
    if (from >= to) return;
    keep.push_back(row);
    slots.push_back(from - firstEdge);
    skips.push_back(static_cast<uint32_t>(from - edge));
    counts.push_back(static_cast<uint32_t>(to - from));
    ends.push_back(to < edge + count);
    csrEdges.push_back(csrEdge + from - edge);
  }
};

class DrawnEdgeChunks : public EdgeChunkSource {
 public:
  DrawnEdgeChunks(int machine, std::shared_ptr<const SampledBatch> batch, int sourceType)
      : EdgeChunkSource(machine), batch_(std::move(batch)), sourceType_(sourceType) {}

  void add(OwnedRows rows) { hops_.push_back(std::move(rows)); }

  bool next(uint64_t maxEdges, EdgeChunk* chunk) override {
    while (hop_ < hops_.size() && row_ == hops_[hop_].keep.size()) {
      ++hop_;
      row_ = 0;
    }
    if (hop_ == hops_.size()) return false;
    const OwnedRows& rows = hops_[hop_];
    *chunk = {};
    chunk->drawn.header.skip = rows.skips[row_] + skip_;
    const size_t firstRow = row_;
    // Whole rows as far as they fit; a row that never fits goes in pieces.
    while (row_ < rows.keep.size()) {
      const uint64_t left = rows.counts[row_] - skip_, room = maxEdges - chunk->count;
      if (chunk->count > 0 && (left > room || rows.skips[row_] > 0)) break;
      const uint64_t taken = std::min(left, room);
      addEdges(rows, row_, skip_, taken, chunk);
      if (taken < left) {
        skip_ += taken;
        break;
      }
      skip_ = 0;
      if (rows.ends[row_++]) break;
    }
    const size_t endRow = std::min(rows.keep.size(), skip_ > 0 ? row_ + 1 : row_);
    chunk->drawn.rows = selectRows(rows.request, std::span(rows.keep).subspan(firstRow, endRow - firstRow));
    chunk->drawn.header.edges = chunk->count;
    return true;
  }

 private:
  void addEdges(const OwnedRows& rows, size_t row, uint64_t skip, uint64_t count, EdgeChunk* chunk) const {
    const uint64_t slot = rows.slots[row] + skip;
    if (!chunk->slots.empty() && chunk->slots.back().first + chunk->slots.back().count == slot) {
      chunk->slots.back().count += count;
    } else {
      chunk->slots.push_back({slot, count});
    }
    const uint32_t* const sources = rows.edges->indices.data() + rows.csrEdges[row] + skip;
    const PodVector<uint64_t>& nodes = batch_->nodes[sourceType_];
    for (uint64_t i = 0; i < count; ++i) chunk->checksum += drawnEdgesChecksum(chunk->count + i, nodes[sources[i]]);
    chunk->count += count;
  }

  const std::shared_ptr<const SampledBatch> batch_;
  const int sourceType_;
  std::vector<OwnedRows> hops_;
  size_t hop_ = 0, row_ = 0;
  uint64_t skip_ = 0;  // edges of the row at hand that are done
};

class EdgeChunksById : public EdgeChunkSource {
 public:
  EdgeChunksById(int machine, int relation, std::span<const uint64_t> edgeIds)
      : EdgeChunkSource(machine), relation_(relation), edgeIds_(edgeIds) {}

  // One partition after the other.
  void add(int partition, std::span<const uint32_t> rows, std::span<const uint32_t> slots) {
    if (rows.empty()) return;
    runs_.push_back({static_cast<uint32_t>(partition), static_cast<uint32_t>(rows.size())});
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    slots_.insert(slots_.end(), slots.begin(), slots.end());
  }
  bool empty() const { return rows_.empty(); }

  bool next(uint64_t maxEdges, EdgeChunk* chunk) override {
    if (at_ == rows_.size()) return false;
    *chunk = {};
    chunk->byId = true;
    chunk->edges.relation = static_cast<uint32_t>(relation_);
    const size_t end = at_ + std::min<size_t>(maxEdges, rows_.size() - at_);
    chunk->count = end - at_;
    for (; at_ < end; ++at_) {
      while (inRun_ == runs_[run_].count) {
        ++run_;
        inRun_ = 0;
      }
      std::vector<EdgeRun>& runs = chunk->edges.runs;
      if (runs.empty() || runs.back().partition != runs_[run_].partition) runs.push_back({runs_[run_].partition, 0});
      ++runs.back().count;
      ++inRun_;
      chunk->edges.rows.push_back(rows_[at_]);
      chunk->edges.edgeIds.push_back(edgeIds_[slots_[at_]]);
      chunk->slots.push_back({slots_[at_], 1});
    }
    return true;
  }

 private:
  const int relation_;
  const std::span<const uint64_t> edgeIds_;
  std::vector<EdgeRun> runs_;
  std::vector<uint32_t> rows_, slots_;  // by partition
  size_t at_ = 0, run_ = 0;
  uint32_t inRun_ = 0;
};

}  // namespace

HopEdges hopEdges(const PartitionedGraph& graph, const EdgeRange& range, size_t hop) {
  const size_t relations = graph.schema().relations.size();
  const std::vector<uint32_t>& known = range.batch->nodesByHop[graph.schema().relations[range.relation].destination];
  const bool all = range.sampling->expand == Expand::kAll;
  return {&range.batch->relations[(all ? hop * relations : 0) + static_cast<size_t>(range.relation)],
          all || hop == 0 ? 0 : known[hop - 1], known[hop]};
}

uint64_t edgeCount(const PartitionedGraph& graph, const EdgeRange& range) {
  uint64_t count = 0;
  for (size_t hop = range.firstHop; hop < range.hops; ++hop) count += hopEdges(graph, range, hop).count();
  return std::min(range.maxEdges, count - std::min(count, range.firstEdge));
}

std::vector<uint64_t> carriedEdgeIds(const PartitionedGraph& graph, const EdgeRange& range) {
  std::vector<uint64_t> ids;
  if (!range.sampling->edgeIds) return ids;
  const uint64_t wanted = edgeCount(graph, range);
  ids.reserve(wanted);
  uint64_t before = 0;  // edges of earlier hops
  for (size_t hop = range.firstHop; hop < range.hops; ++hop) {
    const HopEdges rows = hopEdges(graph, range, hop);
    const uint64_t skip = std::min(rows.count(), range.firstEdge - std::min(range.firstEdge, before));
    const uint64_t count = std::min(rows.count() - skip, wanted - ids.size());
    const uint64_t* const first = rows.edges->edgeIds.data() + rows.firstEdge() + skip;
    if (count > 0) ids.insert(ids.end(), first, first + count);
    before += rows.count();
  }
  return ids;
}

absl::StatusOr<std::vector<std::unique_ptr<EdgeChunkSource>>> drawnEdgeChunks(const PartitionedGraph& graph,
                                                                              const EdgeRange& range) {
  const SampledBatch& batch = *range.batch;
  const partition::Relation& edges = graph.schema().relations[range.relation];
  const HopPlan plan(&graph, range.sampling.get());
  std::vector<std::unique_ptr<DrawnEdgeChunks>> byMachine;
  for (int machine = 0; machine < graph.machines(); ++machine) {
    byMachine.push_back(std::make_unique<DrawnEdgeChunks>(machine, range.batch, edges.source));
  }
  std::vector<HopFrontier> frontiers(graph.schema().nodeTypes.size());
  for (HopFrontier& frontier : frontiers) frontier.rows.resize(static_cast<size_t>(graph.book().numPartitions()));
  HopFrontier& frontier = frontiers[edges.destination];
  const uint64_t endEdge = range.firstEdge + edgeCount(graph, range);
  uint64_t slotBase = 0;
  for (size_t hop = range.firstHop; hop < range.hops; ++hop) {
    const HopEdges rows = hopEdges(graph, range, hop);
    if (slotBase + rows.count() <= range.firstEdge || slotBase >= endEdge) {
      slotBase += rows.count();
      continue;
    }
    plan.setRange(batch, hop, edges.destination, &frontier);
    FARHOP_RETURN_IF_ERROR(plan.bucket(batch, edges.destination, &frontier));
    // The rows of each partition in the order in which requests have them.
    std::vector<std::vector<uint32_t>> csrRows(frontier.rows.size());
    for (size_t i = 0; i < frontier.partitionOfRow.size(); ++i) {
      csrRows[frontier.partitionOfRow[i]].push_back(rows.firstRow + static_cast<uint32_t>(i));
    }
    for (int machine = 0; machine < graph.machines(); ++machine) {
      OwnedRows owned;
      owned.edges = rows.edges;
      owned.request = plan.request(batch, hop, frontiers, std::span(&range.relation, 1), machine);
      owned.request.wantEdgeIds = false;
      uint32_t row = 0;
      for (const RowRun& run : owned.request.runs) {
        for (uint32_t csrRow : csrRows[run.partition]) {
          const uint32_t from = rows.edges->indptr[csrRow], to = rows.edges->indptr[csrRow + 1];
          owned.add(row++, slotBase + from - rows.firstEdge(), from, to - from, range.firstEdge, endEdge);
        }
      }
      if (!owned.keep.empty()) byMachine[static_cast<size_t>(machine)]->add(std::move(owned));
    }
    slotBase += rows.count();
  }
  std::vector<std::unique_ptr<EdgeChunkSource>> sources;
  for (std::unique_ptr<DrawnEdgeChunks>& machine : byMachine) sources.push_back(std::move(machine));
  return sources;
}

std::vector<std::unique_ptr<EdgeChunkSource>> edgeChunksById(const PartitionedGraph& graph, const EdgeRange& range,
                                                             std::span<const uint64_t> edgeIds) {
  const int forward = featureRelation(graph, range.relation);
  const int type = graph.schema().relations[forward].destination;
  const partition::PartitionBook& book = graph.book();
  std::vector<std::vector<uint32_t>> rows(static_cast<size_t>(book.numPartitions())), slots(rows.size());
  const bool reverse = forward != range.relation;
  const uint64_t endEdge = range.firstEdge + edgeIds.size();
  uint64_t edge = 0;
  for (size_t hop = range.firstHop; hop < range.hops; ++hop) {
    const HopEdges part = hopEdges(graph, range, hop);
    for (uint32_t row = part.firstRow; row < part.endRow; ++row) {
      for (uint32_t e = part.edges->indptr[row]; e < part.edges->indptr[row + 1]; ++e, ++edge) {
        if (edge < range.firstEdge || edge >= endEdge) continue;
        const uint64_t gid = range.batch->nodes[type][reverse ? part.edges->indices[e] : row];
        const int k = book.partitionOf(type, gid);
        rows[static_cast<size_t>(k)].push_back(static_cast<uint32_t>(gid - book.begin(type, k)));
        slots[static_cast<size_t>(k)].push_back(static_cast<uint32_t>(edge - range.firstEdge));
      }
    }
  }
  std::vector<std::unique_ptr<EdgeChunkSource>> sources;
  for (int machine = 0; machine < graph.machines(); ++machine) {
    auto source = std::make_unique<EdgeChunksById>(machine, forward, edgeIds);
    for (int k = 0; k < book.numPartitions(); ++k) {
      if (graph.owner(k) == machine) source->add(k, rows[static_cast<size_t>(k)], slots[static_cast<size_t>(k)]);
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace farhop::sampler
