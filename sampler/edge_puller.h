// Brings features of a batch's sampled edges into memory that the caller names, when the caller asks.
//
// Nothing about edges travels when a batch is sampled. A pull asks the owners of the rows to draw them once more, which
// the key makes the same draw, and to send features in place of neighbours. Of a reverse relation, whose features lie
// with the forward edges, first the edge ids are pulled so, unless the batch carries them; then the features, by id,
// from the owners of the forward edges; edges that no draws made are pulled by the ids that they carry. Rows come in chunks, at most two of them under way per machine, so that the
// staging memory of a pull is bounded.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/executor.h"
#include "rpc/agent.h"
#include "sampler/edge_chunks.h"
#include "sampler/edge_reader.h"
#include "sampler/sampler_metrics.h"

namespace farhop::sampler {

struct EdgeTarget {
  uint32_t feature = 0;              // edgeFeatureIndex() of the range's relation
  std::byte* destination = nullptr;  // [edgeCount(range)] rows as `format` makes them
  RowFormat format = {};
};

struct EdgePullRequest {
  EdgeRange range;
  std::vector<EdgeTarget> targets;
  std::shared_ptr<const void> keepAlive;  // holds the destinations until nothing writes to them
  Deadline deadline;
  // Once true, nothing more is asked for, and the pull ends (Cancelled) when what is under way has come. Null: never.
  std::shared_ptr<const std::atomic<bool>> cancelled = nullptr;
};

// Thread-safe. The agent (null with one machine) must outlive it.
class EdgePuller {
 public:
  // `maxReplyBytes`: size of a chunk; a single edge may exceed it.
  EdgePuller(std::shared_ptr<const EdgeReader> reader, rpc::Agent* agent, std::shared_ptr<SamplerMetrics> metrics,
             size_t maxReplyBytes);
  // No pull may be under way, except that the completion of the last one may drop the last reference: whoever starts a
  // pull keeps this alive through EdgePullRequest::keepAlive or `done`.
  ~EdgePuller();

  // Returns at once; `done` runs once, on this puller's thread, when all rows are there or on the first error. After
  // it nothing writes to the destinations any more.
  void pull(EdgePullRequest request, std::function<void(absl::Status)> done);

 private:
  struct Pull;
  void begin(const std::shared_ptr<Pull>& pull);
  absl::Status startStage(const std::shared_ptr<Pull>& pull);
  void finishStage(const std::shared_ptr<Pull>& pull);
  void startChunk(const std::shared_ptr<Pull>& pull, size_t source);
  void send(const std::shared_ptr<Pull>& pull, size_t source, std::shared_ptr<EdgeChunk> chunk);
  absl::Status addCopies(Pull* pull) const;
  absl::Status readOwn(Pull* pull, size_t source);
  absl::Status finishChunk(const std::shared_ptr<Pull>& pull, size_t source, const EdgeChunk& chunk,
                           const std::vector<rpc::Bytes>& arrays);
  void release(const std::shared_ptr<Pull>& pull, const absl::Status& status);

  std::shared_ptr<const EdgeReader> reader_;
  rpc::Agent* agent_;
  std::shared_ptr<SamplerMetrics> metrics_;
  size_t maxReplyBytes_;
  Executor executor_;  // all of a pull runs on its one thread
};

}  // namespace farhop::sampler
