#include "sampler/walk_service.h"

#include <optional>
#include <utility>

#include "sampler/walk_kernels.h"

namespace farhop::sampler {
namespace {

template <typename Id>
absl::StatusOr<rpc::Bytes> drawSteps(const StepRequest& request, const PartitionedGraph& graph) {
  std::shared_ptr<const EdgeWeightsCache::Made> weights;
  if (request.step.weighted) {
    FARHOP_ASSIGN_OR_RETURN(weights, graph.edgeWeights(request.step.relation, request.step.weight));
  }
  rpc::Bytes reply = rpc::Bytes::allocate(request.rows.size() * request.tries * sizeof(Id));
  Id* out = reply.as<Id>().data();
  size_t at = 0;
  for (const PartitionRun& run : request.runs) {
    const int partition = static_cast<int>(run.partition);
    StepDraw draw{request.stepKey, request.firstTry, request.tries, nullptr};
    std::optional<WeightView> view;
    if (weights) draw.weights = &view.emplace((*weights)[partition]->view());
    proposeSteps<Id>(graph.view<Id>(partition, request.step.relation), std::span(request.rows).subspan(at, run.count),
                     std::span(request.walks).subspan(at, run.count), draw, out + at * request.tries);
    at += run.count;
  }
  return reply;
}

template <typename Request>
using Decode = absl::StatusOr<Request> (*)(std::span<const rpc::Bytes>, const PartitionedGraph&);
template <typename Request>
using Serve = absl::StatusOr<rpc::Bytes> (*)(const Request&, const PartitionedGraph&);

template <typename Request>
rpc::Handler handlerOf(std::shared_ptr<const PartitionedGraph> graph, Decode<Request> decode, Serve<Request> serve) {
  return [graph = std::move(graph), decode, serve](rpc::Request request, rpc::Responder responder) {
    absl::StatusOr<Request> decoded = decode(request.arrays, *graph);
    absl::StatusOr<rpc::Bytes> reply = decoded.ok() ? serve(*decoded, *graph) : decoded.status();
    if (reply.ok()) {
      responder.reply(oneArray(*std::move(reply)));
    } else {
      responder.fail(reply.status());
    }
  };
}

}  // namespace

absl::StatusOr<rpc::Bytes> serveSteps(const StepRequest& request, const PartitionedGraph& graph) {
  return graph.narrowIds(request.step.relation) ? drawSteps<uint32_t>(request, graph) : drawSteps<uint64_t>(request, graph);
}

absl::StatusOr<rpc::Bytes> serveAdjacency(const AdjacencyRequest& request, const PartitionedGraph& graph) {
  FARHOP_ASSIGN_OR_RETURN(const auto index, graph.neighborIndex(request.relation));
  rpc::Bytes reply = rpc::Bytes::allocate(request.rows.size());
  const std::span<uint8_t> isNeighbor = reply.as<uint8_t>();
  size_t at = 0;
  for (const PartitionRun& run : request.runs) {
    const NeighborIndex& rows = *(*index)[run.partition];
    for (const size_t end = at + run.count; at < end; ++at) {
      isNeighbor[at] = rows.contains(request.rows[at], request.gids[at]) ? 1 : 0;
    }
  }
  return reply;
}

void registerWalkService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph) {
  agent->handle(kStepMethod, handlerOf<StepRequest>(graph, decodeStepRequest, serveSteps));
  agent->handle(kAdjacencyMethod, handlerOf<AdjacencyRequest>(std::move(graph), decodeAdjacencyRequest, serveAdjacency));
}

}  // namespace farhop::sampler
