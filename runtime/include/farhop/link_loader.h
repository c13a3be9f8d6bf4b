// Iterates mini-batches over seed edges: for link prediction, and for anything that is said of edges.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "farhop/batch.h"
#include "farhop/edge_seeds.h"
#include "farhop/epoch.h"
#include "farhop/graph.h"
#include "farhop/neighbor_loader.h"

namespace farhop {

// kBinary: pairs with label 0 behind the seed edges. kTriplet: for each seed edge k other destinations.
enum class Negatives { kNone, kBinary, kTriplet };

// Where the nodes of negatives come from: kUniform: all of their type. kDegree: in proportion to degree^0.75 in the
// seeds' relation.
enum class NegativeNodes { kUniform, kDegree };

// kDestination: a negative has its seed edge's source. kBoth: both ends are drawn; for kBinary alone.
enum class NegativeEnds { kDestination, kBoth };

// Which edges no batch shows, whatever draws its neighbours, nor its induced subgraph: its own seed edges, or these and
// their reverses. They are left out before neighbours are drawn, so that fanouts stay full; parallel edges of a seed edge
// are left out with it.
enum class ExcludeSeedEdges { kNone, kSelf, kReverse };

// docs/sampling.md, "Links", defines all of it. `importance` cannot be set. With `disjoint` a seed edge, both its ends and
// its negatives are the roots of one tree, which leaves out its own seed edge. `temporal` needs a time of each seed edge
// (EdgeSeeds::withTimes(); Graph::edges() have those of the store), which is the tree's; negatives whose node type declares
// times are no later either.
struct LinkLoaderOptions : NeighborLoaderOptions {  // batchSize counts seed edges
  Negatives negatives = Negatives::kNone;
  // Above 0; a whole number for kTriplet. n seed edges get ceil(n * negativesPerEdge).
  double negativesPerEdge = 1;
  NegativeNodes negativeNodes = NegativeNodes::kUniform;
  NegativeEnds negativeEnds = NegativeEnds::kDestination;
  // Draws negatives again that are edges of the relation, wherever they are stored, or seed edges of the batch. One
  // request per machine and round, usually one round or two. Those that are edges after 12 more draws are kept and
  // named: LinkBatch::unresolvedNegatives().
  bool strictNegatives = false;
  ExcludeSeedEdges excludeSeedEdges = ExcludeSeedEdges::kNone;
  // Whose edges are the reverses, for kReverse. Empty: rev_NAME where the store has it (or NAME of a seed relation
  // rev_NAME); else the seeds' relation itself where its two node types are one.
  std::string reverseRelation;
};

struct LinkBatchCore;

// A batch of n seed edges with m negatives. As a Batch, its seeds are the sources of the seed edges, and with
// NegativeEnds::kBoth those of the negatives; destinations are numbered after them, before all other nodes of their
// type. All tensors are made anew at each call, on the CPU. Cheap to copy; read-only and thread-safe.
class LinkBatch : public Batch {
 public:
  LinkBatch() = default;
  explicit LinkBatch(std::shared_ptr<LinkBatchCore> core);

  int64_t numSeedEdges() const;  // n
  int64_t numNegatives() const;  // m
  // "source:name:destination".
  const std::string& relation() const;

  // int64 [2, n]: numbers of the seed edges' sources (row 0) and destinations (row 1) among the nodes of their types.
  torch::Tensor seedEdges() const;
  // int64 [n]: index of each seed edge in the pairs given to Graph::edgePairs(). Error(kFailedPrecondition) for others.
  torch::Tensor seedPositions() const;
  // For kBinary and kNone: int64 [2, n + m], the seed edges and then the negatives; and [n + m, ...], the labels of the
  // seeds, then zeros. Without labels: float32, 1 for seed edges. Error(kFailedPrecondition) for kTriplet.
  torch::Tensor edgeLabelIndex() const;
  torch::Tensor edgeLabel() const;
  // For kTriplet: int64 [n], [n] and [n, k]. Error(kFailedPrecondition) for others.
  torch::Tensor srcIndex() const;
  torch::Tensor dstPosIndex() const;
  torch::Tensor dstNegIndex() const;
  // int64 [u], ascending: negatives (of triplets in row order) that strictNegatives did not get rid of; with `temporal`
  // also those of seed edges than which every node is later.
  torch::Tensor unresolvedNegatives() const;

 private:
  std::shared_ptr<LinkBatchCore> link_;
};

// As NeighborLoader, over seed edges. kByOwner deals an edge to the machine that owns its destination.
class LinkLoader {
 public:
  // Throws Error as NeighborLoader does, and: kInvalidArgument for negativesPerEdge that is out of range, for
  // kBoth with kTriplet, for seeds' labels with kTriplet, for a reverse relation that is none, for Graph::edges() dealt
  // kGlobal on several machines, for importance neighbours, for seed edges that lack times or have some in vain;
  // kNotFound for times that the store lacks. Nothing is sent, except to ask for the times of the nodes that negatives
  // are drawn from where sampling is temporal.
  LinkLoader(const Graph& graph, const EdgeSeeds& seeds, const LinkLoaderOptions& options);
  ~LinkLoader();
  LinkLoader(LinkLoader&&) noexcept;
  LinkLoader& operator=(LinkLoader&&) noexcept;

  // As NeighborLoader's functions of these names.
  int64_t numBatches() const;
  std::string state() const;
  int64_t restore(const std::string& state, OtherProcesses otherProcesses = OtherProcesses::kRefuse);

  using Epoch = LoaderEpoch<LinkLoader, LinkBatch>;
  using Iterator = Epoch::Iterator;
  Epoch epoch(int64_t epoch);

 private:
  friend Iterator;
  struct Impl;
  // False at the end of the epoch.
  bool next(LinkBatch* batch);
  std::unique_ptr<Impl> impl_;
};

}  // namespace farhop
