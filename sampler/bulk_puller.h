// Fetches rows of other machines by the bulk transport: their owner writes them into this process's memory
// (sampler/bulk_feature_service.h), this process counts what has arrived.
//
// Rows that lie in long runs in their destination - wide rows, or rows that were asked for in order - land there
// directly. Others come packed into registered staging buffers, a few per owner, from which the puller copies them to
// their place while they are in a cache: a write per narrow row would cost more than that copy.
//
// Or the puller reads the rows from the owner's registered mapping, into the same places: in the order of their addresses,
// one read for rows that are neighbours at both ends, many of them under way. Parts of rows are read alone.
//
// The owner knows until when it may begin writes, and answers when all that it has begun are made, with their number; so
// the memory of a chunk that is late is let go as soon as its owner has ended it, at the latest after a grace period. An
// owner that does not end it, or whose writes fail, is given up by the bulk transport, which closes the connection; its
// rows are fetched by requests of the agent from then on. Until that is done the memory is kept.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "rpc/agent.h"
#include "rpc/bulk_slots.h"
#include "rpc/bulk_transport.h"
#include "sampler/row_transport.h"

namespace farhop::sampler {

// Who moves the rows: their owner, which gathers and writes them, or the puller, which reads them from the owner's mapping
// without a thread of the owner's.
enum class BulkReads {
  kAutomatic,  // read where the network does it in hardware and rows are wide
  kNever,
  kAlways,  // where the owner's tables can be registered, which those of the job's own features are not
};
// What FARHOP_FABRIC_READS says: "auto" (or nothing), "never", "always". InvalidArgument for anything else.
absl::StatusOr<BulkReads> bulkReadsFromEnvironment();

struct BulkPullerOptions {
  // Its owner closes it after the agent and before it lets it go.
  std::shared_ptr<rpc::BulkTransport> transport;
  // Counts the transport's arrivals.
  std::shared_ptr<rpc::BulkSlots> slots;
  // Whose rows are pulled. Without it nothing is read.
  std::shared_ptr<const PartitionedGraph> graph;
  // Who the owners are, by machine, for messages.
  std::vector<PeerName> peers;
  size_t stagingBytes = size_t{1} << 20;
  // Under way to one owner, and staging buffers per owner; more wait in line.
  int chunksPerPeer = 4;
  // Average run from which on rows land in their destination.
  size_t landingRunBytes = size_t{8} << 10;
  // With less time than this, rows are staged: an owner that is late in landing them has to be given up.
  std::chrono::milliseconds minLandingTime{2'000};
  // Of a chunk of wide rows, which needs no staging.
  size_t landingChunkBytes = size_t{8} << 20;
  BulkReads reads = BulkReads::kAutomatic;
  // Average length of rows from which on they are read, if that is automatic.
  size_t readRowBytes = size_t{4} << 10;
  // Of one chunk: a few chunks' worth is what a line of transfers holds.
  size_t maxReadsPerChunk = 1024;
  // After a chunk's deadline, for its owner to end it.
  std::chrono::milliseconds grace{10'000};
};

// The agent must outlive it. Serves no more once it is destroyed; what is under way then ends as Cancelled.
std::unique_ptr<RowTransport> bulkRowTransport(rpc::Agent* agent, BulkPullerOptions options);

}  // namespace farhop::sampler
