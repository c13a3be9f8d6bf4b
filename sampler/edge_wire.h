// Requests for features of edges: of those that a draw gives, and of those with given ids.
//
// Drawn edges (kDrawnEdgesMethod): the owner of the rows draws them once more and sends features in place of
// neighbours, so that no edge id travels. Request arrays, little-endian:
//   0  DrawnEdgesHeader
//   1  u32 feature indices (into the relation's features, or kEdgeIdFeature)
//   2  a neighbour request with one draw (neighbor_wire.h)
//   3  RowPart[features], only where not all rows are wanted whole (row_format.h)
// Reply: one array per feature, rows in the order of the draw, packed; then u64: drawnEdgesChecksum() of the sources,
// by which the requester knows that the draw is the one of its batch.
//
// Edges by id (kEdgesByIdMethod): for reverse relations, the features of which lie with the forward edge.
//   0  EdgesByIdHeader
//   1  u32 feature indices
//   2  EdgeRun[N]: (partition, count): whose rows follow
//   3  u32 local indices of the destinations in run order
//   4  u64 original edge ids, likewise
//   5  RowPart[features], as above
// Reply: one array per feature.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "rpc/bytes.h"
#include "sampler/neighbor_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/row_format.h"

namespace farhop::sampler {

inline constexpr uint16_t kDrawnEdgesMethod = 24;
inline constexpr uint16_t kEdgesByIdMethod = 25;

// Original edge ids can be pulled like a feature: int64, one number per edge, under this index and name.
inline constexpr uint32_t kEdgeIdFeature = 0xFFFFFFFF;
inline constexpr char kEdgeIdName[] = "edge_id";

// The index of an edge feature by name, kEdgeIdName included; of a reverse relation: the forward relation's. NotFound
// lists those that exist.
absl::StatusOr<uint32_t> edgeFeatureIndex(const PartitionedGraph& graph, int relation, const std::string& name);
// What an index means; it must be valid.
partition::FeatureSpec edgeFeatureSpec(const PartitionedGraph& graph, int relation, uint32_t feature);
// The relation with which the features lie: itself, or of a reverse relation the forward one.
int featureRelation(const PartitionedGraph& graph, int relation);

struct DrawnEdgesHeader {
  uint64_t skip = 0;   // edges of the first row that are left out
  uint64_t edges = 0;  // that follow; the last row may have more
};
struct DrawnEdgesRequest {
  DrawnEdgesHeader header;
  std::vector<uint32_t> features;
  NeighborRequest rows;  // one draw
  std::vector<RowPart> parts = {};  // per feature; empty: whole rows
};

struct EdgesByIdHeader {
  uint32_t relation = 0;  // not a reverse one
  uint32_t reserved = 0;
};
struct EdgeRun {
  uint32_t partition = 0;
  uint32_t count = 0;
};
struct EdgesByIdRequest {
  uint32_t relation = 0;
  std::vector<uint32_t> features;
  std::vector<EdgeRun> runs;
  std::vector<uint32_t> rows;
  std::vector<uint64_t> edgeIds;  // as long as rows
  std::vector<RowPart> parts = {};  // as above
};

std::vector<rpc::OutArray> encodeDrawnEdges(DrawnEdgesRequest request);
std::vector<rpc::OutArray> encodeEdgesById(EdgesByIdRequest request);

// Decode and check everything against the graph: own partitions, existing relations, features and rows, consistent
// lengths. InvalidArgument or FailedPrecondition otherwise.
absl::StatusOr<DrawnEdgesRequest> decodeDrawnEdges(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);
absl::StatusOr<EdgesByIdRequest> decodeEdgesById(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);

// Of each feature, what is wanted of an edge's row: as `parts` says, or all of it.
std::vector<RowPart> edgeRowParts(const PartitionedGraph& graph, int relation, std::span<const uint32_t> features,
                                  std::span<const RowPart> parts);

// What edge number `index` of a reply, with source `gid`, adds to its checksum.
inline uint64_t drawnEdgesChecksum(uint64_t index, uint64_t gid) { return mix64(mix64(gid + kGoldenGamma) + index); }

}  // namespace farhop::sampler
