#include "sampler/subgraph_wire.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "sampler/tree_nodes.h"
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
    const size_t begin = at;
    at += run.count;
    if (static_cast<int>(run.nodeType) != graph.schema().relations[relation].destination) continue;
    const int partition = static_cast<int>(run.partition);
    const CsrView<Id> view = graph.view<Id>(partition, relation);
    const RowLimits limits{request.trees, request.times, graph.edgeTimes(partition, relation)};
    for (size_t first = begin; first < at;) {
      const std::span<const uint32_t> rows = std::span(request.rows).subspan(first, at - first);
      const size_t count = rowsTogether(view, rows, std::numeric_limits<uint64_t>::max());
      induceRows<Id>(view, rows.first(count), limits.part(first, count), set, request.wantEdgeIds, out);
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

// Makes tree nodes of gids.
absl::Status takeTrees(WireReader* reader, uint64_t known, std::vector<uint64_t>* gids) {
  if (known > kNoTreeNode) return reader->malformed(absl::StrCat("trees of a type of ", known, " nodes"));
  std::vector<uint32_t> trees;
  FARHOP_RETURN_IF_ERROR(reader->takeAll(gids->size(), "trees", &trees));
  for (size_t i = 0; i < trees.size(); ++i) {
    if (trees[i] >= kMaxTrees) return reader->malformed(absl::StrCat("tree ", trees[i]));
    (*gids)[i] = treeNode(trees[i], (*gids)[i]);
  }
  return absl::OkStatus();
}

template <typename T>
rpc::Bytes bytesOf(const PodVector<T>& first, const PodVector<T>& second) {
  WireWriter writer((first.size() + second.size()) * sizeof(T));
  writer.put(first.data(), first.size());
  writer.put(second.data(), second.size());
  return writer.finish();
}

// Whether a run has rows of a relation that could have edges.
bool isAsked(const partition::Relation& relation, const RowRun& run, std::span<const uint64_t> setSizes) {
  return setSizes[relation.source] > 0 && relation.destination == static_cast<int>(run.nodeType);
}

absl::Status misfit() { return absl::InternalError("malformed subgraph reply: it does not fit the request"); }

}  // namespace

rpc::Bytes encodeSubgraphRows(const SubgraphRequest& request) {
  SubgraphRequestHeader header;
  header.flags = (request.wantEdgeIds ? kWantEdgeIds : 0) | (request.trees.empty() ? 0 : kRowOccurrences) |
                 (request.times.empty() ? 0 : kRowTimes);
  header.runs = static_cast<uint32_t>(request.runs.size());
  WireWriter writer(sizeof(header) + request.runs.size() * sizeof(RowRun) + request.times.size() * sizeof(int64_t) +
                    (request.trees.size() + request.rows.size()) * sizeof(uint32_t));
  writer.put(&header, 1);
  writer.putAll(request.runs);
  writer.putAll(request.times);
  writer.putAll(request.trees);
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
  const bool hasTrees = (header.flags & kRowOccurrences) != 0, hasTimes = (header.flags & kRowTimes) != 0;
  const uint64_t count = reader.left() / (sizeof(uint32_t) * (hasTrees ? 2 : 1) + (hasTimes ? sizeof(int64_t) : 0));
  if (hasTimes) FARHOP_RETURN_IF_ERROR(reader.takeAll(count, "times", &request.times));
  if (hasTrees) FARHOP_RETURN_IF_ERROR(reader.takeAll(count, "trees", &request.trees));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(count, "rows", &request.rows));
  FARHOP_RETURN_IF_ERROR(reader.finish());
  uint64_t at = 0;
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

rpc::Bytes encodeNodeSets(std::span<const PodVector<uint64_t>> nodes, std::span<const PodVector<uint32_t>> trees,
                          bool disjoint, const PartitionedGraph& graph) {
  std::vector<NodeSet> sets;
  size_t bytes = sizeof(uint64_t);
  for (size_t type = 0; type < nodes.size(); ++type) {
    if (nodes[type].empty()) continue;
    sets.push_back({static_cast<uint32_t>(type), 0, nodes[type].size()});
    const size_t nodeBytes = (narrowGids(graph, type) ? sizeof(uint32_t) : sizeof(uint64_t)) + (disjoint ? sizeof(uint32_t) : 0);
    bytes += sizeof(NodeSet) + nodes[type].size() * nodeBytes;
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
    if (disjoint) writer.put(trees[set.nodeType].data(), gids.size());
  }
  return writer.finish();
}

