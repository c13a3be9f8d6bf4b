#include "sampler/subgraph_wire.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "sampler/wire_parts.h"

namespace farhop::sampler {
namespace {

constexpr const char* kName = "subgraph request";

bool narrowGids(const PartitionedGraph& graph, size_t nodeType) {
  return graph.schema().nodeTypes[nodeType].count < partition::kSmallNodeCount;
}

template <typename Id>
absl::Status induceRuns(const SubgraphRequest& request, int relation, const NodePositions& set, const PartitionedGraph& graph,
                        uint64_t maxBytes, InducedEdges* out) {
  size_t at = 0;
  for (const RowRun& run : request.runs) {
    const std::span<const uint32_t> rows = std::span(request.rows).subspan(at, run.count);
    at += run.count;
    if (static_cast<int>(run.nodeType) != graph.schema().relations[relation].destination) continue;
    const CsrView<Id> view = graph.view<Id>(static_cast<int>(run.partition), relation);
    for (size_t first = 0; first < rows.size();) {
      const size_t count = rowsTogether(view, rows.subspan(first), std::numeric_limits<uint64_t>::max());
      induceRows<Id>(view, rows.subspan(first, count), set, request.wantEdgeIds, out);
      first += count;
      const uint64_t bytes = (out->sources.size() + out->counts.size()) * sizeof(uint32_t) + out->edgeIds.size() * sizeof(uint64_t);
      if (bytes <= maxBytes) continue;
      return absl::ResourceExhaustedError(absl::StrCat("the edges between the batch's nodes take more than ", maxBytes,
                                                       " bytes on machine ", graph.machine(), ", with relation ",
                                                       graph.schema().relationText(relation),
                                                       "; use smaller batches or fanouts"));
    }
  }
  return absl::OkStatus();
}

template <typename Id>
absl::Status takeGids(WireReader* reader, uint64_t count, uint64_t known, std::vector<uint64_t>* gids) {
  std::vector<Id> values;
  FARHOP_RETURN_IF_ERROR(reader->takeAll(count, "nodes", &values));
  if (std::any_of(values.begin(), values.end(), [known](Id gid) { return gid >= known; })) {
    return reader->malformed(absl::StrCat("a node beyond the ", known, " of its type"));
  }
  gids->assign(values.begin(), values.end());
  return absl::OkStatus();
}

template <typename T>
rpc::Bytes bytesOf(const PodVector<T>& first, const PodVector<T>& second) {
  WireWriter writer((first.size() + second.size()) * sizeof(T));
  writer.put(first.data(), first.size());
  writer.put(second.data(), second.size());
  return writer.finish();
}

}  // namespace

rpc::Bytes encodeSubgraphRows(const SubgraphRequest& request) {
  const SubgraphRequestHeader header{request.wantEdgeIds ? kWantEdgeIds : 0, static_cast<uint32_t>(request.runs.size())};
  WireWriter writer(sizeof(header) + request.runs.size() * sizeof(RowRun) + request.rows.size() * sizeof(uint32_t));
  writer.put(&header, 1);
  writer.putAll(request.runs);
  writer.putAll(request.rows);
  return writer.finish();
}

absl::StatusOr<SubgraphRequest> decodeSubgraphRows(const rpc::Bytes& bytes, const PartitionedGraph& graph) {
  WireReader reader(bytes, kName);
  SubgraphRequestHeader header;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "header", &header));
  SubgraphRequest request;
  request.wantEdgeIds = (header.flags & kWantEdgeIds) != 0;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.runs, "runs", &request.runs));
  uint64_t at = 0;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(reader.left() / sizeof(uint32_t), "rows", &request.rows));
  FARHOP_RETURN_IF_ERROR(reader.finish());
  for (const RowRun& run : request.runs) {
    if (run.nodeType >= graph.schema().nodeTypes.size()) return reader.malformed(absl::StrCat("node type ", run.nodeType));
    if (run.count > request.rows.size() - at) return reader.malformed("fewer rows than the runs say");
    const PartitionRun part{run.partition, run.count};
    FARHOP_RETURN_IF_ERROR(annotate(checkRuns(std::span(&part, 1), std::span(request.rows).subspan(at, run.count),
                                              static_cast<int>(run.nodeType), graph),
                                    "malformed subgraph request"));
    at += run.count;
  }
  return at == request.rows.size() ? absl::StatusOr<SubgraphRequest>(std::move(request))
                                   : reader.malformed("more rows than the runs say");
}

rpc::Bytes encodeNodeSets(std::span<const PodVector<uint64_t>> nodes, const PartitionedGraph& graph) {
  std::vector<NodeSet> sets;
  size_t bytes = sizeof(uint64_t);
  for (size_t type = 0; type < nodes.size(); ++type) {
    if (nodes[type].empty()) continue;
    sets.push_back({static_cast<uint32_t>(type), 0, nodes[type].size()});
    bytes += sizeof(NodeSet) + nodes[type].size() * (narrowGids(graph, type) ? sizeof(uint32_t) : sizeof(uint64_t));
  }
  WireWriter writer(bytes);
  const uint64_t count = sets.size();
  writer.put(&count, 1);
  writer.putAll(sets);
  for (const NodeSet& set : sets) {
    const PodVector<uint64_t>& gids = nodes[set.nodeType];
    if (narrowGids(graph, set.nodeType)) {
      writer.putAll(std::vector<uint32_t>(gids.begin(), gids.end()));
    } else {
      writer.put(gids.data(), gids.size());
    }
  }
  return writer.finish();
}

