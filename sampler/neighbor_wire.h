// The neighbour request and its reply: what one hop of one batch asks of one machine.
//
// Request arrays, little-endian:
//   0  NeighborRequestHeader
//   1  RelationDraw[R]: relations to draw from, each with its fanout, its kind and the key of this hop
//   2  RowRun[N]: (node type, partition, count): whose rows follow
//   3  u32[sum of counts]: local indices in run order
// Reply arrays:
//   0  u32 counts: for each relation, for each run of its destination type, for each row
//   1  u32 neighbour gids, in the same order, of relations with 32-bit ids
//   2  u64 neighbour gids, likewise, of the others
//   3  u64 original edge ids of all, where asked for
// A destination column is not sent: the requester knows the rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "rpc/bytes.h"
#include "sampler/neighbor_draw.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

inline constexpr uint16_t kNeighborMethod = 1;
inline constexpr uint16_t kFeatureMethod = 2;

inline constexpr uint32_t kWantEdgeIds = 1;

struct NeighborRequestHeader {
  uint32_t flags = 0;
  uint32_t reserved = 0;
};
struct RowRun {
  uint32_t nodeType = 0;
  uint32_t partition = 0;
  uint32_t count = 0;
  uint32_t reserved = 0;
};

// A request, its rows still in the arrays that it came in or goes out with.
struct NeighborRequest {
  bool wantEdgeIds = false;
  std::vector<RelationDraw> draws;
  std::vector<RowRun> runs;
  std::vector<uint32_t> rows;
};

std::vector<rpc::OutArray> encodeNeighborRequest(NeighborRequest request);

// Decodes and checks everything against the graph: own partitions, existing relations and rows, consistent
// lengths. InvalidArgument or FailedPrecondition otherwise.
absl::StatusOr<NeighborRequest> decodeNeighborRequest(std::span<const rpc::Bytes> arrays,
                                                      const PartitionedGraph& graph);

// Where one (relation, partition)'s draw lies, for reading in row order.
struct DrawSlice {
  const uint32_t* counts = nullptr;
  const void* neighbors = nullptr;  // u32 or u64 by the relation's width
  const uint64_t* edgeIds = nullptr;
  uint64_t edges = 0;  // sum of the counts
};

// Cuts a reply into slices[draw][run] (empty ones where the run is not of the relation's destination type),
// after checking counts against fanouts and gids against the graph. The slices borrow `reply`.
absl::StatusOr<std::vector<std::vector<DrawSlice>>> sliceNeighborReply(const NeighborRequest& request,
                                                                       std::span<const rpc::Bytes> reply,
                                                                       const PartitionedGraph& graph);

}  // namespace farhop::sampler
