// Iterates mini-batches over seeds with sampled neighbourhoods.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "farhop/batch.h"
#include "farhop/graph.h"

namespace farhop {

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
};

// Samples ahead on threads of its own in this process. One consumer at a time; not thread-safe. The same
// options, seeds and graph give the same batches on any number of partitions and sampler threads.
class NeighborLoader {
 public:
  // Throws Error(kInvalidArgument) for a fanout list of the wrong length, an unknown relation, a fanout
  // out of range, a weight that is no number per edge or is negative, infinite or NaN in an own partition (the message
  // has file and row), a batch size below 1, seeds that cannot be dealt as asked; Error(kNotFound) for a weight that a
  // relation has not, listing those that it has. Nothing is sent.
  NeighborLoader(const Graph& graph, const Seeds& seeds, const NeighborLoaderOptions& options);
  ~NeighborLoader();
  NeighborLoader(NeighborLoader&&) noexcept;
  NeighborLoader& operator=(NeighborLoader&&) noexcept;

  // Batches of this process per epoch.
  int64_t numBatches() const;

  // The position after the last batch handed out, as a few bytes to be stored with a checkpoint: epoch, step, and
  // a fingerprint of what makes the batches (store, seeds, options, number of processes).
  std::string state() const;
  // Continues from there: the next epoch() of the number returned yields exactly the batches that were left of
  // it. Throws Error(kInvalidArgument) for bytes that are no state, Error(kFailedPrecondition) for another
  // store, other seeds or options, or another number of machines or processes.
  int64_t restore(const std::string& state);

  class Epoch;
  // Starts epoch number `epoch` (part of every draw's key). Leaving an epoch early is fine; starting another
  // ends the one before.
  Epoch epoch(int64_t epoch);

  // What range-for needs. next() throws Error when sampling failed; the loader stays usable for another
  // epoch unless a peer was lost.
  class Iterator {
   public:
    Batch& operator*() { return batch_; }
    Batch* operator->() { return &batch_; }
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return loader_ != other.loader_; }
    bool operator==(const Iterator& other) const { return loader_ == other.loader_; }

   private:
    friend class Epoch;
    NeighborLoader* loader_ = nullptr;  // null at the end
    Batch batch_;
  };
  class Epoch {
   public:
    Iterator begin();
    Iterator end() { return {}; }

   private:
    friend class NeighborLoader;
    explicit Epoch(NeighborLoader* loader) : loader_(loader) {}
    NeighborLoader* loader_;
  };

 private:
  struct Impl;
  // False at the end of the epoch.
  bool next(Batch* batch);
  std::unique_ptr<Impl> impl_;
};

}  // namespace farhop
