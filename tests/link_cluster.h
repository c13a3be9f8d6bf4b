// Batches of seed edges in a SamplingCluster, without gids.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sampler/edge_chunks.h"
#include "sampler/link_sampler.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"

namespace farhop::testing {

// A batch of seed edges, comparable between partitionings.
struct CanonicalLinks {
  CanonicalBatch batch;
  std::vector<uint64_t> destinations;  // original ids; sources are batch.seeds
  std::vector<uint32_t> destinationIndex;
  std::vector<uint64_t> positions;
  std::vector<uint32_t> unresolved;
  uint64_t edges = 0, negatives = 0;

  bool operator==(const CanonicalLinks& other) const {
    return batch == other.batch && destinations == other.destinations && destinationIndex == other.destinationIndex &&
           positions == other.positions && unresolved == other.unresolved && edges == other.edges &&
           negatives == other.negatives;
  }
  // Original ids of seed edge i, or of negative j.
  std::pair<uint64_t, uint64_t> seed(uint64_t i) const { return {batch.seeds[i], destinations[i]}; }
  std::pair<uint64_t, uint64_t> negative(uint64_t j) const {
    const bool drawn = batch.seeds.size() == edges + negatives;
    return {batch.seeds[drawn ? edges + j : sampler::edgeOfNegative(j, edges, negatives)], destinations[edges + j]};
  }
};

struct LinkEpoch {
  sampler::LinkOptions link;
  sampler::SamplingOptions sampling;
  sampler::StreamOptions stream{1, 2};
  sampler::DealOptions deal;
  bool edgeFeatures = false;  // pull and check them
};

using LinkSeedsOf = std::function<absl::StatusOr<sampler::LinkSeedSet>(std::shared_ptr<const sampler::PartitionedGraph>,
                                                                       sampler::Deal)>;

template <typename T>
T mustHave(absl::StatusOr<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}

// Edge feature "w" of all sampled edges, for which every owner draws them again, is that of the edges that were drawn.
// Throws std::runtime_error where it is not.
inline void checkEdgeFeatures(TestMachine* machine, std::shared_ptr<const sampler::SampledBatch> batch,
                              const sampler::SamplingOptions& options) {
  auto sampling = std::make_shared<sampler::SamplingOptions>(options);
  sampling->kinds.resize(machine->graph->schema().relations.size());
  for (int r = 0; r < static_cast<int>(sampling->kinds.size()); ++r) {
    sampler::EdgePullRequest request;
    request.range = {batch, sampling, r, 0, options.fanouts.size()};
    std::vector<float> pulled(sampler::edgeCount(*machine->graph, request.range));
    request.targets = {{mustHave(sampler::edgeFeatureIndex(*machine->graph, r, "w")), reinterpret_cast<std::byte*>(pulled.data())}};
    request.deadline = Deadline::after(std::chrono::milliseconds(20'000));
    std::promise<absl::Status> done;
    machine->edgePuller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
    const absl::Status status = done.get_future().get();
    if (!status.ok()) throw std::runtime_error(status.ToString());
    const PodVector<uint64_t>& ids = batch->relations[static_cast<size_t>(r)].edgeIds;
    for (size_t i = 0; i < pulled.size(); ++i) {
      if (pulled[i] != fixtureEdgeFeature(sampler::featureRelation(*machine->graph, r), ids[i])) {
        throw std::runtime_error(absl::StrCat("the feature of edge ", ids[i], " is ", pulled[i]));
      }
    }
  }
}

// All batches of epoch 3 as `machine` samples them. Throws std::runtime_error on failure.
inline std::vector<CanonicalLinks> sampleLinks(SamplingCluster* cluster, int machine, const LinkSeedsOf& seedsOf,
                                               LinkEpoch epoch) {
  TestMachine& self = cluster->machine(machine);
  sampler::LinkSeedSet seeds = mustHave(seedsOf(self.graph, epoch.deal.deal));
  epoch.link.relation = seeds.relation;
  epoch.link.seed = epoch.sampling.seed;
  const auto link = mustHave(sampler::LinkSampler::make(self.graph, self.agent.get(), seeds.pairs, epoch.link));
  epoch.stream.make = [link](const sampler::BatchSampler* sampler, sampler::BatchRequest request,
                             sampler::BatchWorkspace* workspace, std::unique_ptr<sampler::SampledBatch> memory) {
    return link->sample(sampler, std::move(request), workspace, std::move(memory));
  };
  sampler::BatchStream batches(self.graph, self.agent.get(), mustHave(sampler::SeedDealer::make(seeds.set, epoch.deal)),
                               epoch.sampling, epoch.stream, self.metrics);
  batches.start(3);
  std::vector<CanonicalLinks> result;
  for (;;) {
    const std::shared_ptr<const sampler::SampledBatch> batch = mustHave(batches.next());
    if (batch == nullptr) return result;
    if (epoch.edgeFeatures) checkEdgeFeatures(&self, batch, epoch.sampling);
    CanonicalLinks links;
    links.batch = cluster->canonical(machine, *batch);
    for (uint64_t gid : batch->otherSeeds) links.destinations.push_back(cluster->originalId(batch->otherType, gid));
    links.destinationIndex = batch->otherIndex;
    links.positions = batch->link.positions;
    links.unresolved = batch->link.unresolved;
    links.edges = batch->link.edges;
    links.negatives = batch->link.negatives;
    result.push_back(std::move(links));
  }
}

}  // namespace farhop::testing
