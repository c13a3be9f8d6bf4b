// Asks whether pairs of nodes are edges of a relation, wherever those are stored.
//
// The request is one array, little-endian, its parts behind each other:
//   EdgeLookupHeader
//   EdgeLookupRun[runs]: (partition, count): whose destinations follow
//   u64[sum of counts]: gids of the sources
//   u32[sum of counts]: local indices of the destinations, in run order
// The reply is one array: a byte per pair, 1 where there is such an edge, else 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "base/task.h"
#include "rpc/agent.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

inline constexpr uint16_t kEdgeLookupMethod = 12;

struct EdgeLookupHeader {
  uint32_t relation = 0;
  uint32_t runs = 0;
};
struct EdgeLookupRun {
  uint32_t partition = 0;
  uint32_t count = 0;
};
struct EdgeLookupRequest {
  uint32_t relation = 0;
  std::vector<EdgeLookupRun> runs;
  std::vector<uint64_t> sources;
  std::vector<uint32_t> rows;
};

std::vector<rpc::OutArray> encodeEdgeLookup(const EdgeLookupRequest& request);
// Decodes and checks everything against the graph, as decodeNeighborRequest() does.
absl::StatusOr<EdgeLookupRequest> decodeEdgeLookup(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);
// The reply to a checked request. Thread-safe.
std::vector<uint8_t> serveEdgeLookup(const EdgeLookupRequest& request, const PartitionedGraph& graph);

// Registers the method on `agent`; `graph` is kept by the handler.
void registerEdgeLookup(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph);

// A pair as asked, by gids that exist.
struct NodePair {
  uint64_t source = 0, destination = 0;
};

// Whether each pair is an edge of `relation`: one request per machine that owns a destination, the own part meanwhile.
// Resumes on `executor`; the agent (null with one machine) and it outlive the task. The error of the first machine that
// does not answer within `timeout`.
Task<absl::StatusOr<std::vector<uint8_t>>> findEdges(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent,
                                                     Executor* executor, int relation, std::vector<NodePair> pairs,
                                                     std::chrono::milliseconds timeout);

}  // namespace farhop::sampler
