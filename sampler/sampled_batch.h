// One sampled mini-batch: ids and structure, no features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/pod_vector.h"
#include "sampler/neighbor_draw.h"

namespace farhop::sampler {

// Sampled in-edges of one relation as CSR. Row i is node i of the relation's destination type, in the
// batch's numbering; rows follow the order of discovery, so that the rows (and edges) of the first hops are
// prefixes.
struct SampledRelation {
  PodVector<uint32_t> indptr;   // [rows + 1]
  PodVector<uint32_t> indices;  // [edges] number of the source node in its type's list
  PodVector<uint64_t> edgeIds;  // [edges] original edge ids when asked for, else empty
  PodVector<uint32_t> visits;   // [edges] of importance neighbours: how often walks came by; else empty
};

struct BatchTraffic {
  uint64_t sampledEdges = 0;
  uint64_t remoteEdges = 0;         // drawn by another machine; 0 for importance neighbours
  uint64_t requestedNodes = 0;      // rows asked of other machines
  uint64_t neighborBytes = 0;       // payload of neighbour requests and replies
  uint64_t messages = 0;            // neighbour requests sent
};

// What a batch of seed edges is made of. sampler/link_sampler.h
struct LinkSeeds {
  uint64_t edges = 0;
  uint64_t negatives = 0;
  std::vector<uint64_t> positions;   // [edges] of the seed edges in the list that they come from
  std::vector<uint32_t> unresolved;  // negatives that are not what was wanted: edges, or too late, ascending
};

struct SampledBatch {
  uint64_t epoch = 0;
  uint64_t step = 0;    // of this process in this epoch
  uint64_t number = 0;  // across the job: step * world size + world rank; part of every draw's key
  int seedType = 0;
  std::vector<uint64_t> seeds;      // [seeds] gids as dealt, repeats included
  std::vector<uint32_t> seedIndex;  // [seeds] number of each seed's node
  // Seeds of another type, or of the same, numbered after these.
  int otherType = 0;
  std::vector<uint64_t> otherSeeds;
  std::vector<uint32_t> otherIndex;
  LinkSeeds link;
  // [relation] what rows did not draw, by (row, source), where `row` is a node's number; empty, or empty lists: nothing.
  // Part of the draw:
  // whoever draws again leaves out the same.
  std::vector<std::vector<ExcludedEdge>> excluded;

  std::vector<PodVector<uint64_t>> nodes;         // [node type][nodes] gids, seeds first, then hop by hop
  // Where seeds are disjoint, else without values: [node type][nodes] the tree of each node, which is the position of its
  // seed unless the request said otherwise; and [tree] its time, where there is one.
  std::vector<PodVector<uint32_t>> trees;
  std::vector<int64_t> treeTimes;
  std::vector<std::vector<uint32_t>> nodesByHop;  // [node type][hops + 1]: nodes known before hop h
  // [relation]; where all nodes are expanded again in every hop, [hop * relations + relation], each with the rows of
  // all nodes known before the hop.
  std::vector<SampledRelation> relations;
  // Random walks: [walks][length + 1] numbers of nodes (of the type that the metapath has there), -1 once a walk has
  // ended; [walks][length] 1 for a step from the start after a return. Empty for other batches.
  PodVector<int64_t> walks;
  PodVector<uint8_t> restarted;
  BatchTraffic traffic;

  // Empties it for `nodeTypes` and `relationCount` (the length of `relations`), keeping its memory for the next batch.
  void reset(size_t nodeTypes, size_t relationCount);
};

// Batches that are over, whose memory the next ones use. Shared by a stream and the batches it has handed out,
// which may outlive it. Thread-safe.
class BatchPool {
 public:
  explicit BatchPool(size_t maxIdle) : maxIdle_(maxIdle) {}
  // A batch from the pool, or a new one.
  std::unique_ptr<SampledBatch> take();
  // Keeps at most maxIdle; the rest is freed.
  void giveBack(std::unique_ptr<SampledBatch> batch);
  // A shared batch that comes back to `pool` with its last reference.
  static std::shared_ptr<const SampledBatch> share(std::shared_ptr<BatchPool> pool, std::unique_ptr<SampledBatch> batch);

 private:
  const size_t maxIdle_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SampledBatch>> idle_;  // guarded by mutex_
};

}  // namespace farhop::sampler
