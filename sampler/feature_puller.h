// Brings feature rows into memory that the caller names, when the caller asks.
//
// Own rows are copied once, from the mapping, and so are those of other machines that the own partitions keep copies of
// (sampler/feature_cache.h), where all wanted features have them. Remote rows come in chunks, a few of them under way
// per machine, so that the staging memory of a pull is bounded whatever the width of the feature. How a chunk travels,
// and whether its rows go straight to their place, is the business of a RowTransport.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/executor.h"
#include "rpc/agent.h"
#include "sampler/feature_service.h"
#include "sampler/row_transport.h"

namespace farhop::sampler {

struct FeatureTarget {
  uint32_t feature = 0;              // index into the node type's features, or kOriginalIdFeature
  std::byte* destination = nullptr;  // row i for gid i, as `format` makes it
  RowFormat format = {};
};

struct PullRequest {
  int nodeType = 0;
  std::span<const uint64_t> gids;         // read during the call alone; each < count of the type
  std::vector<FeatureTarget> targets;
  bool cache = true;                      // rows may come from the own partitions' caches: the same bytes
  std::shared_ptr<const void> keepAlive;  // holds the destinations until nothing writes to them
  Deadline deadline;
  // Once true, nothing more is asked for, and the pull ends (Cancelled) when what is under way has come. Null: never.
  std::shared_ptr<const std::atomic<bool>> cancelled = nullptr;
};

// Thread-safe. The agent (null with one machine) must outlive it.
class FeaturePuller {
 public:
  // `maxReplyBytes`: size of a chunk; a single row may exceed it.
  FeaturePuller(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent,
                std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes);
  // With a transport of the caller's; null with one machine.
  FeaturePuller(std::shared_ptr<const PartitionedGraph> graph, std::unique_ptr<RowTransport> transport,
                std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes);
  // No pull may be under way, except that the completion of the last one may drop the last reference: whoever
  // starts a pull keeps this alive through PullRequest::keepAlive or `done`.
  ~FeaturePuller();

  // Own rows are there when this returns; `done` runs once, when all rows are or on the first error, on the
  // calling thread or on this puller's. After it nothing writes to the destinations any more. InvalidArgument, before
  // anything is sent, for a format that does not fit its feature.
  void pull(PullRequest request, std::function<void(absl::Status)> done);

 private:
  struct Pull;
  struct Share;
  void plan(Pull* pull) const;
  RowCut cutOf(const Pull& pull) const;
  static void sortByAddress(Pull* pull);
  absl::Status copyOwn(Pull* pull) const;
  std::vector<FeatureCache::Hits> takeCached(const PullRequest& request, std::span<std::vector<uint32_t>> rows,
                                             std::span<std::vector<uint32_t>> slots) const;
  void copyCached(const Pull& pull) const;
  void startChunk(const std::shared_ptr<Pull>& pull, size_t stream);
  absl::Status finishChunk(const std::shared_ptr<Pull>& pull, size_t stream, size_t from, size_t to,
                           absl::StatusOr<FetchedRows> rows);

  std::shared_ptr<const PartitionedGraph> graph_;
  std::unique_ptr<RowTransport> transport_;
  std::shared_ptr<SamplerMetrics> metrics_;
  size_t maxReplyBytes_;
  Executor executor_;
};

}  // namespace farhop::sampler
