// Keeps several batches of an epoch under way and hands them out in order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "sampler/batch_sampler.h"
#include "sampler/sampler_metrics.h"
#include "sampler/seed_dealer.h"

namespace farhop::sampler {

// Samples what the dealer has dealt; for seeds that are more than nodes. `memory` as in BatchSampler::sample().
using BatchMaker = std::function<Task<absl::StatusOr<std::unique_ptr<SampledBatch>>>(
    const BatchSampler* sampler, BatchRequest request, BatchWorkspace* workspace, std::unique_ptr<SampledBatch> memory)>;

struct StreamOptions {
  int threads = 1;
  // Per thread: while one batch waits for a reply, the thread works on another.
  int batchesUnderWay = 2;
  BatchMaker make = {};       // empty: BatchSampler::sample()
  int requestsBeforeHops = 0;  // that it waits for one after the other
  // Sees every batch on a sampler thread as soon as it is sampled, before it can be handed out. Must not throw.
  std::function<void(const SampledBatch&)> sampled = {};
};

// One consumer. Sampler threads run in this process, so a batch is handed over by pointer.
class BatchStream {
 public:
  BatchStream(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent, SeedDealer dealer,
              SamplingOptions sampling, StreamOptions options, std::shared_ptr<SamplerMetrics> metrics);
  // Waits for the batches under way; their deadlines bound that.
  ~BatchStream();

  // Starts an epoch at `firstStep`; batches of an epoch that was not read to its end are dropped.
  void start(uint64_t epoch, uint64_t firstStep = 0);
  // Ends the epoch: waits for the batches under way and drops what was not handed out.
  void stop();
  // The next batch in step order, or null at the end of the epoch. After an error the epoch is over; start()
  // may begin another. At most threads * batchesUnderWay batches exist ahead of the consumer.
  absl::StatusOr<std::unique_ptr<SampledBatch>> next();

  const SeedDealer& dealer() const { return dealer_; }
  // Where batches that are over belong, so that the next ones use their memory.
  const std::shared_ptr<BatchPool>& pool() const { return pool_; }

 private:
  void startMore();  // mutex_ held
  using SharedWorkspace = std::shared_ptr<std::unique_ptr<BatchWorkspace>>;
  void launch(uint64_t epoch, uint64_t step, const SharedWorkspace& workspace);
  void begin(uint64_t epoch, uint64_t step, const SharedWorkspace& workspace);
  void finish(uint64_t step, std::unique_ptr<BatchWorkspace> workspace,
              absl::StatusOr<std::unique_ptr<SampledBatch>> result);
  void drain(std::unique_lock<std::mutex>* lock);

  std::shared_ptr<const PartitionedGraph> graph_;
  SeedDealer dealer_;
  StreamOptions options_;
  std::shared_ptr<SamplerMetrics> metrics_;
  std::chrono::milliseconds batchTimeout_;
  std::shared_ptr<BatchPool> pool_;
  Executor executor_;
  BatchSampler sampler_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<BatchWorkspace>> idle_;
  std::map<uint64_t, absl::StatusOr<std::unique_ptr<SampledBatch>>> ready_;
  uint64_t epoch_ = 0;
  uint64_t nextToStart_ = 0;
  uint64_t nextToReturn_ = 0;
  uint64_t lastStep_ = 0;
  int underWay_ = 0;
  bool timedOut_ = false;
  bool outOfMemory_ = false;  // a batch could not even be started, or handed over
};

}  // namespace farhop::sampler
