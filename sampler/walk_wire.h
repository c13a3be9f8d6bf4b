// What a step of the random walks of one batch asks of one machine: candidates for the next nodes, and whether nodes are
// neighbours of others.
//
// The step request is one array, little-endian, its parts behind each other:
//   StepRequestHeader
//   PartitionRun[runs]: (partition, count): whose rows follow
//   u32[sum of counts]: local indices of the nodes where walks stand, in run order
//   u32[sum of counts]: indices of these walks, part of their keys
// Its reply is one array: gids (u32 or u64 by the relation's width), `tries` for each row, all ones where the row offers
// no step.
//
// The adjacency request is one array:
//   AdjacencyRequestHeader
//   PartitionRun[runs]
//   u32[sum of counts]: local indices of rows
//   u32 or u64[sum of counts]: a gid for each
// Its reply is one array: a byte for each, 1 when the gid is a neighbour of the row's node, else 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/pod_vector.h"
#include "base/status.h"
#include "rpc/bytes.h"
#include "sampler/partitioned_graph.h"
#include "sampler/walk_plan.h"
#include "sampler/wire_parts.h"

namespace farhop::sampler {

inline constexpr uint16_t kStepMethod = 16;
inline constexpr uint16_t kAdjacencyMethod = 17;

// Candidates in one reply, at most.
inline constexpr uint64_t kMaxCandidates = uint64_t{1} << 23;
// A gid that is none.
inline constexpr uint64_t kNoNode = ~uint64_t{0};

struct StepRequestHeader {
  uint64_t stepKey = 0;
  uint32_t relation = 0;
  uint32_t weight = 0;  // of a weighted step: index of the relation's feature, or kStoredWeights; else 0
  uint32_t firstTry = 0;
  uint32_t tries = 0;
  uint32_t runs = 0;
  uint32_t weighted = 0;  // 1: by weight; 0: uniformly
};
struct AdjacencyRequestHeader {
  uint32_t relation = 0;
  uint32_t runs = 0;
};

struct StepRequest {
  WalkStep step;
  uint64_t stepKey = 0;
  uint32_t firstTry = 0;
  uint32_t tries = 1;
  std::vector<PartitionRun> runs;
  std::vector<uint32_t> rows;
  std::vector<uint32_t> walks;  // as long as rows
};
struct AdjacencyRequest {
  int relation = 0;
  std::vector<PartitionRun> runs;
  std::vector<uint32_t> rows;
  std::vector<uint64_t> gids;  // as long as rows
};

rpc::Bytes encodeStepRequest(const StepRequest& request);
rpc::Bytes encodeAdjacencyRequest(const AdjacencyRequest& request, const PartitionedGraph& graph);

// Check everything against the graph: own partitions, existing relations, weights and rows, consistent lengths.
// InvalidArgument or FailedPrecondition otherwise.
absl::StatusOr<StepRequest> decodeStepRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);
absl::StatusOr<AdjacencyRequest> decodeAdjacencyRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);

// Write gids[i * tries + t] for each row i and try t, kNoNode where there is no step; and isNeighbor[i], 0 or 1. Check
// lengths and values first: DataLoss for a gid that does not exist, Internal otherwise.
absl::Status decodeStepReply(const StepRequest& request, std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph,
                             PodVector<uint64_t>* gids);
absl::Status decodeAdjacencyReply(const AdjacencyRequest& request, std::span<const rpc::Bytes> arrays,
                                  PodVector<uint8_t>* isNeighbor);

}  // namespace farhop::sampler
