#include "sampler/neighbor_service.h"

#include <utility>

namespace farhop::sampler {
namespace {

// Appends one relation's draw for all runs of its destination type.
template <typename Id>
void drawRuns(const NeighborRequest& request, const RelationDraw& draw, const PartitionedGraph& graph,
              DrawnNeighbors<Id>* out, PositionSet* scratch) {
  const int relation = static_cast<int>(draw.relation);
  const int destination = graph.schema().relations[relation].destination;
  size_t at = 0;
  for (const RowRun& run : request.runs) {
    const std::span<const uint32_t> rows = std::span(request.rows).subspan(at, run.count);
    at += run.count;
    if (static_cast<int>(run.nodeType) != destination) continue;
    sampleUniform<Id>(graph.view<Id>(static_cast<int>(run.partition), relation), rows, draw.hopKey, draw.fanout,
                      request.wantEdgeIds, out, scratch);
  }
}

}  // namespace

std::vector<rpc::OutArray> serveNeighbors(const NeighborRequest& request, const PartitionedGraph& graph) {
  std::vector<uint32_t> counts;
  std::vector<uint64_t> edgeIds;
  DrawnNeighbors<uint32_t> narrow;
  DrawnNeighbors<uint64_t> wide;
  PositionSet scratch;
  for (const RelationDraw& draw : request.draws) {
    if (graph.narrowIds(static_cast<int>(draw.relation))) {
      std::swap(narrow.counts, counts);
      std::swap(narrow.edgeIds, edgeIds);
      drawRuns(request, draw, graph, &narrow, &scratch);
      std::swap(narrow.counts, counts);
      std::swap(narrow.edgeIds, edgeIds);
    } else {
      std::swap(wide.counts, counts);
      std::swap(wide.edgeIds, edgeIds);
      drawRuns(request, draw, graph, &wide, &scratch);
      std::swap(wide.counts, counts);
      std::swap(wide.edgeIds, edgeIds);
    }
  }
  std::vector<rpc::OutArray> reply;
  reply.push_back(rpc::OutArray::fromVector(std::move(counts)));
  reply.push_back(rpc::OutArray::fromVector(std::move(narrow.neighbors)));
  reply.push_back(rpc::OutArray::fromVector(std::move(wide.neighbors)));
  reply.push_back(rpc::OutArray::fromVector(std::move(edgeIds)));
  return reply;
}

void registerNeighborService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph) {
  agent->handle(kNeighborMethod, [graph = std::move(graph)](rpc::Request request, rpc::Responder responder) {
    absl::StatusOr<NeighborRequest> decoded = decodeNeighborRequest(request.arrays, *graph);
    if (!decoded.ok()) {
      responder.fail(decoded.status());
      return;
    }
    responder.reply(serveNeighbors(*decoded, *graph));
  });
}

}  // namespace farhop::sampler
