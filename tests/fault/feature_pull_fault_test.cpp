#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <numeric>

#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using std::chrono::milliseconds;

class FeaturePull : public ::testing::Test {
 protected:
  void SetUp() override { writeFixtureStore({}, 3, directory_ / "store"); }

  absl::Status pullAll(SamplingCluster& cluster, Deadline deadline, std::vector<float>* rows) {
    std::vector<uint64_t> gids(60);
    std::iota(gids.begin(), gids.end(), 0);
    rows->assign(60 * 4, -1);
    sampler::PullRequest request;
    request.gids = gids;
    request.targets = {{*sampler::featureIndex(*cluster.machine(0).graph, 0, "x"), reinterpret_cast<std::byte*>(rows->data())}};
    request.deadline = deadline;
    std::promise<absl::Status> done;
    cluster.machine(0).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

  TemporaryDirectory directory_;
};

TEST_F(FeaturePull, BringsEveryRowToItsPlace_WhateverTheChunk) {
  for (size_t chunkBytes : {1, 16, 100, 1 << 20}) {
    SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess, chunkBytes);
    std::vector<float> rows;
    const absl::Status status = pullAll(cluster, Deadline::after(milliseconds(20'000)), &rows);
    ASSERT_TRUE(status.ok()) << status;
    for (uint64_t gid = 0; gid < 60; ++gid) {
      for (uint64_t c = 0; c < 4; ++c) ASSERT_EQ(rows[gid * 4 + c], fixtureFeature(0, cluster.originalId(0, gid), c));
    }
  }
}

TEST_F(FeaturePull, PullsOriginalIdsLikeAFeature) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess);
  const std::vector<uint64_t> gids = {59, 0, 30, 30};
  const auto bytes = cluster.pull(2, 0, sampler::kOriginalIdName, gids);
  std::vector<int64_t> ids(4);
  ASSERT_EQ(bytes.size(), ids.size() * sizeof(int64_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(static_cast<uint64_t>(ids[i]), cluster.originalId(0, gids[i]));
}

TEST_F(FeaturePull, NamesTheLostOwner_AndServesTheRest) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess);
  cluster.machine(2).agent->close(absl::CancelledError("gone"));
  std::vector<float> rows;
  const absl::Status status = pullAll(cluster, Deadline::after(milliseconds(20'000)), &rows);
  ASSERT_FALSE(status.ok());
  ASSERT_TRUE(peerOf(status).has_value()) << status;
  EXPECT_EQ(peerOf(status)->machine, 2);
  const auto& book = cluster.store().book();
  const auto bytes = cluster.pull(0, 0, "x", std::vector<uint64_t>{book.begin(0, 0), book.begin(0, 1)});
  EXPECT_EQ(bytes.size(), 2 * 4 * sizeof(float));
}

// Answers feature requests with zeros, but for those after the first `answered`: they are kept.
class SilentOwner {
 public:
  SilentOwner(rpc::Agent* agent, int answered) {
    state_->left = answered;
    agent->handle(sampler::kFeatureMethod, [state = state_](rpc::Request request, rpc::Responder responder) {
      std::lock_guard lock(state->mutex);
      if (state->left-- > 0) {
        rpc::Bytes rows = rpc::Bytes::allocate(request.arrays[3].size() / sizeof(uint32_t) * 4 * sizeof(float));
        std::memset(rows.data(), 0, rows.size());
        std::vector<rpc::OutArray> reply;
        reply.push_back(rpc::OutArray::fromBytes(std::move(rows)));
        responder.reply(std::move(reply));
      } else if (!state->over) {
        state->kept.push_back(std::move(responder));
        state->silent.notify_all();
      }
    });
  }
  ~SilentOwner() {
    std::vector<rpc::Responder> kept;  // they answer when they go, after the lock
    std::lock_guard lock(state_->mutex);
    state_->over = true;
    kept.swap(state_->kept);
  }
  bool waitUntilSilent() {
    std::unique_lock lock(state_->mutex);
    return state_->silent.wait_for(lock, std::chrono::seconds(20), [this] { return !state_->kept.empty(); });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable silent;
    int left = 0;  // guarded by mutex, as are the others
    bool over = false;
    std::vector<rpc::Responder> kept;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST_F(FeaturePull, NamesTheOwnerThatDiesInTheMiddle_WhileOtherPullsGoOn) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kUv, 16);
  SilentOwner owner(cluster.machine(2).agent.get(), 3);
  std::vector<float> rows;
  auto failing = std::async(std::launch::async, [&] { return pullAll(cluster, Deadline::after(milliseconds(20'000)), &rows); });
  ASSERT_TRUE(owner.waitUntilSilent());
  // Rows of the others come while that one is stuck, and after it has died.
  const auto& book = cluster.store().book();
  const std::vector<uint64_t> others = {book.begin(0, 0), book.begin(0, 1)};
  EXPECT_EQ(cluster.pull(0, 0, "x", others).size(), 2 * 4 * sizeof(float));
  const auto diedAt = Clock::now();
  cluster.machine(2).agent->close(absl::CancelledError("gone"));
  const absl::Status status = failing.get();
  EXPECT_LT(Clock::now() - diedAt, std::chrono::seconds(5));
  ASSERT_TRUE(peerOf(status).has_value()) << status;
  EXPECT_EQ(peerOf(status)->machine, 2);
  EXPECT_EQ(cluster.pull(0, 0, "x", others).size(), 2 * 4 * sizeof(float));
}

TEST_F(FeaturePull, EndsAtItsDeadline_WhenAnOwnerIsSilent_NamingIt) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess, 16);
  SilentOwner owner(cluster.machine(1).agent.get(), 2);
  std::vector<float> rows;
  const auto begin = Clock::now();
  const absl::Status status = pullAll(cluster, Deadline::after(milliseconds(300)), &rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(status.message().find("machine 1"), absl::string_view::npos) << status;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(FeaturePull, IsAnError_WhenAnOwnerRunsOutOfMemory) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess);
  cluster.machine(1).agent->handle(sampler::kFeatureMethod, [](rpc::Request, rpc::Responder) { throw std::bad_alloc(); });
  std::vector<float> rows;
  const absl::Status status = pullAll(cluster, Deadline::after(milliseconds(20'000)), &rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(std::string(status.message()).find("machine 1"), std::string::npos) << status;
}

// An agent in whose place a call runs out of memory, each time that `left` counts down to 0.
class ShortOfMemory : public rpc::Agent {
 public:
  ShortOfMemory(rpc::Agent* agent, int callsBefore) : agent_(agent), left_(callsBefore) {}
  void handle(uint16_t method, rpc::Handler handler) override { agent_->handle(method, std::move(handler)); }
  void onPeerLost(PeerLost callback) override { agent_->onPeerLost(std::move(callback)); }
  std::string address() const override { return agent_->address(); }
  absl::Status connect(const std::vector<std::string>& addresses, Deadline deadline) override {
    return agent_->connect(addresses, deadline);
  }
  void call(int peer, uint16_t method, std::vector<rpc::OutArray> arrays, Deadline deadline,
            std::shared_ptr<rpc::ReplySink> sink, Completion completion) override {
    if (left_.fetch_sub(1) == 0) throw std::bad_alloc();
    agent_->call(peer, method, std::move(arrays), deadline, std::move(sink), std::move(completion));
  }
  absl::Status farewell(Deadline deadline) override { return agent_->farewell(deadline); }
  void close(absl::Status reason) override { agent_->close(std::move(reason)); }
  rpc::PeerTraffic traffic() const override { return agent_->traffic(); }

 private:
  rpc::Agent* const agent_;
  std::atomic<int> left_;
};

absl::Status sampleOne(const TestMachine& machine, rpc::Agent* agent, const sampler::SamplingOptions& options) {
  using Result = absl::StatusOr<std::unique_ptr<sampler::SampledBatch>>;
  Executor executor("test", 1);
  sampler::BatchSampler sampler(machine.graph, agent, &executor, options);
  sampler::BatchWorkspace workspace(*machine.graph);
  sampler::BatchRequest request;
  for (uint64_t gid = 0; gid < 60; gid += 5) request.seeds.push_back(gid);
  std::promise<absl::Status> done;
  executor.post([&] {
    startTask<Result>(sampler.sample(std::move(request), &workspace), [&](Result result) { done.set_value(result.status()); });
  });
  std::future<absl::Status> status = done.get_future();
  if (status.wait_for(std::chrono::seconds(30)) == std::future_status::ready) return status.get();
  // The batch would go on in memory that is no more.
  ADD_FAILURE() << "the batch does not end";
  std::_Exit(1);
}

// Whichever call of a batch it is, the first or the second of a hop: the batch ends with what went wrong, and after what
// was sent has been answered.
TEST_F(FeaturePull, LeavesBatchesToEndWithAnError_WhenAMessageCannotBeMade) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess);
  const TestMachine& machine = cluster.machine(0);
  sampler::SamplingOptions hops, walks, induced;
  hops.fanouts = {{3}, {3}};
  walks.walks = sampler::WalkOptions{};
  walks.walks->plan.metapath = {{0}};
  walks.walks->plan.length = 4;
  induced.subgraph = sampler::Subgraph::kInduced;
  for (const auto& options : {hops, walks, induced}) {
    for (int callsBefore = 0; callsBefore < 8; ++callsBefore) {
      ShortOfMemory agent(machine.agent.get(), callsBefore);
      const absl::Status status = sampleOne(machine, &agent, options);
      if (callsBefore < 2) {
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      } else {
        EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
      }
    }
    EXPECT_TRUE(sampleOne(machine, machine.agent.get(), options).ok());
  }
}

TEST_F(FeaturePull, GoesOnServing_WhenWhatFollowsAPullThrows) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess);
  const uint64_t remote = cluster.store().book().begin(0, 1);
  std::vector<float> row(4);
  sampler::PullRequest request;
  request.gids = std::span(&remote, 1);
  request.targets = {{*sampler::featureIndex(*cluster.machine(0).graph, 0, "x"), reinterpret_cast<std::byte*>(row.data())}};
  request.deadline = Deadline::after(milliseconds(20'000));
  std::promise<void> done;
  cluster.machine(0).puller->pull(std::move(request), [&](const absl::Status&) {
    done.set_value();
    throw std::bad_alloc();
  });
  done.get_future().get();
  EXPECT_TRUE(pullAll(cluster, Deadline::after(milliseconds(20'000)), &row).ok());
}

TEST_F(FeaturePull, EndsAtItsDeadline) {
  SamplingCluster cluster(directory_ / "store", 3, rpc::TransportKind::kInProcess);
  std::vector<float> rows;
  const absl::Status status = pullAll(cluster, Deadline::after(milliseconds(0)), &rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_F(FeaturePull, ListsWhatExists_WhenTheNameIsUnknown) {
  SamplingCluster cluster(directory_ / "store", 1, rpc::TransportKind::kInProcess);
  const auto index = sampler::featureIndex(*cluster.machine(0).graph, 0, "y");
  ASSERT_FALSE(index.ok());
  EXPECT_NE(index.status().message().find("'x'"), std::string::npos);
  EXPECT_NE(index.status().message().find("'original_id'"), std::string::npos);
}

}  // namespace
}  // namespace farhop::testing
