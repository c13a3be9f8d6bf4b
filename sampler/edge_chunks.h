// Cuts a pull of edge features into requests of bounded replies, machine by machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampler/edge_reader.h"
#include "sampler/edge_wire.h"
#include "sampler/sampled_batch.h"
#include "sampler/sampling_options.h"

namespace farhop::sampler {

// Consecutive places in the destination.
struct SlotRun {
  uint64_t first = 0;
  uint64_t count = 0;
};

// One request and where its rows go.
struct EdgeChunk {
  bool byId = false;
  DrawnEdgesRequest drawn;  // without features; unless byId
  EdgesByIdRequest edges;   // without features; if byId
  std::vector<SlotRun> slots;  // in reply order
  uint64_t count = 0;          // edges
  uint64_t checksum = 0;       // of their sources; unless byId
};

// What is wanted of one machine, chunk by chunk. Not thread-safe.
class EdgeChunkSource {
 public:
  explicit EdgeChunkSource(int machine) : machine_(machine) {}
  virtual ~EdgeChunkSource() = default;
  EdgeChunkSource(const EdgeChunkSource&) = delete;
  EdgeChunkSource& operator=(const EdgeChunkSource&) = delete;

  int machine() const { return machine_; }
  // The next chunk, of 1 to `maxEdges` edges; false at the end.
  virtual bool next(uint64_t maxEdges, EdgeChunk* chunk) = 0;

 private:
  const int machine_;
};

// Edges of a batch: one relation, hops [0, hops) of it in the order of the batch's CSR, or where each hop has CSRs of
// its own, those of hops [firstHop, hops) behind each other.
struct EdgeRange {
  std::shared_ptr<const SampledBatch> batch;
  std::shared_ptr<const SamplingOptions> sampling;  // as the batch was sampled; `kinds` has an entry per relation
  int relation = 0;
  size_t firstHop = 0;  // 0 unless sampling->expand is kAll
  size_t hops = 0;
  // False for edges that are no result of hops of draws: they can be had by the ids that the batch carries, alone.
  bool drawn = true;
  // Of the edges that this names, those numbered from firstEdge on, at most maxEdges of them.
  uint64_t firstEdge = 0;
  uint64_t maxEdges = ~uint64_t{0};
};

// The rows of a relation that drew in one hop.
struct HopEdges {
  const SampledRelation* edges = nullptr;
  uint32_t firstRow = 0, endRow = 0;  // of the CSR

  uint64_t firstEdge() const { return edges->indptr[firstRow]; }
  uint64_t count() const { return edges->indptr[endRow] - edges->indptr[firstRow]; }
};
HopEdges hopEdges(const PartitionedGraph& graph, const EdgeRange& range, size_t hop);
// Edges of the range.
uint64_t edgeCount(const PartitionedGraph& graph, const EdgeRange& range);
// Their original ids where the batch carries them; empty otherwise.
std::vector<uint64_t> carriedEdgeIds(const PartitionedGraph& graph, const EdgeRange& range);

// By machine, the own one among them: the range's draws, to be made again. DataLoss for a gid that does not exist.
absl::StatusOr<std::vector<std::unique_ptr<EdgeChunkSource>>> drawnEdgeChunks(const PartitionedGraph& graph,
                                                                              const EdgeRange& range);
// By machine: the range's edges by their ids, those of a reverse relation as edges of the forward one. edgeIds[i] is the
// original id of edge i. Borrows `edgeIds`.
std::vector<std::unique_ptr<EdgeChunkSource>> edgeChunksById(const PartitionedGraph& graph, const EdgeRange& range,
                                                                std::span<const uint64_t> edgeIds);

}  // namespace farhop::sampler
