#include "sampler/seed_dealer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/random.h"
#include "sampler/stream_position.h"

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

// A dealer of process 0 of its shape, every machine with 40 seeds.
SeedDealer dealerOf(int machines, int procs, Deal deal, Tail tail = Tail::kWrap, int proc = 0) {
  SeedSet set;
  set.perMachine.assign(static_cast<size_t>(machines), 40);
  set.own = range(0, 40);
  set.all = range(0, 40 * static_cast<uint64_t>(machines));
  DealOptions options;
  options.batchSize = 3;
  options.deal = deal;
  options.tail = tail;
  options.numMachines = machines;
  options.procsPerMachine = procs;
  options.proc = proc;
  auto dealer = SeedDealer::make(set, options);
  EXPECT_TRUE(dealer.ok()) << dealer.status();
  return *dealer;
}

StreamPosition positionOf(int machines, int procs, uint64_t epoch = 0, uint64_t step = 0) {
  return {.fingerprint = 0xFEDCBA9876543210, .seed = 7, .numMachines = machines, .procsPerMachine = procs, .epoch = epoch, .step = step};
}

TEST(StreamPosition, IsTheSameAfterItsBytes) {
  KeyedRandom random(20261130);
  for (int i = 0; i < 500; ++i) {
    StreamPosition position = positionOf(1 + static_cast<int>(random.next() % 65'536), 1 + static_cast<int>(random.next() % 1'024),
                                         random.next() >> 1, random.next() >> 1);
    position.fingerprint = random.next();
    position.seed = random.next();
    const std::string bytes = encodePosition(position);
    ASSERT_EQ(bytes.size(), 64u);
    const auto again = decodePosition(bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(encodePosition(*again), bytes);
    EXPECT_EQ(std::tie(again->fingerprint, again->seed, again->numMachines, again->procsPerMachine, again->epoch, again->step),
              std::tie(position.fingerprint, position.seed, position.numMachines, position.procsPerMachine, position.epoch, position.step));
    // No byte of it can change unnoticed.
    std::string damaged = bytes;
    damaged[random.next() % 64] ^= static_cast<char>(1 << (random.next() % 8));
    EXPECT_FALSE(decodePosition(damaged).ok());
    EXPECT_FALSE(decodePosition(bytes.substr(0, random.next() % 64)).ok());
  }
}

TEST(StreamPosition, ContinuesOnAsManyProcesses) {
  const StreamPosition saved = positionOf(2, 2, 5, 3);
  for (Deal deal : {Deal::kByOwner, Deal::kGlobal}) {
    const auto next = continuePosition(saved, positionOf(2, 2, 9, 1), dealerOf(2, 2, deal), Resized::kRefuse);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(encodePosition(*next), encodePosition(saved));
  }
  // Global batches know no machines.
  const auto next = continuePosition(saved, positionOf(1, 4), dealerOf(1, 4, Deal::kGlobal), Resized::kRefuse);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(encodePosition(*next), encodePosition(positionOf(1, 4, 5, 3)));
}

TEST(StreamPosition, IsRefusedByOthersAndSaysWhy_OrGoesOnWithTheNextEpoch) {
  const StreamPosition saved = positionOf(2, 2, 5, 3);
  for (const auto& [deal, machines, procs] : {std::tuple{Deal::kByOwner, 1, 4}, {Deal::kByOwner, 2, 1}, {Deal::kGlobal, 1, 3}}) {
    const StreamPosition own = positionOf(machines, procs);
    const SeedDealer dealer = dealerOf(machines, procs, deal);
    const absl::Status refused = continuePosition(saved, own, dealer, Resized::kRefuse).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(absl::StrCat("2 x 2 processes (machines x processes of "
                "each), in the middle of epoch 5, and this job has ", machines, " x ", procs)));
    EXPECT_EQ(encodePosition(*continuePosition(saved, own, dealer, Resized::kNextEpoch)),
              encodePosition(positionOf(machines, procs, 6, 0)));
    // An epoch that has not begun is a whole one.
    EXPECT_EQ(encodePosition(*continuePosition(positionOf(2, 2, 5, 0), own, dealer, Resized::kRefuse)),
              encodePosition(positionOf(machines, procs, 5, 0)));
  }
  StreamPosition other = positionOf(2, 2);
  const SeedDealer dealer = dealerOf(2, 2, Deal::kByOwner);
  other.seed = 8;
  EXPECT_THAT(std::string(continuePosition(saved, other, dealer, Resized::kNextEpoch).status().message()),
              ::testing::HasSubstr("their seed is 7, this loader's is 8"));
  other = positionOf(2, 2);
  other.fingerprint ^= 1;
  EXPECT_EQ(continuePosition(saved, other, dealer, Resized::kNextEpoch).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(continuePosition(positionOf(2, 2, 0, 8), positionOf(2, 2), dealer, Resized::kRefuse).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(StreamPosition, OfAnyProcessServesAll_AlsoWhereOneHasFewerBatches) {
  // 40 seeds for 13 processes: four for the first, three for the others, in batches of 3.
  const SeedDealer more = dealerOf(1, 13, Deal::kByOwner, Tail::kUneven, 0), fewer = dealerOf(1, 13, Deal::kByOwner, Tail::kUneven, 12);
  ASSERT_EQ(more.numSteps(), 2u);
  ASSERT_EQ(fewer.numSteps(), 1u);
  const auto next = continuePosition(positionOf(1, 13, 2, 2), positionOf(1, 13), fewer, Resized::kRefuse);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->step, 1u);
}

}  // namespace
}  // namespace farhop::sampler
