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

class BulkPull : public ::testing::TestWithParam<bool> {
 protected:
  std::string store(const FixtureOptions& options, int parts = 3) {
    const std::string path = directory_ / absl::StrCat("store", stores_++);
    return writeFixtureStore(options, parts, path);
  }
  BulkCluster bulk() const {
    BulkCluster options;
    options.fabric = GetParam();
    return options;
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
    EXPECT_GT(fast.machine(0).bulk->traffic().arrivals, 0u);
    EXPECT_EQ(fast.machine(0).slots->open(), 0u);
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

INSTANTIATE_TEST_SUITE_P(Over, BulkPull, ::testing::Values(false, true),
                         [](const auto& one) { return one.param ? "Tcp" : "InProcess"; });

}  // namespace
}  // namespace farhop::testing
