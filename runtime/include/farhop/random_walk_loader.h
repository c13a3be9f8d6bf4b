// Iterates mini-batches of random walks, for DeepWalk, node2vec, metapath2vec and the like.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "farhop/batch.h"
#include "farhop/graph.h"
#include "farhop/neighbor_loader.h"

namespace farhop {

// docs/sampling.md, "Random walks", defines all of it.
struct RandomWalkLoaderOptions {
  int64_t length = 80;  // steps of a walk, 1 to 65,536
  int64_t walksPerSeed = 1;
  // Relations (names, or "source:name:destination"), followed in order, again and again; a step goes from an edge's
  // destination to its source. The first begins at the seeds' node type. Empty: the graph's only relation.
  std::vector<std::string> metapath;
  // Probability, in [0, 1), to go back to the seed before the metapath begins anew.
  double restart = 0;
  // node2vec's return parameter p and in-out parameter q, above 0; for one relation from a node type to itself. 1/p, 1 and
  // 1/q may differ by a factor of at most 1000. A q other than 1 makes tables of 4 bytes per edge in every process.
  double p = 1;
  double q = 1;
  // Edge feature to choose in-edges by, as NeighborLoaderOptions::weight; for all relations of the metapath that
  // weightByRelation does not name. Empty: uniformly.
  std::string weight;
  std::map<std::string, std::string> weightByRelation;
  // As in NeighborLoaderOptions. A batch has at most 2^20 walks that visit 2^27 nodes.
  int64_t batchSize = 1024;
  uint64_t seed = 0;
  bool shuffle = true;
  SeedDeal deal = SeedDeal::kByOwner;
  EpochTail tail = EpochTail::kWrap;
  int samplerThreads = 1;
  int batchesUnderWay = 2;
  std::chrono::milliseconds requestTimeout{60'000};  // all walks of a batch, and one pull
  // Features whose pulls start as soon as a batch's walks are there, of the nodes that they visit; and copies kept with
  // the own partitions: as in NeighborLoaderOptions. "original_id" can be prefetched as any feature.
  bool cache = true;
  std::vector<std::string> prefetch;
  std::map<std::string, std::vector<std::string>> prefetchByType;
  std::vector<std::string> prefetchOfSeeds;
  int64_t prefetchBytes = int64_t{256} << 20;
};

// Yields batches without blocks, whose Batch::walks() are the walks: numbers of the batch's nodes. What a trainer of
// embeddings needs are original ids:
//
//   torch::Tensor ids = batch.feature("original_id").pull();
//   torch::Tensor walks = batch.walks();                                         // -1 once a walk has ended
//   torch::Tensor rows = ids.index_select(0, walks.clamp_min(0).flatten()).view_as(walks);
//
// Walks are sampled ahead on threads of this process. One consumer at a time; not thread-safe. The same options, seeds
// and graph give the same walks on any number of partitions and sampler threads.
class RandomWalkLoader {
 public:
  // Throws Error(kInvalidArgument) for a metapath that does not chain or does not begin at the seeds' type, a length,
  // probability, p or q out of range, weights that are none, too many walks per batch, seeds with times; Error(kNotFound) for an unknown
  // relation or feature, listing those that exist. Nothing is sent.
  RandomWalkLoader(const Graph& graph, const Seeds& seeds, const RandomWalkLoaderOptions& options);

  // As those of NeighborLoader.
  using Iterator = NeighborLoader::Iterator;
  using Epoch = NeighborLoader::Epoch;
  int64_t numBatches() const { return loader_.numBatches(); }
  Epoch epoch(int64_t epoch) { return loader_.epoch(epoch); }
  std::string state() const { return loader_.state(); }
  int64_t restore(const std::string& state, OtherProcesses otherProcesses = OtherProcesses::kRefuse) {
    return loader_.restore(state, otherProcesses);
  }

 private:
  NeighborLoader loader_;
};

}  // namespace farhop
