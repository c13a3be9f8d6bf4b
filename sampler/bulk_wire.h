// The request for rows that the owner writes into memory of the asker by the bulk transport, and its reply.
//
// The request is one array, little-endian, its parts behind each other:
//   BulkPullHeader
//   BulkTarget[features]: where each feature's rows go
//   RowPart[features], with kHasParts
//   u32[features]: feature indices
//   FeatureRun[runs]: (partition, count): whose rows follow
//   u32[rows]: local indices in run order
//   u32[rows], with kHasSlots: the place of each row, for targets that are scattered
// The reply comes when nothing of the request's is under way any more: BulkPullReply, then the text of its error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "rpc/bulk_transport.h"
#include "rpc/bytes.h"
#include "sampler/feature_service.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

inline constexpr uint16_t kBulkPullMethod = 32;

// BulkPullHeader::flags
inline constexpr uint32_t kHasParts = 1;
inline constexpr uint32_t kHasSlots = 2;

struct BulkPullHeader {
  uint32_t slot = 0;      // told in every write (rpc/bulk_slots.h)
  uint32_t nodeType = 0;
  uint32_t features = 0;
  uint32_t runs = 0;
  uint32_t rows = 0;
  uint32_t flags = 0;
  uint32_t workMs = 0;    // after which no write is begun any more
  uint32_t reserved = 0;
};

// Where rows of one feature go: row i to offset + i times its length, or, scattered, offset + slots[i] times its length.
struct BulkTarget {
  uint64_t key = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  uint32_t scattered = 0;
  uint32_t reserved = 0;

  rpc::RemoteRegion region() const { return {key, address, bytes}; }
};

struct BulkPullRequest {
  uint32_t slot = 0;
  uint32_t workMs = 0;
  FeatureRequest rows;
  std::vector<BulkTarget> targets;  // per feature
  std::vector<uint32_t> slots;      // as long as rows.rows, or empty when nothing is scattered
};

struct BulkPullReply {
  uint64_t writes = 0;     // that have been made, each an arrival
  uint32_t uncertain = 0;  // that failed: they may still come, in part or whole
  uint32_t code = 0;       // absl::StatusCode of the request
};

rpc::OutArray encodeBulkPull(const BulkPullRequest& request);
// Decodes and checks everything against the graph, and that all rows land within their targets' regions.
absl::StatusOr<BulkPullRequest> decodeBulkPull(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);

// `status`: how the request ended, the counts aside.
rpc::OutArray encodeBulkPullReply(const BulkPullReply& counts, const absl::Status& status);
struct BulkPullEnd {
  BulkPullReply counts;
  absl::Status status;
};
absl::StatusOr<BulkPullEnd> decodeBulkPullReply(std::span<const rpc::Bytes> arrays);

}  // namespace farhop::sampler
