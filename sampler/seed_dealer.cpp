#include "sampler/seed_dealer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace farhop::sampler {
namespace {

uint64_t divideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

uint64_t SeedDealer::sharesOf(int machine, int proc) const {
  const uint64_t owned = seeds_.perMachine[machine], procs = static_cast<uint64_t>(options_.procsPerMachine);
  return owned / procs + (static_cast<uint64_t>(proc) < owned % procs ? 1 : 0);
}

uint64_t SeedDealer::poolSize() const {
  const bool global = options_.deal == Deal::kGlobal;
  if (seeds_.byPosition) return global ? seeds_.allPositions : seeds_.ownPositions;
  return global ? seeds_.all.size() : seeds_.own.size();
}

absl::StatusOr<SeedDealer> SeedDealer::make(SeedSet seeds, DealOptions options) {
  if (options.batchSize == 0) return absl::InvalidArgumentError("batchSize is 0; it must be at least 1");
  SeedDealer dealer(std::move(seeds), options);
  const SeedSet& set = dealer.seeds_;
  if (!set.times.empty() && set.times.size() != dealer.poolSize()) {
    return absl::InternalError(absl::StrCat(set.times.size(), " times do not fit the seeds of '", set.name, "'"));
  }
  const uint64_t batch = options.batchSize;
  const uint64_t world = static_cast<uint64_t>(options.numMachines) * static_cast<uint64_t>(options.procsPerMachine);
  if (options.deal == Deal::kGlobal) {
    const uint64_t total = dealer.poolSize();
    if (total == 0) return absl::InvalidArgumentError(absl::StrCat("'", set.name, "' has no seeds"));
    const uint64_t rank = static_cast<uint64_t>(options.machine * options.procsPerMachine + options.proc);
    switch (options.tail) {
      case Tail::kWrap: dealer.steps_ = divideUp(divideUp(total, batch), world); break;
      case Tail::kDrop: dealer.steps_ = total / batch / world; break;
      case Tail::kUneven: {
        const uint64_t batches = divideUp(total, batch);
        dealer.steps_ = batches / world + (rank < batches % world ? 1 : 0);
        break;
      }
    }
    return dealer;
  }
  if (set.perMachine.size() != static_cast<size_t>(options.numMachines) ||
      dealer.poolSize() != set.perMachine[options.machine]) {
    return absl::InternalError("seed counts do not fit the machines");
  }
  if (std::accumulate(set.perMachine.begin(), set.perMachine.end(), uint64_t{0}) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", set.name, "' has no seeds"));
  }
  uint64_t most = 0, least = std::numeric_limits<uint64_t>::max();
  for (int machine = 0; machine < options.numMachines; ++machine) {
    for (int proc = 0; proc < options.procsPerMachine; ++proc) {
      const uint64_t share = dealer.sharesOf(machine, proc);
      if (share == 0 && options.tail == Tail::kWrap) {
        return absl::InvalidArgumentError(absl::StrCat(
            "machine ", machine, " owns ", set.perMachine[machine], " seeds of '", set.name, "', too few for its ",
            options.procsPerMachine, " processes; deal the seeds globally, or use the drop or uneven tail"));
      }
      most = std::max(most, share);
      least = std::min(least, share);
    }
  }
  switch (options.tail) {
    case Tail::kWrap: dealer.steps_ = divideUp(most, batch); break;
    case Tail::kDrop: dealer.steps_ = least / batch; break;
    case Tail::kUneven: dealer.steps_ = divideUp(dealer.sharesOf(options.machine, options.proc), batch); break;
  }
  return dealer;
}

uint64_t SeedDealer::batchNumber(uint64_t step) const {
  const uint64_t world = static_cast<uint64_t>(options_.numMachines) * static_cast<uint64_t>(options_.procsPerMachine);
  return step * world + static_cast<uint64_t>(options_.machine * options_.procsPerMachine + options_.proc);
}

std::vector<uint64_t> SeedDealer::seeds(uint64_t epoch, uint64_t step) const {
  const std::vector<uint64_t>& pool = options_.deal == Deal::kGlobal ? seeds_.all : seeds_.own;
  std::vector<uint64_t> batch = positions(epoch, step);
  if (seeds_.byPosition) return batch;
  for (uint64_t& seed : batch) seed = pool[seed];
  return batch;
}

std::vector<int64_t> SeedDealer::times(uint64_t epoch, uint64_t step) const {
  std::vector<int64_t> times;
  if (seeds_.times.empty()) return times;
  for (uint64_t position : positions(epoch, step)) times.push_back(seeds_.times[position]);
  return times;
}

std::vector<uint64_t> SeedDealer::positions(uint64_t epoch, uint64_t step) const {
  const bool global = options_.deal == Deal::kGlobal;
  const uint64_t key = hopKey(options_.seed, epoch, 0, 0, Purpose::kShuffle, 0);
  const uint64_t size = poolSize();
  const KeyedPermutation permutation(key, size);
  // A position counts in this process's share (kByOwner) or in all seeds (kGlobal).
  const uint64_t share = global ? size : sharesOf(options_.machine, options_.proc);
  const uint64_t first = (global ? batchNumber(step) : step) * options_.batchSize;
  const uint64_t last = options_.tail == Tail::kUneven ? std::min(share, first + options_.batchSize)
                                                       : first + options_.batchSize;
  std::vector<uint64_t> batch;
  batch.reserve(last - first);
  for (uint64_t position = first; position < last; ++position) {
    uint64_t index = position % share;
    if (!global) {
      index = index * static_cast<uint64_t>(options_.procsPerMachine) + static_cast<uint64_t>(options_.proc);
    }
    batch.push_back(options_.shuffle ? permutation(index) : index);
  }
  return batch;
}

}  // namespace farhop::sampler
