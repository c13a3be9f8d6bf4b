// Which seeds make which batch: dealing, shuffling, the tail of an epoch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace farhop::sampler {

// kByOwner: a machine's own seeds, permuted, round robin to its processes. kGlobal: one permutation of all
// seeds, cut by batch number: the same batches for any split of W processes into machines and groups.
enum class Deal { kByOwner, kGlobal };

// kWrap: every process gets the same number of full batches, wrapping in permutation order. kDrop: as many
// full batches as all processes have. kUneven: every seed once; processes may differ in their last batches.
enum class Tail { kWrap, kDrop, kUneven };

// Seeds of one node type in an order that does not depend on the partitioning (ascending original id, or as
// the user listed them).
struct SeedSet {
  int nodeType = 0;
  std::vector<uint64_t> own;        // kByOwner: gids that this machine owns
  std::vector<uint64_t> perMachine;  // kByOwner: how many each machine owns
  std::vector<uint64_t> all;        // kGlobal: all gids
  std::vector<int64_t> times;       // of `own` or `all`, whichever is dealt from; empty: seeds have no times
  // Instead of gids: positions [0, ownPositions) or [0, allPositions) of a list that somebody else has.
  bool byPosition = false;
  uint64_t ownPositions = 0, allPositions = 0;
  std::string name;                 // for messages
};

struct DealOptions {
  uint64_t batchSize = 1024;
  bool shuffle = true;
  Deal deal = Deal::kByOwner;
  Tail tail = Tail::kWrap;
  uint64_t seed = 0;
  int machine = 0, numMachines = 1;
  int proc = 0, procsPerMachine = 1;
};

// Immutable; thread-safe. Every process of the job computes its own part without asking the others.
class SeedDealer {
 public:
  // InvalidArgument for batchSize 0, an empty set, or a machine without seeds where the tail must wrap.
  static absl::StatusOr<SeedDealer> make(SeedSet seeds, DealOptions options);

  // Batches of this process per epoch.
  uint64_t numSteps() const { return steps_; }
  // Batches of all processes per epoch, at most: the highest batch number + 1 is no larger.
  uint64_t batchNumber(uint64_t step) const;
  // The gids of one batch, or positions where the set has those; step < numSteps(). Never empty.
  std::vector<uint64_t> seeds(uint64_t epoch, uint64_t step) const;
  // The times of the same seeds; empty where they have none.
  std::vector<int64_t> times(uint64_t epoch, uint64_t step) const;
  int nodeType() const { return seeds_.nodeType; }
  const DealOptions& options() const { return options_; }

 private:
  SeedDealer(SeedSet seeds, DealOptions options) : seeds_(std::move(seeds)), options_(options) {}
  uint64_t sharesOf(int machine, int proc) const;  // kByOwner: seeds dealt to one process
  uint64_t poolSize() const;                       // seeds of this machine, or all
  // Of the batch's seeds in the pool that is dealt from.
  std::vector<uint64_t> positions(uint64_t epoch, uint64_t step) const;

  SeedSet seeds_;
  DealOptions options_;
  uint64_t steps_ = 0;
};

}  // namespace farhop::sampler
