// What `farhop-bench sampler` compares: ways to sample the same batches, and how one pass over them is
// measured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "benchmarks/machine.h"
#include "benchmarks/perf_counters.h"
#include "sampler/batch_sampler.h"

namespace farhop::benchmarks {

using BatchResult = absl::StatusOr<std::unique_ptr<sampler::SampledBatch>>;

// Samples one batch on the calling thread.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  virtual BatchResult make(sampler::BatchRequest request) = 0;
  // Takes a batch back that is over, as a loader does.
  virtual void over(std::unique_ptr<sampler::SampledBatch> batch) { batch.reset(); }
};

// The sampler that trainers use, with a workspace of its own. All partitions are this machine's, so that
// nothing is ever posted to `executor`; it must outlive the maker. `timed`: seeds have times, spread evenly over those
// of the edges.
std::unique_ptr<BatchMaker> makeBatchSampler(std::shared_ptr<const sampler::PartitionedGraph> graph,
                                             sampler::SamplingOptions options, Executor* executor, bool timed = false);
// The baseline.
std::unique_ptr<BatchMaker> makeUnorderedMapSampler(std::shared_ptr<const sampler::PartitionedGraph> graph,
                                                    sampler::SamplingOptions options);

// The same seeds, in the same batches, for every case: a permutation of all nodes, keyed by `seed` and dealt
// in order of original ids, so that batches do not depend on the partitioning.
class BatchPlan {
 public:
  static absl::StatusOr<BatchPlan> make(const sampler::PartitionedGraph& graph, uint64_t seed,
                                        uint64_t batchSize, uint64_t batches);

  uint64_t batches() const { return seeds_.size(); }
  sampler::BatchRequest request(uint64_t batch) const;

 private:
  std::vector<std::vector<uint64_t>> seeds_;
};

// Reads all that sampling may touch once, so that no pass pays for the mapping's first use. `all`: edge ids, times,
// weights and original ids of sources too, where they are there.
absl::Status touchGraph(const sampler::PartitionedGraph& graph, bool all);

struct BatchRange {
  uint64_t first = 0, last = 0;
};

struct Pass {
  absl::Status status;
  double seconds = 0;
  uint64_t batches = 0;
  uint64_t edges = 0;
  uint64_t nodes = 0;
  ThreadUsage usage;
  double shareOfCore = 0;  // of the time it took, how much the thread ran
  PerfCounters::Values counters;
};

// Samples the range on the calling thread. A batch lives until the next one is made, as in a trainer.
Pass timePass(BatchMaker& maker, const BatchPlan& plan, BatchRange range, const PerfCounters& counters);

// Digest of all of one batch, in original ids. `graph` must have all partitions.
uint64_t digestOf(const sampler::PartitionedGraph& graph, const sampler::SampledBatch& batch);

// Samples the range untimed and digests all of every batch: original ids in order of numbering, rows,
// columns, edge ids. Equal for equal batches on any partitioning.
absl::StatusOr<uint64_t> checksumPass(BatchMaker& maker, const sampler::PartitionedGraph& graph,
                                      const BatchPlan& plan, BatchRange range);

}  // namespace farhop::benchmarks
