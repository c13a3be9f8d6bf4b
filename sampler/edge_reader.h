// Reads features of edges of own partitions: for this process and for other machines of the group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rpc/agent.h"
#include "sampler/edge_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/sampler_metrics.h"

namespace farhop::sampler {

// Where the edges of one relation in one partition lie, by their ids. A short row is searched from end to end; a long
// one through a list of its positions in the order of their ids, made when it is first searched and kept: 4 bytes for
// each edge of long rows, at most. Borrows the shard. Thread-safe.
class EdgeIdIndex {
 public:
  // Rows of more edges are long: from there on sorting pays if it serves a few searches.
  static constexpr uint64_t kShortRow = 256;

  explicit EdgeIdIndex(const partition::RelationShard& edges) : edges_(edges) {}
  // The positions of edgeIds[i] of row rows[i], appended to `positions`. InvalidArgument for an id that its row has not.
  absl::Status find(std::span<const uint32_t> rows, std::span<const uint64_t> edgeIds,
                    std::vector<uint64_t>* positions) const;

 private:
  using Order = std::vector<uint32_t>;  // positions within the row
  std::shared_ptr<const Order> orderOf(uint32_t row) const;
  uint64_t findInLongRow(uint32_t row, uint64_t edgeId) const;  // kNotThere

  static constexpr uint64_t kNotThere = ~uint64_t{0};
  const partition::RelationShard& edges_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<uint32_t, std::shared_ptr<const Order>> orders_;  // by row; guarded by mutex_
};

// Thread-safe.
class EdgeReader {
 public:
  explicit EdgeReader(std::shared_ptr<const PartitionedGraph> graph) : graph_(std::move(graph)) {}

  // Draws the rows of a checked request again and writes header.edges rows (or their parts) of feature i to
  // destinations[i], packed;
  // `checksum` becomes that of their sources. InvalidArgument when the draw has fewer edges, or ends before the last row.
  absl::Status readDrawn(const DrawnEdgesRequest& request, std::span<std::byte* const> destinations,
                         uint64_t* checksum) const;
  // The rows of the edges of a checked request, likewise.
  absl::Status readById(const EdgesByIdRequest& request, std::span<std::byte* const> destinations) const;

  const PartitionedGraph& graph() const { return *graph_; }

 private:
  template <typename Id>
  absl::Status readDrawnAs(const DrawnEdgesRequest& request, std::span<std::byte* const> destinations,
                           uint64_t* checksum) const;
  absl::StatusOr<std::vector<partition::FeatureTable>> tables(int relation, std::span<const uint32_t> features,
                                                              int partition) const;
  const EdgeIdIndex& index(int relation, int partition) const;

  std::shared_ptr<const PartitionedGraph> graph_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<int, int>, std::unique_ptr<EdgeIdIndex>> indexes_;  // guarded by mutex_
};

// Registers both methods; runs on the agent's serving executor. A reply of more than `maxReplyBytes` is refused.
void registerEdgeService(rpc::Agent* agent, std::shared_ptr<const EdgeReader> reader,
                         std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes);

}  // namespace farhop::sampler
