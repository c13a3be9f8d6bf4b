#include "benchmarks/link_cases.h"

#include <optional>
#include <utility>

#include "base/random.h"

namespace farhop::benchmarks {
namespace {

class LinkMaker : public BatchMaker {
 public:
  LinkMaker(std::shared_ptr<const sampler::PartitionedGraph> graph, sampler::SamplingOptions sampling,
            std::shared_ptr<const sampler::LinkSampler> link, Executor* executor)
      : edges_(graph->schema().relations[0].count),
        link_(std::move(link)),
        workspace_(*graph),
        sampler_(graph, nullptr, executor, std::move(sampling)) {}

  BatchResult make(sampler::BatchRequest request) override {
    KeyedRandom random(combineKey(request.number, static_cast<uint64_t>(Purpose::kTest)));
    for (uint64_t& seed : request.seeds) seed = random.below(edges_);
    std::optional<BatchResult> result;
    startTask<BatchResult>(link_->sample(&sampler_, std::move(request), &workspace_, pool_.take()),
                           [&](BatchResult batch) { result.emplace(std::move(batch)); });
    // As with seeds that are nodes: nothing is remote.
    if (!result) return absl::InternalError("the sampler waited for a reply, although all partitions are here");
    return *std::move(result);
  }
  void over(std::unique_ptr<sampler::SampledBatch> batch) override { pool_.giveBack(std::move(batch)); }

 private:
  uint64_t edges_;
  std::shared_ptr<const sampler::LinkSampler> link_;
  sampler::BatchPool pool_{4};
  sampler::BatchWorkspace workspace_;
  sampler::BatchSampler sampler_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BatchMaker>> makeLinkSampler(std::shared_ptr<const sampler::PartitionedGraph> graph,
                                                            sampler::SamplingOptions sampling,
                                                            sampler::LinkOptions link, Executor* executor) {
  FARHOP_ASSIGN_OR_RETURN(sampler::LinkSeedSet seeds, sampler::linkSeedsOfRelation(graph, 0, sampler::Deal::kByOwner));
  link.seed = sampling.seed;
  FARHOP_ASSIGN_OR_RETURN(auto sampler, sampler::LinkSampler::make(graph, nullptr, seeds.pairs, link));
  return std::unique_ptr<BatchMaker>(std::make_unique<LinkMaker>(graph, std::move(sampling), std::move(sampler), executor));
}

}  // namespace farhop::benchmarks
