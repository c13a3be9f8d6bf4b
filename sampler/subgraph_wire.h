// What inducing a batch's edges asks of one machine: the edges of its rows whose sources are nodes of the batch.
//
// The request is two arrays, little-endian, their parts behind each other:
//   0  SubgraphRequestHeader
//      RowRun[runs]: (node type, partition, count): whose rows follow
//      i64[sum of counts]: the time limit of each row, with kRowTimes
//      u32[sum of counts]: the tree of each row, with kRowOccurrences
//      u32[sum of counts]: local indices in run order
//   1  u64 number of sets; NodeSet[sets]: (node type, count), each type at most once; then each set's gids in batch
//      order, u32 where the type has fewer than 2^32 nodes, else u64, and with kRowOccurrences behind them the u32 trees
//      of the same. The same for all machines.
// The reply is one array or two:
//   0  u32 positions of sources in their type's set: for each relation in the schema's order whose source type has a
//      set, for each run of its destination type, for each row, in row order; then u32 counts in the same order
//   1  u64 original edge ids of all, where asked for
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/pod_vector.h"
#include "base/status.h"
#include "rpc/agent.h"
#include "rpc/bytes.h"
#include "sampler/neighbor_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/reply_limit.h"
#include "sampler/subgraph_kernel.h"

namespace farhop::sampler {

inline constexpr uint16_t kSubgraphMethod = 18;
// Of own rows, at most: 2^28 edges with ids. Those of other machines must fit a message.
inline constexpr uint64_t kMaxOwnInducedBytes = uint64_t{12} << 28;

struct SubgraphRequestHeader {
  uint32_t flags = 0;  // kWantEdgeIds, kRowOccurrences, kRowTimes
  uint32_t runs = 0;
};
struct NodeSet {
  uint32_t nodeType = 0;
  uint32_t reserved = 0;
  uint64_t count = 0;
};

struct SubgraphRequest {
  bool wantEdgeIds = false;
  std::vector<RowRun> runs;
  std::vector<uint32_t> rows;
  std::vector<uint32_t> trees;  // as long as rows, or empty: not disjoint
  std::vector<int64_t> times;   // as long as rows, or empty: all edges are visible
};
// The batch's nodes, [node type]; empty where it has none. Where seeds are disjoint these are treeNode()s.
using NodeSets = std::vector<std::vector<uint64_t>>;

rpc::Bytes encodeSubgraphRows(const SubgraphRequest& request);
// `trees`: of the nodes where `disjoint`.
rpc::Bytes encodeNodeSets(std::span<const PodVector<uint64_t>> nodes, std::span<const PodVector<uint32_t>> trees,
                          bool disjoint, const PartitionedGraph& graph);

// Check everything against the graph. InvalidArgument or FailedPrecondition otherwise.
absl::StatusOr<SubgraphRequest> decodeSubgraphRows(const rpc::Bytes& bytes, const PartitionedGraph& graph);
absl::StatusOr<NodeSets> decodeNodeSets(const rpc::Bytes& bytes, bool disjoint, const PartitionedGraph& graph);

// [node type] positions in the sets; made once for all rows. Of size 0: a type without nodes.
using PositionsByType = std::vector<NodePositions>;

// Replaces `edges` by those that a checked request asks for, in the order of the reply: the same code for own rows and
// other machines'. ResourceExhausted, soon after it is known, where they take more than `maxBytes`. Thread-safe.
absl::Status induceEdges(const SubgraphRequest& request, const PositionsByType& positions, const PartitionedGraph& graph,
                         uint64_t maxBytes, InducedEdges* edges);
// The reply.
absl::StatusOr<std::vector<rpc::Bytes>> serveSubgraph(const SubgraphRequest& request, const PositionsByType& positions,
                                                      const PartitionedGraph& graph, uint64_t maxBytes = kMaxReplyBytes);

// Induced edges as they lie, own ones or a reply's.
struct InducedView {
  std::span<const uint32_t> counts, sources;
  const uint64_t* edgeIds = nullptr;  // [sources] or null

  static InducedView of(const InducedEdges& edges, bool wantEdgeIds) {
    return {{edges.counts.data(), edges.counts.size()}, {edges.sources.data(), edges.sources.size()},
            wantEdgeIds ? edges.edgeIds.data() : nullptr};
  }
};
// The view of a reply, borrowed. InternalError when its lengths do not fit the request.
absl::StatusOr<InducedView> viewSubgraphReply(const SubgraphRequest& request, std::span<const rpc::Bytes> reply,
                                              std::span<const uint64_t> setSizes, const PartitionedGraph& graph);
// Cuts it into slices[relation][partition], where the request's runs have rows of the relation's destination type and
// its source type has a set; other slices stay. Counts and positions are checked against the `setSizes` of the node types.
// DrawSlice::neighbors are u32 positions whatever the relation. Slices borrow what the view borrows. Returns the edges.
absl::StatusOr<uint64_t> sliceInduced(const SubgraphRequest& request, const InducedView& induced,
                                      std::span<const uint64_t> setSizes, const PartitionedGraph& graph,
                                      std::vector<std::vector<DrawSlice>>* slices);

// Registers the method on `agent`; `graph` is kept by the handler. It runs on the agent's serving executor.
void registerSubgraphService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph);

}  // namespace farhop::sampler
