#include "sampler/batch_stream.h"

#include <algorithm>
#include <utility>

namespace farhop::sampler {

BatchStream::BatchStream(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent, SeedDealer dealer,
                         SamplingOptions sampling, StreamOptions options, std::shared_ptr<SamplerMetrics> metrics)
    : graph_(graph),
      dealer_(std::move(dealer)),
      options_(options),
      metrics_(std::move(metrics)),
      // One request's time per hop, one more for the sampling itself.
      batchTimeout_(sampling.requestTimeout * (BatchSampler::timeoutsPerBatch(sampling) + 1 +
                                               static_cast<size_t>(options.requestsBeforeHops))),
      // As many as exist at once: those ahead, and a few in the consumer's hands.
      pool_(std::make_shared<BatchPool>(static_cast<size_t>(std::max(1, options.threads * options.batchesUnderWay)) + 2)),
      executor_("farhop-sample", options.threads),
      sampler_(graph, agent, &executor_, std::move(sampling)) {
  const int window = std::max(1, options_.threads * options_.batchesUnderWay);
  for (int i = 0; i < window; ++i) idle_.push_back(std::make_unique<BatchWorkspace>(*graph_));
}

BatchStream::~BatchStream() {
  std::unique_lock lock(mutex_);
  drain(&lock);
}

void BatchStream::start(uint64_t epoch, uint64_t firstStep) {
  std::unique_lock lock(mutex_);
  drain(&lock);
  timedOut_ = outOfMemory_ = false;
  epoch_ = epoch;
  nextToStart_ = nextToReturn_ = firstStep;
  lastStep_ = dealer_.numSteps();
  startMore();
}

void BatchStream::stop() {
  std::unique_lock lock(mutex_);
  drain(&lock);
  nextToReturn_ = lastStep_;
}

void BatchStream::drain(std::unique_lock<std::mutex>* lock) {
  lastStep_ = nextToStart_;  // nothing new
  changed_.wait(*lock, [this] { return underWay_ == 0; });
  ready_.clear();
}

void BatchStream::startMore() {
  while (nextToStart_ < lastStep_ && !idle_.empty() &&
         nextToStart_ - nextToReturn_ < static_cast<uint64_t>(options_.threads * options_.batchesUnderWay)) {
    SharedWorkspace workspace;
    try {
      workspace = std::make_shared<std::unique_ptr<BatchWorkspace>>(std::move(idle_.back()));
      launch(epoch_, nextToStart_, workspace);
    } catch (const std::bad_alloc&) {
      if (workspace != nullptr) idle_.back() = std::move(*workspace);
      outOfMemory_ = true;
      return;
    }
    idle_.pop_back();
    ++nextToStart_;
    ++underWay_;
  }
}

void BatchStream::launch(uint64_t epoch, uint64_t step, const SharedWorkspace& workspace) {
  executor_.post([this, epoch, step, workspace] {
    try {
      begin(epoch, step, workspace);
    } catch (const std::bad_alloc&) {
      // Nothing has begun: from its first step on a task keeps what is thrown to itself.
      finish(step, std::move(*workspace), absl::ResourceExhaustedError(absl::StrCat("out of memory for the batch of step ", step)));
    }
  });
}

void BatchStream::begin(uint64_t epoch, uint64_t step, const SharedWorkspace& workspace) {
  BatchRequest request{epoch, step, dealer_.batchNumber(step), dealer_.nodeType(), dealer_.seeds(epoch, step)};
  request.treeTimes = dealer_.times(epoch, step);
  using Result = absl::StatusOr<std::unique_ptr<SampledBatch>>;
  Task<Result> task = options_.make ? options_.make(&sampler_, std::move(request), workspace->get(), pool_->take())
                                    : sampler_.sample(std::move(request), workspace->get(), pool_->take());
  startTask<Result>(std::move(task), [this, step, workspace](Result result) {
    finish(step, std::move(*workspace), std::move(result));
  });
}

void BatchStream::finish(uint64_t step, std::unique_ptr<BatchWorkspace> workspace,
                         absl::StatusOr<std::unique_ptr<SampledBatch>> result) {
  if (result.ok()) {
    const BatchTraffic& traffic = (*result)->traffic;
    metrics_->batches.add(1);
    metrics_->sampledEdges.add(static_cast<double>(traffic.sampledEdges));
    metrics_->remoteEdges.add(static_cast<double>(traffic.remoteEdges));
    metrics_->neighborBytes.add(static_cast<double>(traffic.neighborBytes));
    metrics_->neighborMessages.add(static_cast<double>(traffic.messages));
    if (options_.sampled) options_.sampled(**result);
  }
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(workspace));
  try {
    ready_.emplace(step, std::move(result));
  } catch (const std::bad_alloc&) {
    outOfMemory_ = true;
  }
  --underWay_;
  startMore();
  changed_.notify_all();  // under the lock: the consumer may destroy this as soon as it sees the change
}

absl::StatusOr<std::unique_ptr<SampledBatch>> BatchStream::next() {
  std::unique_lock lock(mutex_);
  if (nextToReturn_ >= lastStep_ && (timedOut_ || (underWay_ == 0 && ready_.empty()))) return nullptr;
  const uint64_t step = nextToReturn_;
  const bool there = changed_.wait_for(lock, batchTimeout_, [&] { return ready_.count(step) > 0 || (outOfMemory_ && underWay_ == 0); });
  if (!there) {
    // The epoch is over; what is still under way is dropped when the next one starts.
    lastStep_ = nextToStart_;
    nextToReturn_ = lastStep_;
    timedOut_ = true;
    return absl::DeadlineExceededError(absl::StrCat("batch of step ", step, " was not sampled within ",
                                                    batchTimeout_.count(), " ms"));
  }
  if (ready_.count(step) == 0) {
    drain(&lock);
    nextToReturn_ = lastStep_;
    outOfMemory_ = false;
    return absl::ResourceExhaustedError(absl::StrCat("out of memory for the batch of step ", step));
  }
  auto node = ready_.extract(step);
  ++nextToReturn_;
  if (!node.mapped().ok()) {
    const absl::Status status = node.mapped().status();
    drain(&lock);
    nextToReturn_ = lastStep_;
    return status;
  }
  startMore();
  return std::move(node.mapped());
}

}  // namespace farhop::sampler
