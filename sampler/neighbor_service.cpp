#include "sampler/neighbor_service.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace farhop::sampler {
namespace {

// What a reply has room for.
struct ReplyRoom {
  uint64_t maxBytes = 0;
  uint64_t usedBytes = 0;  // by neighbours of the other width

  template <typename Id>
  uint64_t edgesLeft(const DrawnNeighbors<Id>& drawn, bool wantEdgeIds) const {
    const uint64_t used = usedBytes + drawn.counts.size() * sizeof(uint32_t) + drawn.neighbors.size() * sizeof(Id) +
                          drawn.edgeIds.size() * sizeof(uint64_t);
    return (maxBytes - std::min(used, maxBytes)) / (sizeof(Id) + (wantEdgeIds ? sizeof(uint64_t) : 0));
  }
  template <typename Id>
  bool fits(const DrawnNeighbors<Id>& drawn) const {
    return usedBytes + drawn.counts.size() * sizeof(uint32_t) + drawn.neighbors.size() * sizeof(Id) +
               drawn.edgeIds.size() * sizeof(uint64_t) <=
           maxBytes;
  }
};

absl::Status tooLong(const NeighborRequest& request, const RelationDraw& draw, const PartitionedGraph& graph,
                     const ReplyRoom& room) {
  return absl::ResourceExhaustedError(
      absl::StrCat("relation ", graph.schema().relationText(static_cast<int>(draw.relation)), ", fanout ", draw.fanout,
                   ": what machine ", graph.machine(), " draws for ", request.rows.size(), " nodes is more than the ",
                   room.maxBytes, " bytes of a reply; use smaller batches or fanouts"));
}

// At most how many edges a row of `degree` may yield.
uint64_t mostOf(const RelationDraw& draw, uint64_t degree) {
  const DrawKind kind = static_cast<DrawKind>(draw.kind);
  if (draw.fanout < 0 || kind == DrawKind::kLaborPoisson) return degree;
  return drawsWithReplacement(kind) ? static_cast<uint64_t>(draw.fanout)
                                    : std::min(degree, static_cast<uint64_t>(draw.fanout));
}

// Whether each row yields just that many.
bool yieldsMost(const RelationDraw& draw, const DrawRows& rows) {
  const DrawKind kind = static_cast<DrawKind>(draw.kind);
  const bool byChance = drawsByWeight(kind) || (kind == DrawKind::kLaborPoisson && draw.fanout >= 0);
  return !byChance && rows.times.empty() && rows.excluded.empty();
}

// How many of the rows to draw before the next look at the reply's size.
template <typename Id>
uint32_t rowsAtOnce(const CsrView<Id>& view, const RelationDraw& draw, std::span<const uint32_t> rows, uint64_t edgesLeft) {
  const DrawKind kind = static_cast<DrawKind>(draw.kind);
  if (draw.fanout == 0) return static_cast<uint32_t>(rows.size());
  if (draw.fanout < 0 || kind == DrawKind::kLaborPoisson) {
    return static_cast<uint32_t>(rowsTogether(view, rows, std::numeric_limits<uint64_t>::max()));
  }
  const uint64_t fanout = static_cast<uint64_t>(draw.fanout);
  // Nearly always: nothing to look at.
  if (rows.size() <= edgesLeft / fanout) return static_cast<uint32_t>(rows.size());
  if (!drawsWithReplacement(kind)) return static_cast<uint32_t>(rowsTogether(view, rows, fanout));
  return static_cast<uint32_t>(std::clamp<uint64_t>(kEdgesAtOnce / fanout, 1, rows.size()));
}

// Appends one relation's draw for all runs of its destination type.
template <typename Id>
absl::Status drawRuns(const NeighborRequest& request, uint32_t number, const PartitionedGraph& graph, const ReplyRoom& room,
                      DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const RelationDraw& draw = request.draws[number];
  const int relation = static_cast<int>(draw.relation);
  const int destination = graph.schema().relations[relation].destination;
  uint32_t at = 0;
  for (const RowRun& run : request.runs) {
    const uint32_t end = at + run.count;
    if (static_cast<int>(run.nodeType) != destination) at = end;
    while (at < end) {
      const int partition = static_cast<int>(run.partition);
      const CsrView<Id> view = graph.view<Id>(partition, relation);
      const uint64_t edgesLeft = room.edgesLeft(*out, request.wantEdgeIds);
      const uint32_t count = rowsAtOnce(view, draw, std::span(request.rows).subspan(at, end - at), edgesLeft);
      const DrawRows rows = request.rowsOf(number, at, count);
      // One row alone may be longer than any reply.
      const uint32_t row = request.rows[at];
      const uint64_t degree = view.indptr[row + 1] - view.indptr[row];
      if (count == 1 && degree > edgesLeft && yieldsMost(draw, rows) && mostOf(draw, degree) > edgesLeft) {
        return tooLong(request, draw, graph, room);
      }
      FARHOP_RETURN_IF_ERROR(drawNeighbors<Id>(graph, partition, draw, rows, request.wantEdgeIds, out, scratch));
      if (!room.fits(*out)) return tooLong(request, draw, graph, room);
      at += count;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<rpc::OutArray>> serveNeighbors(const NeighborRequest& request, const PartitionedGraph& graph,
                                                           uint64_t maxBytes) {
  DrawnNeighbors<uint32_t> narrow;
  DrawnNeighbors<uint64_t> wide;
  // Counts and edge ids go in request order whatever the width of the neighbours' ids.
  PodVector<uint32_t> counts;
  PodVector<uint64_t> edgeIds;
  PositionSet scratch;
  for (uint32_t d = 0; d < request.draws.size(); ++d) {
    const auto appendTo = [&](auto* drawn) {
      drawn->counts.swap(counts);
      drawn->edgeIds.swap(edgeIds);
      const bool isNarrow = graph.narrowIds(static_cast<int>(request.draws[d].relation));
      const ReplyRoom room{maxBytes, isNarrow ? wide.neighbors.size() * sizeof(uint64_t) : narrow.neighbors.size() * sizeof(uint32_t)};
      absl::Status status = drawRuns(request, d, graph, room, drawn, &scratch);
      drawn->counts.swap(counts);
      drawn->edgeIds.swap(edgeIds);
      return status;
    };
    FARHOP_RETURN_IF_ERROR(graph.narrowIds(static_cast<int>(request.draws[d].relation)) ? appendTo(&narrow) : appendTo(&wide));
  }
  std::vector<rpc::OutArray> reply;
  narrow.neighbors.append(counts.data(), counts.size());
  wide.neighbors.append(edgeIds.data(), edgeIds.size());
  reply.push_back(rpc::OutArray::fromVector(std::move(narrow.neighbors)));
  if (!wide.neighbors.empty()) reply.push_back(rpc::OutArray::fromVector(std::move(wide.neighbors)));
  return reply;
}

void registerNeighborService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph,
                             StageClock* stageClock) {
  agent->handle(kNeighborMethod, [graph = std::move(graph), stageClock](rpc::Request request, rpc::Responder responder) {
    StageTimer stages(stageClock);
    absl::StatusOr<NeighborRequest> decoded = decodeNeighborRequest(request.arrays, *graph);
    if (!decoded.ok()) {
      responder.fail(decoded.status());
      return;
    }
    stages.end(Stage::kServeDecode);
    absl::StatusOr<std::vector<rpc::OutArray>> reply = serveNeighbors(*decoded, *graph);
    stages.end(Stage::kServeDraw);
    if (!reply.ok()) {
      responder.fail(reply.status());
      return;
    }
    responder.reply(*std::move(reply));
    stages.end(Stage::kServeReply);
  });
}

}  // namespace farhop::sampler
