// Pulls over the bulk transport bring the same bytes as pulls by requests of the agent, whatever is pulled, and end in
// time whatever the owner does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "sampler/bulk_wire.h"
#include "sampler/table_keys.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using ::testing::HasSubstr;
using std::chrono::milliseconds;

struct Wanted {
  std::string feature;
  sampler::RowFormat format = {};
};

// What one pull brought, per feature.
struct Pulled {
  absl::Status status;
  std::vector<std::vector<std::byte>> rows;
};

struct Call {
  int machine = 0;
  int nodeType = 0;
  std::vector<uint64_t> gids;
  std::vector<Wanted> features;
  bool mayLand = true;
  milliseconds timeout{20'000};
};

Pulled pullNow(SamplingCluster& cluster, const Call& call) {
  // As a trainer's tensors: the pull keeps them.
  auto pulled = std::make_shared<Pulled>();
  sampler::PullRequest request;
  request.nodeType = call.nodeType;
  request.gids = call.gids;
  for (const Wanted& wanted : call.features) {
    const sampler::PartitionedGraph& graph = *cluster.machine(call.machine).graph;
    const auto index = sampler::featureIndex(graph, call.nodeType, wanted.feature);
    if (!index.ok()) return {index.status(), {}};
    const auto copy = sampler::RowCopy::make(sampler::featureSpec(graph, call.nodeType, *index), wanted.format);
    if (!copy.ok()) return {copy.status(), {}};
    pulled->rows.emplace_back(call.gids.size() * copy->destinationBytes(), std::byte{0xEE});
    request.targets.push_back({*index, pulled->rows.back().data(), wanted.format});
  }
  if (call.mayLand) request.keepAlive = pulled;
  request.deadline = Deadline::after(call.timeout);
  std::promise<absl::Status> done;
  cluster.machine(call.machine).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
  pulled->status = done.get_future().get();
  return {pulled->status, std::move(pulled->rows)};
}

std::vector<uint64_t> randomGids(const SamplingCluster& cluster, int type, size_t count, uint32_t seed) {
  uint64_t nodes = 0;
  for (int k = 0; k < cluster.store().book().numPartitions(); ++k) nodes += cluster.store().book().count(type, k);
  std::mt19937 random(seed);
  std::vector<uint64_t> gids(count);
  for (uint64_t& gid : gids) gid = random() % nodes;
  return gids;
}

// What carries the bytes, and who moves them.
struct Way {
  const char* name;
  const char* provider;  // null: within the process
  sampler::BulkReads reads = sampler::BulkReads::kAutomatic;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
const auto nameOf = [](const auto& one) { return one.param.name; };

class BulkPull : public ::testing::TestWithParam<Way> {
 protected:
  std::string store(const FixtureOptions& options, int parts = 3) {
    const std::string path = directory_ / absl::StrCat("store", stores_++);
    return writeFixtureStore(options, parts, path);
  }
  BulkCluster bulk() const {
    BulkCluster options;
    options.fabric = GetParam().provider != nullptr;
    if (options.fabric) options.provider = GetParam().provider;
    options.puller.reads = GetParam().reads;
    return options;
  }
  static bool reads() { return GetParam().reads == sampler::BulkReads::kAlways; }
  // That rows have come the way they should.
  static void expectUsed(TestMachine& puller, TestMachine& owner) {
    EXPECT_EQ(puller.bulk->traffic().reads > 0, reads());
    EXPECT_EQ(puller.bulk->traffic().arrivals > 0, !reads());
    EXPECT_EQ(owner.bulk->traffic().writes > 0, !reads());
    EXPECT_EQ(puller.slots->open(), 0u);
  }
  // The same from both, and OK.
  static void expectSame(SamplingCluster& bulk, SamplingCluster& plain, const Call& call, const std::string& what) {
    const Pulled expected = pullNow(plain, call), got = pullNow(bulk, call);
    ASSERT_TRUE(expected.status.ok()) << what << ": " << expected.status;
    ASSERT_TRUE(got.status.ok()) << what << ": " << got.status;
    ASSERT_EQ(got.rows.size(), expected.rows.size());
    for (size_t f = 0; f < got.rows.size(); ++f) {
      ASSERT_TRUE(got.rows[f] == expected.rows[f]) << what << ": " << call.features[f].feature;
    }
  }