absl::StatusOr<NodeSets> decodeNodeSets(const rpc::Bytes& bytes, const PartitionedGraph& graph) {
  WireReader reader(bytes, kName);
  uint64_t count = 0;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "number of sets", &count));
  const size_t types = graph.schema().nodeTypes.size();
  if (count > types) return reader.malformed("more sets than node types");
  std::vector<NodeSet> sets;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(count, "sets", &sets));
  NodeSets gids(types);
  for (const NodeSet& set : sets) {
    if (set.nodeType >= types || !gids[set.nodeType].empty()) {
      return reader.malformed(absl::StrCat("a set of node type ", set.nodeType));
    }
    if (set.count >= kMaxEdges) return reader.malformed(absl::StrCat("a set of ", set.count, " nodes"));
    const uint64_t known = graph.schema().nodeTypes[set.nodeType].count;
    FARHOP_RETURN_IF_ERROR(narrowGids(graph, set.nodeType)
                               ? takeGids<uint32_t>(&reader, set.count, known, &gids[set.nodeType])
                               : takeGids<uint64_t>(&reader, set.count, known, &gids[set.nodeType]));
  }
  FARHOP_RETURN_IF_ERROR(reader.finish());
  return gids;
}

absl::StatusOr<std::vector<rpc::Bytes>> serveSubgraph(const SubgraphRequest& request, const PositionsByType& positions,
                                                      const PartitionedGraph& graph, uint64_t maxBytes) {
  InducedEdges edges;
  const std::vector<partition::Relation>& relations = graph.schema().relations;
  for (size_t r = 0; r < relations.size(); ++r) {
    const NodePositions* const set = positions[relations[r].source].get();
    if (set == nullptr) continue;
    const int relation = static_cast<int>(r);
    FARHOP_RETURN_IF_ERROR(graph.narrowIds(relation) ? induceRuns<uint32_t>(request, relation, *set, graph, maxBytes, &edges)
                                                     : induceRuns<uint64_t>(request, relation, *set, graph, maxBytes, &edges));
  }
  std::vector<rpc::Bytes> reply;
  reply.push_back(bytesOf(edges.sources, edges.counts));
  if (request.wantEdgeIds) reply.push_back(bytesOf(edges.edgeIds, {}));
  return reply;
}

absl::StatusOr<std::vector<std::vector<DrawSlice>>> sliceSubgraphReply(const SubgraphRequest& request,
                                                                       std::span<const rpc::Bytes> reply,
                                                                       std::span<const uint64_t> setSizes,
                                                                       const PartitionedGraph& graph) {
  const absl::Status bad = absl::InternalError("malformed subgraph reply: it does not fit the request");
  if (reply.size() != (request.wantEdgeIds ? 2U : 1U) || reply[0].size() % sizeof(uint32_t) != 0) return bad;
  const std::vector<partition::Relation>& relations = graph.schema().relations;
  const auto isAsked = [&](const partition::Relation& relation, const RowRun& run) {
    return setSizes[relation.source] > 0 && relation.destination == static_cast<int>(run.nodeType);
  };
  uint64_t rows = 0;
  for (const partition::Relation& relation : relations) {
    for (const RowRun& run : request.runs) rows += isAsked(relation, run) ? run.count : 0;
  }
  const std::span<const uint32_t> values = reply[0].as<uint32_t>();
  if (rows > values.size()) return bad;
  const std::span<const uint32_t> counts = values.last(rows);
  const uint64_t edges = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  if (edges != values.size() - rows) return bad;
  if (request.wantEdgeIds && reply[1].size() != edges * sizeof(uint64_t)) return bad;
  const uint32_t* count = counts.data();
  const uint32_t* source = values.data();
  const uint64_t* edgeId = request.wantEdgeIds ? reply[1].as<uint64_t>().data() : nullptr;
  std::vector<std::vector<DrawSlice>> slices(relations.size(), std::vector<DrawSlice>(request.runs.size()));
  for (size_t r = 0; r < relations.size(); ++r) {
    for (size_t i = 0; i < request.runs.size(); ++i) {
      if (!isAsked(relations[r], request.runs[i])) continue;
      const uint64_t own = std::accumulate(count, count + request.runs[i].count, uint64_t{0});
      slices[r][i] = {count, source, edgeId, own};
      const uint64_t known = setSizes[relations[r].source];
      if (std::any_of(source, source + own, [known](uint32_t position) { return position >= known; })) return bad;
      count += request.runs[i].count;
      source += own;
      if (edgeId != nullptr) edgeId += own;
    }
  }
  return slices;
}

void registerSubgraphService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph) {
  agent->handle(kSubgraphMethod, [graph = std::move(graph)](rpc::Request request, rpc::Responder responder) {
    const auto serve = [&]() -> absl::StatusOr<std::vector<rpc::Bytes>> {
      if (request.arrays.size() != 2) return absl::InvalidArgumentError("malformed subgraph request: not two arrays");
      FARHOP_ASSIGN_OR_RETURN(const SubgraphRequest rows, decodeSubgraphRows(request.arrays[0], *graph));
      FARHOP_ASSIGN_OR_RETURN(const NodeSets sets, decodeNodeSets(request.arrays[1], *graph));
      PositionsByType positions;
      for (const std::vector<uint64_t>& gids : sets) {
        positions.push_back(gids.empty() ? nullptr : std::make_unique<const NodePositions>(gids));
      }
      return serveSubgraph(rows, positions, *graph);
    };
    absl::StatusOr<std::vector<rpc::Bytes>> reply = serve();
    if (!reply.ok()) {
      responder.fail(reply.status());
      return;
    }
    std::vector<rpc::OutArray> arrays;
    for (rpc::Bytes& bytes : *reply) arrays.push_back(rpc::OutArray::fromBytes(std::move(bytes)));
    responder.reply(std::move(arrays));
  });
}

}  // namespace farhop::sampler
