// Serves rows of own partitions by writing them into the asker's memory over the bulk transport (sampler/bulk_wire.h).
//
// A row is copied once here, from the mapping into a registered buffer, and goes from there by the network. A pull uses a
// few buffers in turn, so that the next one is filled while the others are under way. Rows that land next to each other
// go in one write. A pull that is late or whose writes fail begins no more of them; it is answered when nothing of it is
// under way any more, with the number of writes that its asker will see arrive.
#pragma once

#include <cstddef>
#include <memory>

#include "rpc/agent.h"
#include "rpc/bulk_transport.h"
#include "sampler/partitioned_graph.h"
#include "sampler/sampler_metrics.h"

namespace farhop::sampler {

struct BulkServiceOptions {
  // Its owner closes it after the agent and before it lets it go.
  std::shared_ptr<rpc::BulkTransport> transport;
  std::shared_ptr<const PartitionedGraph> graph;
  std::shared_ptr<SamplerMetrics> metrics;
  size_t bufferBytes = size_t{512} << 10;
  size_t buffersPerPull = 3;
  // Served at a time to one peer; others wait in line.
  size_t pullsPerPeer = 4;
};

void registerBulkFeatureService(rpc::Agent* agent, BulkServiceOptions options);

}  // namespace farhop::sampler
