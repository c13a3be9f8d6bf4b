// Batches of random walks.
#include <utility>

#include "sampler/batch_sampler.h"

namespace farhop::sampler {

Task<BatchSampler::Result> BatchSampler::sampleWalks(BatchRequest request, BatchWorkspace* work,
                                                     std::unique_ptr<SampledBatch> batch) const {
  numberSeeds(&request, work, batch.get());
  WalkStarts starts;
  starts.epoch = batch->epoch;
  starts.batch = batch->number;
  starts.nodes = batch->seeds;
  starts.walksPerNode = options_.walks->walksPerSeed;
  const absl::Status status =
      co_await walker_->walk(starts, Deadline::after(options_.requestTimeout), &work->walk_, &batch->traffic);
  if (!status.ok()) co_return Result(annotate(status, absl::StrCat("batch ", batch->number)));
  numberWalks(work->walk_.trace, work, batch.get());
  co_return Result(std::move(batch));
}

void BatchSampler::numberWalks(const WalkTrace& trace, BatchWorkspace* work, SampledBatch* batch) const {
  const WalkPlan& plan = walker_->plan();
  const size_t width = plan.length + size_t{1};
  batch->walks.append(trace.walks * width, -1);
  batch->restarted.append(trace.walks * plan.length, 0);
  PodVector<uint64_t> visited;
  PodVector<uint32_t> walks, numbers;
  for (uint32_t step = 0; step <= plan.length; ++step) {
    const std::span<const uint64_t> nodes = trace.nodesAt(step);
    visited.clear();
    walks.clear();
    for (uint32_t walk = 0; walk < trace.walks; ++walk) {
      if (nodes[walk] == kNoNode) continue;
      visited.push_back(nodes[walk]);
      walks.push_back(walk);
      if (step > 0) batch->restarted[walk * plan.length + step - 1] = trace.restarted[(step - 1) * trace.walks + walk];
    }
    numbers.resizeUninitialized(visited.size());
    work->numbering_[walkNodeType(plan, *graph_, step)].numberAll(visited.data(), visited.size(), numbers.data());
    for (size_t i = 0; i < numbers.size(); ++i) batch->walks[walks[i] * width + step] = numbers[i];
    if (step > 0) batch->traffic.sampledEdges += numbers.size();
  }
}

}  // namespace farhop::sampler
