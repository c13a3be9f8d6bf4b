#include "sampler/seed_dealer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace farhop::sampler {
namespace {

std::vector<uint64_t> range(uint64_t from, uint64_t count) {
  std::vector<uint64_t> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

// All batches of an epoch by batch number, from W = machines x procs dealers.
std::map<uint64_t, std::vector<uint64_t>> epochOf(const std::vector<uint64_t>& perMachine, int procs, DealOptions options,
                                                  uint64_t epoch, std::vector<uint64_t>* steps = nullptr) {
  std::map<uint64_t, std::vector<uint64_t>> batches;
  const uint64_t total = std::accumulate(perMachine.begin(), perMachine.end(), uint64_t{0});
  options.numMachines = static_cast<int>(perMachine.size());
  options.procsPerMachine = procs;
  uint64_t first = 0;
  for (int machine = 0; machine < options.numMachines; ++machine) {
    for (int proc = 0; proc < procs; ++proc) {
      SeedSet set;
      set.name = "train";
      set.perMachine = perMachine;
      set.own = range(first, perMachine[machine]);
      set.all = range(0, total);
      options.machine = machine;
      options.proc = proc;
      auto dealer = SeedDealer::make(set, options);
      EXPECT_TRUE(dealer.ok()) << dealer.status();
      if (!dealer.ok()) return {};
      if (steps != nullptr) steps->push_back(dealer->numSteps());
      for (uint64_t step = 0; step < dealer->numSteps(); ++step) {
        EXPECT_TRUE(batches.emplace(dealer->batchNumber(step), dealer->seeds(epoch, step)).second);
      }
    }
    first += perMachine[machine];
  }
  return batches;
}

std::vector<uint64_t> sortedSeeds(const std::map<uint64_t, std::vector<uint64_t>>& batches) {
  std::vector<uint64_t> seeds;
  for (const auto& [number, batch] : batches) seeds.insert(seeds.end(), batch.begin(), batch.end());
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

TEST(SeedDealer, GivesTheSameGlobalBatches_ForAnySplitOfProcesses) {
  DealOptions options;
  options.deal = Deal::kGlobal;
  options.batchSize = 10;
  options.seed = 3;
  for (Tail tail : {Tail::kWrap, Tail::kDrop, Tail::kUneven}) {
    options.tail = tail;
    const auto reference = epochOf({103}, 4, options, 5);
    EXPECT_EQ(epochOf({50, 53}, 2, options, 5), reference);
    EXPECT_EQ(epochOf({3, 50, 0, 50}, 1, options, 5), reference);
  }
}

TEST(SeedDealer, DealsEverySeedOnce_WithTheUnevenTail) {
  DealOptions options;
  options.batchSize = 7;
  options.tail = Tail::kUneven;
  for (Deal deal : {Deal::kByOwner, Deal::kGlobal}) {
    options.deal = deal;
    const auto batches = epochOf({40, 1, 62}, 2, options, 1);
    EXPECT_EQ(sortedSeeds(batches), range(0, 103));
  }
}

TEST(SeedDealer, GivesEveryProcessTheSameFullBatches_WhenWrapping) {
  DealOptions options;
  options.batchSize = 8;
  options.tail = Tail::kWrap;
  for (Deal deal : {Deal::kByOwner, Deal::kGlobal}) {
    options.deal = deal;
    std::vector<uint64_t> steps;
    const auto batches = epochOf({40, 23}, 2, options, 0, &steps);
    EXPECT_EQ(std::count(steps.begin(), steps.end(), steps[0]), 4);
    for (const auto& [number, batch] : batches) EXPECT_EQ(batch.size(), 8u);
    auto seeds = sortedSeeds(batches);
    seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
    EXPECT_EQ(seeds, range(0, 63));  // wrapping repeats seeds, it leaves none out
  }
}

TEST(SeedDealer, DropsWhatNotEveryProcessCanFill) {
  DealOptions options;
  options.batchSize = 8;
  options.tail = Tail::kDrop;
  for (Deal deal : {Deal::kByOwner, Deal::kGlobal}) {
    options.deal = deal;
    std::vector<uint64_t> steps;
    const auto batches = epochOf({40, 23}, 2, options, 0, &steps);
    EXPECT_EQ(steps, (std::vector<uint64_t>(4, 1)));
    const auto seeds = sortedSeeds(batches);
    EXPECT_EQ(std::adjacent_find(seeds.begin(), seeds.end()), seeds.end());
  }
}

TEST(SeedDealer, ShufflesByEpochAndSeed_AndKeepsOrderWithout) {
  DealOptions options;
  options.deal = Deal::kGlobal;
  options.batchSize = 100;
  options.tail = Tail::kUneven;
  const auto first = epochOf({100}, 1, options, 0), second = epochOf({100}, 1, options, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, epochOf({100}, 1, options, 0));
  options.seed = 1;
  EXPECT_NE(first, epochOf({100}, 1, options, 0));
  options.shuffle = false;
  EXPECT_EQ(epochOf({100}, 1, options, 0).at(0), range(0, 100));
}

TEST(SeedDealer, RefusesWhatCannotBeDealt) {
  SeedSet set;
  set.name = "train";
  set.perMachine = {5, 0};
  set.own = range(0, 5);
  DealOptions options;
  options.numMachines = 2;
  auto dealer = SeedDealer::make(set, options);
  ASSERT_FALSE(dealer.ok());
  EXPECT_NE(dealer.status().message().find("machine 1 owns 0 seeds of 'train'"), std::string::npos);
  options.batchSize = 0;
  EXPECT_FALSE(SeedDealer::make(set, options).ok());
  options.batchSize = 1;
  options.deal = Deal::kGlobal;
  EXPECT_FALSE(SeedDealer::make(set, options).ok());  // no seeds at all
}

}  // namespace
}  // namespace farhop::sampler
