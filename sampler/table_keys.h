// Where the tables of features of a machine's own partitions lie in its registered memory, for others that read rows by
// themselves over the bulk transport: the request, its reply, and the service that registers the tables.
//
// The request is one array, little-endian: TableKeysHeader, u32[features] feature indices. The reply is one array:
// TableKey[N], one per feature and own partition that has rows. What the job makes (sampler/job_features.h) is refused: its
// memory may be let go of while somebody reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "rpc/agent.h"
#include "rpc/bulk_transport.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

inline constexpr uint16_t kTableKeysMethod = 33;

struct TableKeysHeader {
  uint32_t nodeType = 0;
  uint32_t features = 0;
};
struct TableKeysRequest {
  uint32_t nodeType = 0;
  std::vector<uint32_t> features;
};
struct TableKey {
  uint32_t feature = 0;  // index into the request's
  uint32_t partition = 0;
  uint64_t key = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;

  rpc::RemoteRegion region() const { return {key, address, bytes}; }
};

rpc::OutArray encodeTableKeysRequest(const TableKeysRequest& request);
absl::StatusOr<TableKeysRequest> decodeTableKeysRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);

rpc::OutArray encodeTableKeys(const std::vector<TableKey>& keys);
// [feature][partition] regions, empty ones for partitions of others; checked to be the whole tables of all partitions of
// `machine`.
absl::StatusOr<std::vector<std::vector<rpc::RemoteRegion>>> decodeTableKeys(std::span<const rpc::Bytes> arrays,
                                                                            const TableKeysRequest& request, int machine,
                                                                            const PartitionedGraph& graph);

// Registers a table when it is first asked for, and keeps it registered: its mapping lives as long as the transport. The
// transport's owner closes it after the agent and before it lets it go.
void registerTableKeys(rpc::Agent* agent, std::shared_ptr<rpc::BulkTransport> transport,
                       std::shared_ptr<const PartitionedGraph> graph);

}  // namespace farhop::sampler
