// Where a process stands in a stream of batches, as bytes to be stored with a checkpoint. Batches are a function of
// (seed, epoch, number), so these few numbers are all that continuing needs.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "sampler/seed_dealer.h"

namespace farhop::sampler {

struct StreamPosition {
  uint64_t fingerprint = 0;  // of what makes the batches: store, seeds, options; not of the number of processes
  uint64_t seed = 0;
  int numMachines = 1, procsPerMachine = 1;
  uint64_t epoch = 0;
  uint64_t step = 0;  // the next one's; the same on all processes, but where one has run out of an uneven epoch

  int numProcesses() const { return numMachines * procsPerMachine; }
};

// 64 bytes, little-endian, the same for the same position; the last eight are a check of the others.
std::string encodePosition(const StreamPosition& position);
// InvalidArgument for anything else.
absl::StatusOr<StreamPosition> decodePosition(const std::string& bytes);

enum class Resized { kRefuse, kNextEpoch };

// Where a loader continues a stream that was left at `saved`: `own` has its fingerprint, seed and processes, and
// `dealer` deals its seeds. A position of any process serves all of them. FailedPrecondition for another stream, and
// with kRefuse for another number of processes (of seeds dealt by owner: also for as many, split into machines
// otherwise) unless the saved epoch had not begun. With kNextEpoch it is the beginning of the next one then.
absl::StatusOr<StreamPosition> continuePosition(const StreamPosition& saved, const StreamPosition& own,
                                                const SeedDealer& dealer, Resized resized);

}  // namespace farhop::sampler