absl::StatusOr<NodeSets> decodeNodeSets(const rpc::Bytes& bytes, bool disjoint, const PartitionedGraph& graph) {
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
    if (disjoint) FARHOP_RETURN_IF_ERROR(takeTrees(&reader, known, &gids[set.nodeType]));
  }
  FARHOP_RETURN_IF_ERROR(reader.finish());
  return gids;
}

absl::Status induceEdges(const SubgraphRequest& request, const PositionsByType& positions, const PartitionedGraph& graph,
                         uint64_t maxBytes, InducedEdges* edges) {
  edges->clear();
  const std::vector<partition::Relation>& relations = graph.schema().relations;
  for (size_t r = 0; r < relations.size(); ++r) {
    const NodePositions& set = positions[relations[r].source];
    if (set.size() == 0) continue;
    const int relation = static_cast<int>(r);
    FARHOP_RETURN_IF_ERROR(graph.narrowIds(relation) ? induceRuns<uint32_t>(request, relation, set, graph, maxBytes, edges)
                                                     : induceRuns<uint64_t>(request, relation, set, graph, maxBytes, edges));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<rpc::Bytes>> serveSubgraph(const SubgraphRequest& request, const PositionsByType& positions,
                                                      const PartitionedGraph& graph, uint64_t maxBytes) {
  InducedEdges edges;
  FARHOP_RETURN_IF_ERROR(induceEdges(request, positions, graph, maxBytes, &edges));
  std::vector<rpc::Bytes> reply;
  reply.push_back(bytesOf(edges.sources, edges.counts));
  if (request.wantEdgeIds) reply.push_back(bytesOf(edges.edgeIds, {}));
  return reply;
}

absl::StatusOr<InducedView> viewSubgraphReply(const SubgraphRequest& request, std::span<const rpc::Bytes> reply,
                                              std::span<const uint64_t> setSizes, const PartitionedGraph& graph) {
  if (reply.size() != (request.wantEdgeIds ? 2U : 1U) || reply[0].size() % sizeof(uint32_t) != 0) return misfit();
  uint64_t rows = 0;
  for (const partition::Relation& relation : graph.schema().relations) {
    for (const RowRun& run : request.runs) rows += isAsked(relation, run, setSizes) ? run.count : 0;
  }
  const std::span<const uint32_t> values = reply[0].as<uint32_t>();
  if (rows > values.size()) return misfit();
  const uint64_t edges = values.size() - rows;
  if (request.wantEdgeIds && reply[1].size() != edges * sizeof(uint64_t)) return misfit();
  return InducedView{values.last(rows), values.first(edges), request.wantEdgeIds ? reply[1].as<uint64_t>().data() : nullptr};
}

absl::StatusOr<uint64_t> sliceInduced(const SubgraphRequest& request, const InducedView& induced,
                                      std::span<const uint64_t> setSizes, const PartitionedGraph& graph,
                                      std::vector<std::vector<DrawSlice>>* slices) {
  const uint64_t edges = std::accumulate(induced.counts.begin(), induced.counts.end(), uint64_t{0});
  if (edges != induced.sources.size()) return misfit();
  const uint32_t* count = induced.counts.data();
  const uint32_t* source = induced.sources.data();
  const uint64_t* edgeId = induced.edgeIds;
  const std::vector<partition::Relation>& relations = graph.schema().relations;
  for (size_t r = 0; r < relations.size(); ++r) {
    for (const RowRun& run : request.runs) {
      if (!isAsked(relations[r], run, setSizes)) continue;
      const uint64_t own = std::accumulate(count, count + run.count, uint64_t{0});
      (*slices)[r][run.partition] = {count, source, edgeId, own};
      const uint64_t known = setSizes[relations[r].source];
      if (std::any_of(source, source + own, [known](uint32_t position) { return position >= known; })) return misfit();
      count += run.count;
      source += own;
      if (edgeId != nullptr) edgeId += own;
    }
  }
  return edges;
}

void registerSubgraphService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph) {
  agent->handle(kSubgraphMethod, [graph = std::move(graph)](rpc::Request request, rpc::Responder responder) {
    const auto serve = [&]() -> absl::StatusOr<std::vector<rpc::Bytes>> {
      if (request.arrays.size() != 2) return absl::InvalidArgumentError("malformed subgraph request: not two arrays");
      FARHOP_ASSIGN_OR_RETURN(const SubgraphRequest rows, decodeSubgraphRows(request.arrays[0], *graph));
      FARHOP_ASSIGN_OR_RETURN(const NodeSets sets, decodeNodeSets(request.arrays[1], !rows.trees.empty(), *graph));
      const PositionsByType positions(sets.begin(), sets.end());
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
