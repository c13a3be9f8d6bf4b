// Steps of other machines' random walks, drawn from the own partitions.
#pragma once

#include <memory>

#include "base/status.h"
#include "rpc/agent.h"
#include "rpc/bytes.h"
#include "sampler/partitioned_graph.h"
#include "sampler/walk_wire.h"

namespace farhop::sampler {

// The reply to a checked request; the same code for own walks. Thread-safe. Fail when the store's own data do not
// allow it.
absl::StatusOr<rpc::Bytes> serveSteps(const StepRequest& request, const PartitionedGraph& graph);
absl::StatusOr<rpc::Bytes> serveAdjacency(const AdjacencyRequest& request, const PartitionedGraph& graph);

// Registers both methods on `agent`; `graph` is kept by the handlers. They run on the agent's serving executor.
void registerWalkService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph);

}  // namespace farhop::sampler
