// Gathers feature rows of own partitions, for this process and for other machines of the group.
//
// Request arrays, little-endian:
//   0  FeatureRequestHeader
//   1  u32 feature indices (into the node type's features, kOriginalIdFeature, or of the job's own: job_features.h)
//   2  FeatureRun[N]: (partition, count): whose rows follow
//   3  u32 local indices in run order
//   4  RowPart[features], only where not all rows are wanted whole: which bytes of each feature's rows
// Reply: one array per feature, rows (or their parts) in request order, packed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "rpc/agent.h"
#include "sampler/neighbor_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/row_format.h"
#include "sampler/sampler_metrics.h"

namespace farhop::sampler {

struct FeatureRequestHeader {
  uint32_t nodeType = 0;
  uint32_t reserved = 0;
};
struct FeatureRun {
  uint32_t partition = 0;
  uint32_t count = 0;
};
struct FeatureRequest {
  uint32_t nodeType = 0;
  std::vector<uint32_t> features;
  std::vector<FeatureRun> runs;
  std::vector<uint32_t> rows;
  std::vector<RowPart> parts = {};  // per feature; empty: whole rows
};

std::vector<rpc::OutArray> encodeFeatureRequest(FeatureRequest request);
absl::StatusOr<FeatureRequest> decodeFeatureRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph);
// That everything asked for exists and is this machine's. InvalidArgument or FailedPrecondition otherwise.
absl::Status checkFeatureRequest(const FeatureRequest& request, const PartitionedGraph& graph);

// Original ids can be pulled like a feature: int64, one number per row, under this index and name.
inline constexpr uint32_t kOriginalIdFeature = 0xFFFFFFFF;
inline constexpr char kOriginalIdName[] = "original_id";

// The index of a node type's feature by name, kOriginalIdName and the job's own included; NotFound lists those that
// exist.
absl::StatusOr<uint32_t> featureIndex(const PartitionedGraph& graph, int nodeType, const std::string& name);
// What a feature index means; the index must be valid.
partition::FeatureSpec featureSpec(const PartitionedGraph& graph, int nodeType, uint32_t feature);

// The table of one own partition, or FailedPrecondition when the store's partition lacks it, or the job has it no more.
// Borrows the graph's mapping, or what the result owns: keep it while its rows are read.
absl::StatusOr<OwnTable> ownTable(const PartitionedGraph& graph, int nodeType, uint32_t feature, int partition);

// Copies what `copy` wants of rows `rows[i]` of `table` to destination + slots[i] * its size (slots empty: i). Prefetches.
void gatherRows(const partition::FeatureTable& table, std::span<const uint32_t> rows, std::span<const uint32_t> slots,
                const RowCopy& copy, std::byte* destination);

void registerFeatureService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph,
                            std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes);

}  // namespace farhop::sampler
