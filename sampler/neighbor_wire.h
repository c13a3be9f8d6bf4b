// The neighbour request and its reply: what one hop of one batch asks of one machine.
//
// The request is one array, little-endian, its parts behind each other:
//   NeighborRequestHeader
//   RelationDraw[draws]: relations to draw from, each with its fanout, kind and key of this hop
//   RowRun[runs]: (node type, partition, count): whose rows follow
//   ExcludedEdge[excluded]: by (draw, row)
//   i64[sum of counts]: the time limit of each row, with kRowTimes
//   u32[sum of counts]: the occurrence of each row, with kRowOccurrences
//   u32[sum of counts]: local indices in run order
// The reply's arrays, each with two parts:
//   0  u32 neighbour gids of relations with 32-bit ids: for each relation, for each run of its destination type, for
//      each row; then u32 counts of neighbours in the same order, of all relations
//   1  u64 neighbour gids, likewise, of the other relations; then u64 original edge ids of all, where asked for.
//      Left out when it has neither
// A destination column is not sent: the requester knows the rows. Few arrays, because each one costs the transport a
// system call to send and two to receive, an empty one too.
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

// NeighborRequestHeader::flags
inline constexpr uint32_t kWantEdgeIds = 1;
inline constexpr uint32_t kRowOccurrences = 2;
inline constexpr uint32_t kRowTimes = 4;

struct NeighborRequestHeader {
  uint32_t flags = 0;
  uint32_t draws = 0;
  uint32_t runs = 0;
  uint32_t excluded = 0;
};
struct RowRun {
  uint32_t nodeType = 0;
  uint32_t partition = 0;
  uint32_t count = 0;
  uint32_t reserved = 0;
};

struct NeighborRequest {
  bool wantEdgeIds = false;
  std::vector<RelationDraw> draws;
  std::vector<RowRun> runs;
  std::vector<uint32_t> rows;
  std::vector<uint32_t> occurrences;   // as long as rows, or empty
  std::vector<int64_t> times;          // as long as rows, or empty
  std::vector<ExcludedEdge> excluded;  // by (draw, row)

  // What draw number `draw` draws from rows[first .. first + count). Borrowed.
  DrawRows rowsOf(uint32_t draw, uint32_t first, uint32_t count) const;
};

std::vector<rpc::OutArray> encodeNeighborRequest(const NeighborRequest& request);

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
