// Draws neighbours for other machines of the group, from the own partitions.
#pragma once

#include <memory>
#include <vector>

#include "base/metrics.h"
#include "rpc/agent.h"
#include "sampler/neighbor_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/reply_limit.h"
#include "sampler/stage_clock.h"

namespace farhop::sampler {

// The reply arrays for a checked request. Thread-safe. Fails when the store's own data do not allow the draw;
// ResourceExhausted, naming relation and fanout, soon after they have more than `maxBytes`.
absl::StatusOr<std::vector<rpc::OutArray>> serveNeighbors(const NeighborRequest& request, const PartitionedGraph& graph,
                                                          uint64_t maxBytes = kMaxReplyBytes);

// Registers the neighbour method on `agent`; `graph` is kept by the handler. Runs on the agent's serving
// executor. `stageClock` may be null; otherwise it outlives the agent.
void registerNeighborService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph,
                             StageClock* stageClock = nullptr);

}  // namespace farhop::sampler
