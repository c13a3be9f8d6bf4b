// Iterates mini-batches over seeds with sampled neighbourhoods.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farhop/batch.h"
#include "farhop/epoch.h"
#include "farhop/graph.h"

namespace farhop {

namespace sampler {
struct SamplingOptions;
}

// How seeds are dealt to processes. kByOwner: a machine's own seeds, round robin to its processes (less
// traffic). kGlobal: one permutation of all seeds cut by batch number, so that an epoch is the same for any
// split of the same number of processes into machines and groups.
enum class SeedDeal { kByOwner, kGlobal };

// The end of an epoch. kWrap: every process gets the same number of full batches, wrapping in permutation
// order. kDrop: the full batches that every process has. kUneven: every seed once; processes may run out at
// different steps.
enum class EpochTail { kWrap, kDrop, kUneven };

// Which nodes draw neighbours in a hop. kNew: each node once, in the hop after it was found; a batch's blocks share one
// CSR. kAll: all nodes found so far again in every hop, each time a new draw, as DGL's blocks do; one CSR per block.
enum class Expand { kNew, kAll };

// Whose time a seed has bounds what its neighbourhood may know: an edge is drawn only if it and its source node are
// not later than that (equal is allowed), at any depth. kUniform draws among those as without times, kMostRecent takes
// the latest ones. Relations without times are always visible, and drawn as without times.
enum class Temporal { kOff, kUniform, kMostRecent };

// Which neighbours a relation draws. kAsStored: in-neighbours, of each relation that the store has; reverse relations
// are relations like others. The others go by forward relations, which alone may be named in options then, and apply to
// rev_NAME what is said of NAME: kIn draws in-neighbours through NAME, kOut out-neighbours through rev_NAME, kBoth both,
// each with the fanout. Batches have the edges under the relation that they were drawn through.
enum class Direction { kAsStored, kIn, kOut, kBoth };

// Layer-neighbour sampling: rows that share sources draw the same ones, so that a batch has fewer nodes. kSequential
// takes exactly min(fanout, degree) edges of each row, kPoisson as many on average.
enum class Labor { kOff, kSequential, kPoisson };

// What a batch's edges are. kSampled: those that the hops drew. kInduced: all of the graph between the batch's nodes, one
// CSR per relation with a row for every node; such a batch has one block, in which all nodes are sources and destinations.
enum class Subgraph { kSampled, kInduced };

// Neighbours by visits of random walks, as in PinSAGE: docs/sampling.md, "Importance neighbours".
struct ImportanceSampling {
  int64_t numWalks = 10;   // from each node
  int64_t walkLength = 2;  // passes of the metapath; steps where it is one relation
  double restart = 0.5;    // probability, in [0, 1), to go back to the node before a pass other than the first
  // Relations that lead from the seeds' node type back to it, each step from an edge's destination to its source. Empty:
  // the graph's only relation.
  std::vector<std::string> metapath;
  std::string weight;  // edge feature of all these relations to choose edges by; empty: uniformly
};

// What restore() does with a position in the middle of an epoch that was dealt to another number of processes.
enum class OtherProcesses { kRefuse, kNextEpoch };

struct NeighborLoaderOptions {
  // Neighbours per node and hop; [0] is the hop next to the seeds. -1 takes all, 0 none. Applies to every
  // relation that fanoutsByRelation does not name.
  std::vector<int64_t> fanouts;
  // Relation name (or "source:name:destination") -> fanouts, of the same length.
  std::map<std::string, std::vector<int64_t>> fanoutsByRelation;
  Expand expand = Expand::kNew;
  // With replacement: every node with neighbours gets exactly `fanout` of them (at most 65,536), repeats included.
  // Applies to every relation that replaceByRelation does not name; without effect on fanouts -1 and 0.
  // docs/sampling.md defines this and all other kinds of sampling.
  bool replace = false;
  std::map<std::string, bool> replaceByRelation;
  // Name of the edge feature to draw by, in proportion to it; empty: uniformly. One integer, float32 or float64 per
  // edge; edges of weight 0 are never drawn. Reverse relations have the forward edge's weight where the store declares
  // it (`farhop partition --weights`). Tables of 8 bytes per edge are made once per process and feature. Applies
  // to every relation drawn from that weightByRelation (relation -> feature, or "") does not name.
  std::string weight;
  std::map<std::string, std::string> weightByRelation;
  // Every seed (each position, repeats too) is the root of a tree of its own, which shares no node with the others.
  bool disjoint = false;
  // Makes seeds disjoint. Their times: those given to Graph::seeds(), otherwise those that the store has of their type.
  Temporal temporal = Temporal::kOff;
  Direction direction = Direction::kAsStored;
  Labor labor = Labor::kOff;
  bool layerDependency = false;  // labor: a source has the same random number in all hops
  // The `fanouts` nodes that walks visit most, instead of in-edges drawn. The only edges of a block are then those from
  // these nodes, of no relation of the graph (leave relations out in Block's functions); Block::visits() weighs them.
  // Of the other options above only `fanouts` can be set beside it, and neither edgeIds nor subgraph.
  std::optional<ImportanceSampling> importance;
  // With kInduced, fanouts may be empty: the subgraph of the seeds.
  Subgraph subgraph = Subgraph::kSampled;
  int64_t batchSize = 1024;  // seeds per batch and process
  uint64_t seed = 0;         // fixes the order of the seeds and every draw
  bool shuffle = true;
  SeedDeal deal = SeedDeal::kByOwner;
  EpochTail tail = EpochTail::kWrap;
  bool edgeIds = false;      // carry original edge ids
  // Take feature rows of other machines' nodes from the copies that the store keeps with this machine's partitions
  // (`farhop partition --cache-fraction`), where there are any. Changes no result, only what travels.
  bool cache = true;
  int samplerThreads = 1;
  int batchesUnderWay = 2;   // per sampler thread; a round trip hides behind the other batches
  std::chrono::milliseconds requestTimeout{60'000};  // one hop's request, and one pull
  // Names of node features whose pulls start on the sampler side as soon as a batch is sampled: of all nodes of each type
  // that has them, of the types named by prefetchByType (type -> names), and of the seeds. What Batch::feature() and
  // Batch::seedFeature() give is then under way or here. Never changes a result: what is not prefetched, or fails, is
  // pulled when asked for. At most prefetchBytes are under way or here and not handed out: batches wait in line for room,
  // and what has not begun when its batch is handed out is left to the trainer's pull.
  std::vector<std::string> prefetch;
  std::map<std::string, std::vector<std::string>> prefetchByType;
  std::vector<std::string> prefetchOfSeeds;
  int64_t prefetchBytes = int64_t{256} << 20;
};

// Samples ahead on threads of its own in this process. One consumer at a time; not thread-safe. The same
// options, seeds and graph give the same batches on any number of partitions and sampler threads.
class NeighborLoader {
 public:
  // Throws Error(kInvalidArgument) for a fanout list of the wrong length, a relation that is named twice, a fanout
  // out of range, options that exclude each other, seeds of a type into which no relation that draws leads, a weight that is no number per edge or is negative, infinite or NaN in an own partition (the message
  // has file and row), a batch size below 1, seeds that cannot be dealt as asked; Error(kNotFound) for an unknown
  // relation and for a weight that a relation has not, listing those that exist, for a direction without reverse relations,
  // and where temporal sampling finds no times of seeds or edges.
  // Importance neighbours: a metapath that does not lead from the seeds' type back to it, numbers and probabilities out
  // of range. Nothing is sent, except to ask the owners of seeds for their times where deal is kGlobal.
  NeighborLoader(const Graph& graph, const Seeds& seeds, const NeighborLoaderOptions& options);
  ~NeighborLoader();
  NeighborLoader(NeighborLoader&&) noexcept;
  NeighborLoader& operator=(NeighborLoader&&) noexcept;

