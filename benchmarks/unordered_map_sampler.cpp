#include "benchmarks/unordered_map_sampler.h"

#include <algorithm>
#include <unordered_map>

#include "base/random.h"

namespace farhop::benchmarks {
namespace {

using sampler::SampledBatch;

// Floyd's draw of `fanout` of `degree` positions, or all of them.
void draw(uint64_t key, uint64_t degree, int64_t fanout, std::vector<uint64_t>* positions) {
  positions->clear();
  const bool all = fanout < 0 || degree <= static_cast<uint64_t>(fanout);
  const uint64_t wanted = all ? degree : static_cast<uint64_t>(fanout);
  KeyedRandom random(key);
  for (uint64_t last = degree - wanted; last < degree; ++last) {
    const uint64_t candidate = all ? last : random.below(last + 1);
    const bool taken = !all && std::find(positions->begin(), positions->end(), candidate) != positions->end();
    positions->push_back(taken ? last : candidate);
  }
}

}  // namespace

std::unique_ptr<SampledBatch> sampleOverUnorderedMap(const sampler::PartitionedGraph& graph,
                                                     const sampler::SamplingOptions& options,
                                                     const sampler::BatchRequest& request) {
  auto batch = std::make_unique<SampledBatch>();
  batch->epoch = request.epoch;
  batch->step = request.step;
  batch->number = request.number;
  batch->seeds = request.seeds;
  batch->nodes.resize(1);
  batch->nodesByHop.resize(1);
  sampler::SampledRelation& edges = batch->relations.emplace_back();
  PodVector<uint64_t>& nodes = batch->nodes[0];
  std::unordered_map<uint64_t, uint32_t> numbers;
  auto number = [&](uint64_t gid) {
    const auto [at, isNew] = numbers.try_emplace(gid, static_cast<uint32_t>(nodes.size()));
    if (isNew) nodes.push_back(gid);
    return at->second;
  };

  for (uint64_t seed : request.seeds) batch->seedIndex.push_back(number(seed));
  batch->nodesByHop[0].push_back(static_cast<uint32_t>(nodes.size()));
  edges.indptr.push_back(0);
  std::vector<uint64_t> positions;
  size_t first = 0;
  for (size_t hop = 0; hop < options.fanouts.size(); ++hop) {
    const uint64_t key =
        hopKey(options.seed, request.epoch, request.number, hop, Purpose::kNeighbors, graph.relationHash(0));
    const size_t last = nodes.size();
    for (size_t node = first; node < last; ++node) {
      const int partition = graph.book().partitionOf(0, nodes[node]);
      const sampler::CsrView<uint32_t> view = graph.view<uint32_t>(partition, 0);
      const uint64_t row = nodes[node] - graph.book().begin(0, partition);
      const uint64_t from = view.indptr[row];
      draw(nodeKey(key, view.originalIds[row]), view.indptr[row + 1] - from, options.fanouts[hop][0],
           &positions);
      for (uint64_t position : positions) edges.indices.push_back(number(view.neighbors[from + position]));
      edges.indptr.push_back(static_cast<uint32_t>(edges.indices.size()));
    }
    first = last;
    batch->nodesByHop[0].push_back(static_cast<uint32_t>(nodes.size()));
  }
  batch->traffic.sampledEdges = edges.indices.size();
  return batch;
}

}  // namespace farhop::benchmarks
