#include "sampler/neighbor_service.h"

#include <utility>

namespace farhop::sampler {
namespace {

// Appends one relation's draw for all runs of its destination type.
template <typename Id>
absl::Status drawRuns(const NeighborRequest& request, uint32_t number, const PartitionedGraph& graph,
                      DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const RelationDraw& draw = request.draws[number];
  const int relation = static_cast<int>(draw.relation);
  const int destination = graph.schema().relations[relation].destination;
  uint32_t at = 0;
  for (const RowRun& run : request.runs) {
    const uint32_t first = at;
    at += run.count;
    if (static_cast<int>(run.nodeType) != destination) continue;
    FARHOP_RETURN_IF_ERROR(drawNeighbors<Id>(graph, static_cast<int>(run.partition), draw,
                                             request.rowsOf(number, first, run.count), request.wantEdgeIds, out, scratch));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<rpc::OutArray>> serveNeighbors(const NeighborRequest& request, const PartitionedGraph& graph) {
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
      absl::Status status = drawRuns(request, d, graph, drawn, &scratch);
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