  // Batches of this process per epoch.
  int64_t numBatches() const;

  // The position after the last batch handed out, as 64 bytes to be stored with a checkpoint: epoch, step, seed, number of
  // processes, and a fingerprint of what makes the batches (store, seeds, options). All processes have the same at the same
  // step, unless one has run out of an uneven epoch.
  std::string state() const;
  // Continues from there: the next epoch() of the number returned yields exactly the batches that were left of
  // it; none where the state is of its end. Throws Error(kInvalidArgument) for bytes that are no state,
  // Error(kFailedPrecondition) for another store, other seeds or options, and, unless otherProcesses asks for the next
  // whole epoch, for the middle of an epoch of another number of processes (of seeds dealt by owner: also for as many,
  // split into machines otherwise).
  int64_t restore(const std::string& state, OtherProcesses otherProcesses = OtherProcesses::kRefuse);

  using Epoch = LoaderEpoch<NeighborLoader, Batch>;
  using Iterator = Epoch::Iterator;
  // Starts epoch number `epoch` (part of every draw's key). Leaving an epoch early is fine; starting another
  // ends the one before.
  Epoch epoch(int64_t epoch);

 private:
  friend Iterator;
  friend class RandomWalkLoader;
  struct Impl;
  // `sampling` as made from other options than `options`, of which the rest holds.
  NeighborLoader(const Graph& graph, const Seeds& seeds, const NeighborLoaderOptions& options,
                 std::unique_ptr<sampler::SamplingOptions> sampling);
  // False at the end of the epoch.
  bool next(Batch* batch);
  std::unique_ptr<Impl> impl_;
};

}  // namespace farhop