  TemporaryDirectory directory_;
  int stores_ = 0;
};

TEST_P(BulkPull, BringsTheSameBytes_WhateverTheWidth) {
  for (uint64_t floats : {1, 25, 1024, 2048, 16'384}) {
    FixtureOptions fixture;
    fixture.featureDim = floats;
    const std::string path = store(fixture);
    SamplingCluster plain(path, 3, rpc::TransportKind::kInProcess), fast(path, 3, bulk());
    for (bool mayLand : {true, false}) {
      const std::string what = absl::StrCat(floats, " floats, landing ", mayLand);
      const size_t rows = std::min<size_t>(3000, (size_t{8} << 20) / (floats * 4));
      expectSame(fast, plain, {.gids = randomGids(fast, 0, rows, 7), .features = {{"x"}}, .mayLand = mayLand}, what);
      expectSame(fast, plain,
                 {.machine = 2, .gids = randomGids(fast, 0, 100, 8), .features = {{"label"}, {"x"}, {"original_id"}}, .mayLand = mayLand},
                 what);
    }
    expectUsed(fast.machine(0), fast.machine(1));
  }
}

TEST_P(BulkPull, BringsTheSameBytes_OfEveryNodeType) {
  FixtureOptions fixture;
  fixture.heterogeneous = true;
  fixture.nodes = 200;
  const std::string path = store(fixture, 5);
  SamplingCluster plain(path, 2, rpc::TransportKind::kInProcess), fast(path, 2, bulk());
  for (int machine : {0, 1}) {
    for (int type : {0, 1}) {
      for (size_t rows : {0, 1, 2, 777}) {
        expectSame(fast, plain,
                   {.machine = machine, .nodeType = type, .gids = randomGids(fast, type, rows, 3), .features = {{"x"}, {"original_id"}}},
                   absl::StrCat("machine ", machine, " type ", type, " rows ", rows));
      }
    }
  }
}

TEST_P(BulkPull, BringsTheSameBytes_WhenNothingFitsABuffer) {
  FixtureOptions fixture;
  fixture.featureDim = 100;
  const std::string path = store(fixture);
  SamplingCluster plain(path, 3, rpc::TransportKind::kInProcess);
  for (size_t staging : {1, 400, 3000}) {
    for (size_t buffer : {1, 7, 399, 401, 1200}) {
      BulkCluster options = bulk();
      options.puller.stagingBytes = staging;
      options.puller.chunksPerPeer = 2;
      options.service.bufferBytes = buffer;
      options.service.buffersPerPull = 1 + buffer % 3;
      options.service.pullsPerPeer = 1;
      options.puller.landingRunBytes = buffer % 2 == 1 ? 400 : 1'000'000;
      SamplingCluster fast(path, 3, options);
      const size_t rows = buffer < 300 ? 20 : 400;
      expectSame(fast, plain, {.gids = randomGids(fast, 0, rows, 5), .features = {{"x"}, {"label"}}},
                 absl::StrCat("staging ", staging, " buffer ", buffer));
    }
  }
}

TEST_P(BulkPull, BringsPartsAndWiderNumbers) {
  FixtureOptions fixture;
  fixture.featureDim = 4096;
  const std::string path = store(fixture);
  SamplingCluster plain(path, 3, rpc::TransportKind::kInProcess), fast(path, 3, bulk());
  const sampler::RowPart part{400, 12'000};
  for (bool mayLand : {true, false}) {
    expectSame(fast, plain,
               {.gids = randomGids(fast, 0, 300, 5),
                .features = {{"x", {part, {}}}, {"x", {{}, DType::kFloat64}}, {"label"}, {"x", {part, DType::kFloat64}}},
                .mayLand = mayLand},
               absl::StrCat("landing ", mayLand));
  }
}

TEST_P(BulkPull, LandsRowsThatWereAskedForInOrder_WithFewWrites) {
  FixtureOptions fixture;
  fixture.featureDim = 8;
  fixture.nodes = 20'000;
  fixture.edges = 100;
  const std::string path = store(fixture, 2);
  SamplingCluster plain(path, 2, rpc::TransportKind::kInProcess), fast(path, 2, bulk());
  const auto& book = fast.store().book();
  std::vector<uint64_t> gids(book.count(0, 1));
  std::iota(gids.begin(), gids.end(), book.begin(0, 1));
  expectSame(fast, plain, {.gids = gids, .features = {{"x"}}}, "in order");
  EXPECT_LE(fast.machine(1).bulk->traffic().writes, 4u);
  EXPECT_LE(fast.machine(0).bulk->traffic().reads, gids.size() / 1024 + 1);
}

TEST_P(BulkPull, ServesManyAtATime) {
  FixtureOptions fixture;
  fixture.featureDim = 64;
  const std::string path = store(fixture);
  SamplingCluster plain(path, 3, rpc::TransportKind::kInProcess);
  BulkCluster options = bulk();
  options.puller.stagingBytes = 4096;
  SamplingCluster fast(path, 3, options);
  std::vector<Call> calls;
  std::vector<Pulled> expected;
  for (int i = 0; i < 9; ++i) {
    calls.push_back({.machine = i % 3, .gids = randomGids(fast, 0, 2000, static_cast<uint32_t>(i)), .features = {{"x"}, {"label"}}});
    expected.push_back(pullNow(plain, calls.back()));
  }
  std::vector<Pulled> got(calls.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < calls.size(); ++i) threads.emplace_back([&, i] { got[i] = pullNow(fast, calls[i]); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < calls.size(); ++i) {
    ASSERT_TRUE(got[i].status.ok()) << got[i].status;
    EXPECT_TRUE(got[i].rows == expected[i].rows) << i;
  }
}

class BulkPullFault : public BulkPull {
 protected:
  // Rows of the other machine of two, wide enough to land or not.
  Call callOf(const SamplingCluster& cluster, bool lands, milliseconds timeout) const {
    const auto& book = cluster.store().book();
    return {.gids = {book.begin(0, 1), book.begin(0, 1) + 3}, .features = {{lands ? "x" : "label"}}, .timeout = timeout};
  }
  std::string wideStore() {
    FixtureOptions fixture;
    fixture.featureDim = 4096;
    return store(fixture, 2);
  }
  // Until `ready` holds.
  template <typename Ready>
  static bool eventually(const Ready& ready) {
    for (int i = 0; i < 2000; ++i) {
      if (ready()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }
};

TEST_P(BulkPullFault, EndsAtItsDeadline_WhenAnOwnerIsSilent_AndGoesOnByTheAgent) {
  const std::string path = wideStore();
  for (bool lands : {true, false}) {
    BulkCluster options = bulk();
    options.puller.grace = milliseconds(100);
    options.puller.minLandingTime = milliseconds(0);
    SamplingCluster cluster(path, 2, options);
    std::mutex mutex;
    std::vector<rpc::Responder> held;
    cluster.machine(1).agent->handle(sampler::kBulkPullMethod, [&](rpc::Request, rpc::Responder responder) {
      std::lock_guard lock(mutex);
      held.push_back(std::move(responder));
    });
    const auto start = Clock::now();
    const Pulled late = pullNow(cluster, callOf(cluster, lands, milliseconds(300)));
    EXPECT_LT(Clock::now() - start, milliseconds(5000));
    EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded) << late.status;
    ASSERT_TRUE(peerOf(late.status).has_value()) << late.status;
    EXPECT_EQ(peerOf(late.status)->machine, 1);
    // Its slot is let go, and the next pulls do not wait for it.
    EXPECT_TRUE(eventually([&] { return cluster.machine(0).slots->open() == 0; }));
    const Pulled next = pullNow(cluster, callOf(cluster, lands, milliseconds(20'000)));
    EXPECT_TRUE(next.status.ok()) << next.status;
    cluster.machine(1).agent->close(absl::CancelledError("test over"));
    held.clear();
  }
}

TEST_P(BulkPullFault, TouchesNothingAnyMore_OnceItHasEnded) {
  BulkCluster options = bulk();
  options.puller.minLandingTime = milliseconds(0);
  SamplingCluster cluster(wideStore(), 2, options);
  std::promise<sampler::BulkPullRequest> asked;
  std::vector<rpc::Responder> held;
  cluster.machine(1).agent->handle(sampler::kBulkPullMethod, [&](rpc::Request request, rpc::Responder responder) {
    held.push_back(std::move(responder));
    asked.set_value(*sampler::decodeBulkPull(request.arrays, *cluster.machine(1).graph));
  });
  Pulled late = pullNow(cluster, callOf(cluster, true, milliseconds(200)));
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded) << late.status;
  const sampler::BulkPullRequest request = asked.get_future().get();
  // The tensor is somebody else's now; its owner writes at last.
  std::fill(late.rows[0].begin(), late.rows[0].end(), std::byte{0x55});
  auto row = std::make_shared<std::vector<std::byte>>(4096);
  auto region = cluster.machine(1).bulk->registerMemory(*row, rpc::BulkAccess::kSource, row);
  ASSERT_TRUE(region.ok());
  std::promise<absl::Status> written;
  cluster.machine(1).bulk->write({.peer = 0, .local = *region, .bytes = row->size(), .remote = request.targets[0].region(),
                                  .data = rpc::BulkSlots::dataOf(request.slot, 0), .deadline = Deadline::after(milliseconds(2000))},
                                 [&](absl::Status status) { written.set_value(std::move(status)); });
  // Over a network a write may be over for its maker before anybody has refused it.
  static_cast<void>(written.get_future().get());
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(std::count(late.rows[0].begin(), late.rows[0].end(), std::byte{0x55}), std::ssize(late.rows[0]));
  EXPECT_EQ(cluster.machine(0).bulk->traffic().arrivals, 0u);
  cluster.machine(1).agent->close(absl::CancelledError("test over"));
}

TEST_P(BulkPullFault, IsNotMisledByWritesThatFailed) {
  SamplingCluster cluster(wideStore(), 2, bulk());
  cluster.machine(1).agent->handle(sampler::kBulkPullMethod, [](rpc::Request, rpc::Responder responder) {
    responder.reply({sampler::encodeBulkPullReply({.writes = 0, .uncertain = 1}, absl::UnavailableError("the cable broke"))});
  });
  const Pulled broken = pullNow(cluster, callOf(cluster, true, milliseconds(10'000)));
  EXPECT_EQ(broken.status.code(), absl::StatusCode::kUnavailable) << broken.status;
  EXPECT_THAT(std::string(broken.status.message()), HasSubstr("the cable broke"));
  ASSERT_TRUE(peerOf(broken.status).has_value()) << broken.status;
  EXPECT_EQ(peerOf(broken.status)->machine, 1);
  const Pulled next = pullNow(cluster, callOf(cluster, true, milliseconds(20'000)));
  EXPECT_TRUE(next.status.ok()) << next.status;
}

TEST_P(BulkPullFault, DoesNotFailForAnothersSake) {
  for (bool lands : {true, false}) {
    BulkCluster options = bulk();
    options.puller.minLandingTime = milliseconds(0);
    SamplingCluster cluster(wideStore(), 2, options);
    std::mutex mutex;
    std::vector<rpc::Responder> held;
    cluster.machine(1).agent->handle(sampler::kBulkPullMethod, [&](rpc::Request, rpc::Responder responder) {
      std::lock_guard lock(mutex);
      held.push_back(std::move(responder));
    });
    std::future<Pulled> patient = std::async(std::launch::async, [&] {
      return pullNow(cluster, callOf(cluster, lands, milliseconds(20'000)));
    });
    ASSERT_TRUE(eventually([&] { std::lock_guard lock(mutex); return held.size() == 1; }));
    EXPECT_FALSE(pullNow(cluster, callOf(cluster, true, milliseconds(200))).status.ok());
    // The connection is closed, so the owner's writes for the patient one have failed.
    {
      std::lock_guard lock(mutex);
      held[0].reply({sampler::encodeBulkPullReply({.writes = 0, .uncertain = 1}, absl::UnavailableError("closed"))});
    }
    const Pulled other = patient.get();
    EXPECT_TRUE(other.status.ok()) << other.status;
    cluster.machine(1).agent->close(absl::CancelledError("test over"));
    held.clear();
  }
}

TEST_P(BulkPullFault, FailsAlone_WhenItsOwnerRefuses) {
  SamplingCluster cluster(wideStore(), 2, bulk());
  const Pulled refused = [&] {
    cluster.machine(1).agent->handle(sampler::kBulkPullMethod, [](rpc::Request, rpc::Responder responder) {
      responder.reply({sampler::encodeBulkPullReply({}, absl::FailedPreconditionError("no such table"))});
    });
    return pullNow(cluster, callOf(cluster, true, milliseconds(10'000)));
  }();
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("no such table"));
  cluster.machine(1).agent->handle(sampler::kBulkPullMethod, [](rpc::Request, rpc::Responder responder) {
    responder.reply({sampler::encodeBulkPullReply({}, absl::OkStatus())});
  });
  EXPECT_TRUE(pullNow(cluster, callOf(cluster, true, milliseconds(10'000))).status.ok());
}

TEST_P(BulkPullFault, NamesTheLostOwner_AndServesTheRest) {
  FixtureOptions fixture;
  fixture.featureDim = 4096;
  const std::string path = store(fixture, 3);
  SamplingCluster cluster(path, 3, bulk());
  const auto& book = cluster.store().book();
  cluster.machine(2).agent->close(absl::CancelledError("gone"));
  for (bool mayLand : {true, false}) {
    const Pulled lost = pullNow(
        cluster, {.gids = {book.begin(0, 1), book.begin(0, 2)}, .features = {{"x"}}, .mayLand = mayLand});
    ASSERT_TRUE(peerOf(lost.status).has_value()) << lost.status;
    EXPECT_EQ(peerOf(lost.status)->machine, 2);
    const Pulled rest = pullNow(cluster, {.gids = {book.begin(0, 1)}, .features = {{"x"}}, .mayLand = mayLand});
    EXPECT_TRUE(rest.status.ok()) << rest.status;
  }
  EXPECT_GT(cluster.machine(0).bulk->traffic().arrivals, 0u);
}

TEST_P(BulkPullFault, SaysWhichLimit_WhenMemoryCannotBeRegistered) {
  BulkCluster options = bulk();
  options.maxRegisteredBytes = 10'000;
  SamplingCluster cluster(wideStore(), 2, options);
  for (bool lands : {true, false}) {
    const Pulled refused = pullNow(cluster, callOf(cluster, lands, milliseconds(10'000)));
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted) << refused.status;
    EXPECT_THAT(std::string(refused.status.message()), HasSubstr("10000"));
  }
  EXPECT_EQ(cluster.machine(0).slots->open(), 0u);
}

TEST_P(BulkPullFault, IsCutShort_WhenItIsCancelled) {
  SamplingCluster cluster(wideStore(), 2, bulk());
  auto rows = std::make_shared<std::vector<float>>(3000 * 4096);
  const auto& book = cluster.store().book();
  const std::vector<uint64_t> gids(3000, book.begin(0, 1));
  auto cancelled = std::make_shared<std::atomic<bool>>(true);
  sampler::PullRequest request;
  request.gids = gids;
  request.targets = {{0, reinterpret_cast<std::byte*>(rows->data())}};
  request.keepAlive = rows;
  request.deadline = Deadline::after(milliseconds(20'000));
  request.cancelled = cancelled;
  std::promise<absl::Status> done;
  cluster.machine(0).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
  EXPECT_EQ(done.get_future().get().code(), absl::StatusCode::kCancelled);
}

class BulkReadFault : public BulkPullFault {};

TEST_P(BulkReadFault, GoesOnWithWritesOfTheOwner_WhoseTablesCannotBeRegistered) {
  FixtureOptions fixture;
  fixture.featureDim = 4096;
  fixture.nodes = 600;
  const std::string path = store(fixture, 2);
  BulkCluster options = bulk();
  options.maxRegisteredBytes = 2'800'000;  // for buffers, but not for a table of 4.9 MB
  SamplingCluster plain(path, 2, rpc::TransportKind::kInProcess), cluster(path, 2, options);
  ASSERT_GT(cluster.store().book().count(0, 1) * 16'384, options.maxRegisteredBytes);
  for (int i = 0; i < 2; ++i) {
    const std::vector<uint64_t> gids{cluster.store().book().begin(0, 1), cluster.store().book().begin(0, 1) + 3};
    expectSame(cluster, plain, {.gids = gids, .features = {{"x"}}, .mayLand = false}, "refused");
  }
  EXPECT_EQ(cluster.machine(0).bulk->traffic().reads, 0u);
  EXPECT_GT(cluster.machine(0).bulk->traffic().arrivals, 0u);
}

TEST_P(BulkReadFault, GoesOnWithWritesOfTheOwner_WhoseAnswerAboutTablesIsNonsense) {
  const std::string path = wideStore();
  SamplingCluster plain(path, 2, rpc::TransportKind::kInProcess), cluster(path, 2, bulk());
  cluster.machine(1).agent->handle(sampler::kTableKeysMethod, [](rpc::Request, rpc::Responder responder) {
    responder.reply({sampler::encodeTableKeys({{0, 1, 77, 0, 1000}})});
  });
  expectSame(cluster, plain, callOf(cluster, true, milliseconds(20'000)), "nonsense");
  EXPECT_EQ(cluster.machine(0).bulk->traffic().reads, 0u);
}

TEST_P(BulkReadFault, EndsAtItsDeadline_WhenAnOwnerDoesNotSayWhereItsTablesAre) {
  SamplingCluster cluster(wideStore(), 2, bulk());
  std::mutex mutex;
  std::vector<rpc::Responder> held;
  cluster.machine(1).agent->handle(sampler::kTableKeysMethod, [&](rpc::Request, rpc::Responder responder) {
    std::lock_guard lock(mutex);
    held.push_back(std::move(responder));
  });
  const auto start = Clock::now();
  const Pulled late = pullNow(cluster, callOf(cluster, true, milliseconds(300)));
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded) << late.status;
  ASSERT_TRUE(peerOf(late.status).has_value()) << late.status;
  cluster.machine(1).agent->close(absl::CancelledError("test over"));
  std::lock_guard lock(mutex);
  held.clear();
}

// Keys that are not the owner's: the provider refuses the read.
TEST_P(BulkReadFault, GoesOnByTheAgent_WhenReadsFail) {
  const std::string path = wideStore();
  for (bool lands : {true, false}) {
    SamplingCluster plain(path, 2, rpc::TransportKind::kInProcess), cluster(path, 2, bulk());
    const uint64_t rows = cluster.store().book().count(0, 1);
    const uint64_t rowBytes = lands ? 4096 * sizeof(float) : sampler::featureSpec(*cluster.machine(0).graph, 0, 1).rowBytes();
    cluster.machine(1).agent->handle(sampler::kTableKeysMethod, [&](rpc::Request, rpc::Responder responder) {
      responder.reply({sampler::encodeTableKeys({{0, 1, 0x1234567, 0, rows * rowBytes}})});
    });
    const Pulled failed = pullNow(cluster, callOf(cluster, lands, milliseconds(3'000)));
    EXPECT_FALSE(failed.status.ok());
    ASSERT_TRUE(peerOf(failed.status).has_value()) << failed.status;
    EXPECT_EQ(peerOf(failed.status)->machine, 1);
    expectSame(cluster, plain, callOf(cluster, lands, milliseconds(20'000)), "by the agent");
  }
}

TEST_P(BulkReadFault, NamesTheLostOwner_AndServesTheRest) {
  FixtureOptions fixture;
  fixture.featureDim = 4096;
  SamplingCluster cluster(store(fixture, 3), 3, bulk());
  const auto& book = cluster.store().book();
  const Call both{.gids = {book.begin(0, 1), book.begin(0, 2)}, .features = {{"x"}}};
  const Pulled first = pullNow(cluster, both);
  EXPECT_TRUE(first.status.ok()) << first.status;
  cluster.machine(2).agent->close(absl::CancelledError("gone"));
  absl::Status lost;  // until then its memory is read without it
  EXPECT_TRUE(eventually([&] { return !(lost = pullNow(cluster, both).status).ok(); }));
  ASSERT_TRUE(peerOf(lost).has_value()) << lost;
  EXPECT_EQ(peerOf(lost)->machine, 2);
  const Pulled rest = pullNow(cluster, {.gids = {book.begin(0, 1)}, .features = {{"x"}}});
  EXPECT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_GT(cluster.machine(0).bulk->traffic().reads, 0u);
}

TEST_P(BulkReadFault, LeavesWhatTheJobMakesToItsOwner) {
  SamplingCluster cluster(wideStore(), 2, bulk());
  const partition::FeatureSpec spec{"made", DType::kFloat32, {4096}};
  std::vector<std::vector<float>> made;
  for (int m = 0; m < 2; ++m) {
    sampler::JobFeatures& features = cluster.machine(m).graph->jobFeatures();
    const auto index = features.add(0, spec);
    ASSERT_TRUE(index.ok());
    made.emplace_back(cluster.store().book().count(0, m) * 4096, static_cast<float>(m + 5));
    std::vector<const std::byte*> tables(2, nullptr);
    tables[static_cast<size_t>(m)] = reinterpret_cast<const std::byte*>(made.back().data());
    features.publish(*index, tables, nullptr);
  }
  const Pulled pulled = pullNow(cluster, {.gids = {cluster.store().book().begin(0, 1)}, .features = {{"made"}, {"x"}}});
  ASSERT_TRUE(pulled.status.ok()) << pulled.status;
  float first = 0;
  std::memcpy(&first, pulled.rows[0].data(), sizeof(first));
  EXPECT_EQ(first, 6.0F);
  EXPECT_EQ(cluster.machine(0).bulk->traffic().reads, 0u);
}

TEST_P(BulkPullFault, RefusesRequestsThatDoNotFit) {
  SamplingCluster cluster(wideStore(), 2, bulk());
  const sampler::PartitionedGraph& graph = *cluster.machine(1).graph;
  sampler::BulkPullRequest good;
  good.rows = {.nodeType = 0, .features = {0}, .runs = {{1, 2}}, .rows = {0, 1}};
  const size_t rowBytes = sampler::featureSpec(graph, 0, 0).rowBytes();
  good.targets = {{.key = 1, .address = 0, .bytes = 2 * rowBytes}};
  const auto decode = [&](const sampler::BulkPullRequest& request) {
    const rpc::OutArray array = sampler::encodeBulkPull(request);
    std::vector<rpc::Bytes> arrays;
    arrays.push_back(rpc::Bytes::allocate(array.bytes));
    std::memcpy(arrays[0].data(), array.data, array.bytes);
    return sampler::decodeBulkPull(arrays, graph).status();
  };
  EXPECT_TRUE(decode(good).ok()) << decode(good);
  sampler::BulkPullRequest bad = good;
  bad.targets[0].bytes -= 1;
  EXPECT_FALSE(decode(bad).ok());
  bad = good;
  bad.targets[0].offset = 1;
  EXPECT_FALSE(decode(bad).ok());
  bad = good;
  bad.targets[0].offset = UINT64_MAX;
  EXPECT_FALSE(decode(bad).ok());
  bad = good;
  bad.targets[0].scattered = 1;
  EXPECT_FALSE(decode(bad).ok());
  bad.slots = {1, 0};
  EXPECT_TRUE(decode(bad).ok());
  bad.slots = {0, 2};
  EXPECT_FALSE(decode(bad).ok());
  bad = good;
  bad.rows.rows[1] = 1'000'000;
  EXPECT_FALSE(decode(bad).ok());
  bad = good;
  bad.slot = 1 << 16;
  EXPECT_FALSE(decode(bad).ok());
  bad = good;
  bad.rows.runs[0].partition = 0;
  EXPECT_FALSE(decode(bad).ok());
}

using sampler::BulkReads;

INSTANTIATE_TEST_SUITE_P(Over, BulkPullFault, ::testing::Values(Way{"InProcess", nullptr}, Way{"Tcp", "tcp"}), nameOf);

INSTANTIATE_TEST_SUITE_P(Over, BulkPull,
                         ::testing::Values(Way{"InProcess", nullptr}, Way{"Tcp", "tcp"},
                                           Way{"InProcessReads", nullptr, BulkReads::kAlways},
                                           Way{"TcpReads", "tcp", BulkReads::kAlways}),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(Over, BulkReadFault,
                         ::testing::Values(Way{"InProcess", nullptr, BulkReads::kAlways}, Way{"Tcp", "tcp", BulkReads::kAlways}),
                         nameOf);

// See MoveBytesThroughSharedMemory_WhenAsked.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
class BulkPullSharedMemory : public BulkPull {};

TEST_P(BulkPullSharedMemory, BringsTheSameBytes) {
  FixtureOptions fixture;
  fixture.featureDim = 1024;
  const std::string path = store(fixture, 2);
  SamplingCluster plain(path, 2, rpc::TransportKind::kInProcess), fast(path, 2, bulk());
  for (bool mayLand : {true, false}) {
    expectSame(fast, plain, {.gids = randomGids(fast, 0, 3000, 7), .features = {{"x"}, {"label"}}, .mayLand = mayLand}, "shm");
  }
  expectUsed(fast.machine(0), fast.machine(1));
}

INSTANTIATE_TEST_SUITE_P(Over, BulkPullSharedMemory,
                         ::testing::Values(Way{"Writes", "shm"}, Way{"Reads", "shm", BulkReads::kAlways}), nameOf);
#endif

}  // namespace
}  // namespace farhop::testing
