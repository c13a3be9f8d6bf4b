#include "partition/metis_graph.h"

#include <algorithm>

namespace farhop::partition {
namespace {

constexpr uint64_t kMaxIdx = static_cast<uint64_t>(IDX_MAX);

// Calls visit(a, b) with METIS's node numbers for every edge that is no self loop.
template <typename Visit>
void forEachEdge(const Dataset& dataset, const std::vector<uint64_t>& typeOffsets, const Visit& visit) {
  for (size_t r = 0; r < dataset.edges.size(); ++r) {
    const EdgeList& edges = dataset.edges[r];
    const uint64_t sources = typeOffsets[dataset.schema.relations[r].source];
    const uint64_t destinations = typeOffsets[dataset.schema.relations[r].destination];
    for (uint64_t e = 0; e < edges.source.size(); ++e) {
      const uint64_t a = sources + edges.source[e], b = destinations + edges.destination[e];
      if (a != b) visit(a, b);
    }
  }
}

// Sorts each node's neighbours and merges equal ones into one with their number as weight, in place.
void mergeParallel(MetisGraph* graph) {
  size_t out = 0;
  idx_t begin = 0;
  for (size_t node = 0; node + 1 < graph->indptr.size(); ++node) {
    const idx_t end = graph->indptr[node + 1];
    std::sort(graph->neighbors.begin() + begin, graph->neighbors.begin() + end);
    const size_t first = out;
    for (idx_t i = begin; i < end; ++i) {
      const idx_t neighbor = graph->neighbors[static_cast<size_t>(i)];
      if (out > first && graph->neighbors[out - 1] == neighbor) {
        ++graph->edgeWeights.back();
        continue;
      }
      graph->neighbors[out++] = neighbor;
      graph->edgeWeights.push_back(1);
    }
    begin = end;
    graph->indptr[node + 1] = static_cast<idx_t>(out);
  }
  graph->neighbors.resize(out);
  graph->neighbors.shrink_to_fit();
}

void weighNodes(const std::vector<std::vector<bool>>* train, size_t nodes, MetisGraph* graph) {
  bool anyTrain = false;
  if (train != nullptr) {
    for (const std::vector<bool>& type : *train) {
      anyTrain = anyTrain || std::find(type.begin(), type.end(), true) != type.end();
    }
  }
  if (!anyTrain) {
    graph->nodeWeights.assign(nodes, 1);
    return;
  }
  graph->constraints = 2;
  graph->nodeWeights.reserve(2 * nodes);
  for (const std::vector<bool>& type : *train) {
    for (bool seed : type) {
      graph->nodeWeights.push_back(1);
      graph->nodeWeights.push_back(seed ? 1 : 0);
    }
  }
}

}  // namespace

absl::Status checkMetisLimits(uint64_t nodes, uint64_t edges) {
  if (nodes < kMaxIdx && edges <= kMaxIdx / 2) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "METIS in this build counts with ", IDXTYPEWIDTH, "-bit integers, enough for ", kMaxIdx - 1,
      " nodes and ", kMaxIdx / 2, " edges; the graph has ", nodes, " nodes and ", edges,
      " edges without self loops. Use --method random, or build with a METIS of 64-bit idx_t"));
}

absl::StatusOr<MetisGraph> buildMetisGraph(const Dataset& dataset,
                                           const std::vector<std::vector<bool>>* train) {
  std::vector<uint64_t> typeOffsets;
  uint64_t nodes = 0, edges = 0;
  for (const NodeType& type : dataset.schema.nodeTypes) {
    typeOffsets.push_back(nodes);
    nodes += type.count;
  }
  forEachEdge(dataset, typeOffsets, [&](uint64_t, uint64_t) { ++edges; });
  FARHOP_RETURN_IF_ERROR(checkMetisLimits(nodes, edges));

  MetisGraph graph;
  graph.indptr.assign(nodes + 1, 0);
  forEachEdge(dataset, typeOffsets, [&](uint64_t a, uint64_t b) {
    ++graph.indptr[a + 1];
    ++graph.indptr[b + 1];
  });
  for (size_t node = 0; node < nodes; ++node) graph.indptr[node + 1] += graph.indptr[node];
  graph.neighbors.resize(2 * edges);
  std::vector<idx_t> next(graph.indptr.begin(), graph.indptr.end() - 1);
  forEachEdge(dataset, typeOffsets, [&](uint64_t a, uint64_t b) {
    graph.neighbors[static_cast<size_t>(next[a]++)] = static_cast<idx_t>(b);
    graph.neighbors[static_cast<size_t>(next[b]++)] = static_cast<idx_t>(a);
  });
  mergeParallel(&graph);
  weighNodes(train, nodes, &graph);
  return graph;
}

}  // namespace farhop::partition
