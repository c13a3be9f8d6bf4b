// Node features that a job makes, below the public API: memory shared by processes, rows pulled from other machines.
#include "sampler/job_features.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "base/shared_memory.h"
#include "sampler/feature_service.h"
#include "sampler/seed_set.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using sampler::JobFeatures;

TEST(SharedMemory, IsTheSameInAnotherProcess) {
  auto memory = SharedMemory::create("test", 10'000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->data()[9'999], std::byte(0));
  const int parent = ::getpid();
  const int child = ::fork();
  if (child == 0) {
    auto opened = SharedMemory::open(parent, memory->file(), 10'000);
    if (!opened.ok()) ::_exit(1);
    opened->data()[9'999] = std::byte(7);
    // Neither another size nor another file is taken for it.
    ::_exit(SharedMemory::open(parent, memory->file(), 9'999).ok() || SharedMemory::open(parent, 0, 10'000).ok() ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory->data()[9'999], std::byte(7));
  memory->closeFile();
  EXPECT_EQ(memory->data()[9'999], std::byte(7));
}

TEST(SharedMemory, CanBeEmpty) {
  auto memory = SharedMemory::create("test", 0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(SharedMemory::open(::getpid(), memory->file(), 0).ok());
}

TEST(SharedMemory, SaysWhatIsWrong_WhenThereIsNone) {
  EXPECT_EQ(SharedMemory::open(::getpid(), 9'999, 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::create("test", size_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SharedMemory, CannotBeCutShort) {
  auto memory = SharedMemory::create("test", 100'000);
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(::ftruncate(memory->file(), 10), 0);
}

class JobFeaturesOfThreeMachines : public ::testing::Test {
 protected:
  JobFeaturesOfThreeMachines()
      : cluster_(writeFixtureStore({}, 5, directory_ / "store"), 3, rpc::TransportKind::kInProcess, 100) {}

  static std::shared_ptr<std::vector<float>> rowsOf(const sampler::PartitionedGraph& graph, int partition, uint64_t columns) {
    auto rows = std::make_shared<std::vector<float>>();
    for (uint64_t id : graph.shard(partition)->originalIds(0)) {
      for (uint64_t c = 0; c < columns; ++c) rows->push_back(-static_cast<float>(id) - static_cast<float>(c) / 8);
    }
    return rows;
  }

  // Adds "h" on all machines and publishes it on those before `machines`. Returns the index.
  uint32_t make(int machines = 3) {
    uint32_t index = 0;
    for (int m = 0; m < 3; ++m) {
      const sampler::PartitionedGraph& graph = *cluster_.machine(m).graph;
      index = *graph.jobFeatures().add(0, {"h", DType::kFloat32, {2}});
      if (m >= machines) continue;
      auto rows = std::make_shared<std::vector<std::shared_ptr<std::vector<float>>>>();
      std::vector<const std::byte*> tables(5, nullptr);
      for (int k : graph.ownPartitions()) {
        rows->push_back(rowsOf(graph, k, 2));
        tables[static_cast<size_t>(k)] = reinterpret_cast<const std::byte*>(rows->back()->data());
      }
      graph.jobFeatures().publish(index, std::move(tables), rows);
    }
    return index;
  }
  void drop(int machine, uint32_t index) {
    JobFeatures& features = cluster_.machine(machine).graph->jobFeatures();
    features.retire(index);
    EXPECT_EQ(features.retired(), std::vector<uint32_t>{index});
    features.release({index, 5, index + 100});
    EXPECT_TRUE(features.retired().empty());
  }

  absl::Status pull(uint32_t index, std::vector<float>* rows) {
    std::vector<uint64_t> gids(60);
    for (uint64_t gid = 0; gid < 60; ++gid) gids[gid] = gid;
    rows->assign(120, 1);
    sampler::PullRequest request;
    request.gids = gids;
    request.targets = {{index, reinterpret_cast<std::byte*>(rows->data())}};
    request.deadline = Deadline::after(std::chrono::seconds(20));
    std::promise<absl::Status> done;
    cluster_.machine(0).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

  TemporaryDirectory directory_;
  SamplingCluster cluster_;
};

TEST_F(JobFeaturesOfThreeMachines, ArePulledLikeStoredOnes) {
  const uint32_t index = make();
  const sampler::PartitionedGraph& graph = *cluster_.machine(0).graph;
  EXPECT_EQ(*sampler::featureIndex(graph, 0, "h"), index);
  EXPECT_EQ(sampler::featureSpec(graph, 0, index).rowBytes(), 8u);
  EXPECT_EQ(graph.jobFeatures().names(0), std::vector<std::string>{"h"});
  std::vector<float> rows;
  ASSERT_TRUE(pull(index, &rows).ok());
  for (uint64_t gid = 0; gid < 60; ++gid) {
    const float id = static_cast<float>(cluster_.originalId(0, gid));
    ASSERT_EQ(rows[gid * 2], -id);
    ASSERT_EQ(rows[gid * 2 + 1], -id - 0.125F);
  }
}

TEST_F(JobFeaturesOfThreeMachines, AreNotFound_BeforeTheyAreThereAndAfterwards) {
  const uint32_t index = make(2);  // machine 2 has not finished
  const sampler::PartitionedGraph& graph = *cluster_.machine(0).graph;
  std::vector<float> rows;
  const absl::Status unfinished = pull(index, &rows);
  EXPECT_EQ(unfinished.code(), absl::StatusCode::kFailedPrecondition) << unfinished;
  EXPECT_NE(unfinished.message().find("not finished"), std::string::npos) << unfinished;
  EXPECT_NE(unfinished.message().find("machine 2"), std::string::npos) << unfinished;
  EXPECT_EQ(sampler::featureIndex(*cluster_.machine(2).graph, 0, "h").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(graph.jobFeatures().add(0, {"h", DType::kInt64, {}}).status().code(), absl::StatusCode::kAlreadyExists);
  drop(1, index);
  const absl::Status gone = pull(index, &rows);
  EXPECT_EQ(gone.code(), absl::StatusCode::kFailedPrecondition) << gone;
  drop(0, index);
  EXPECT_EQ(sampler::featureIndex(graph, 0, "h").status().code(), absl::StatusCode::kNotFound);
  // The refused one has used up an index.
  EXPECT_EQ(*graph.jobFeatures().add(0, {"h", DType::kInt64, {}}), JobFeatures::kFirstIndex + 2);
}

TEST_F(JobFeaturesOfThreeMachines, AreServedToOthers_WhileTheyAreRetired) {
  const uint32_t index = make();
  for (int m : {1, 2}) cluster_.machine(m).graph->jobFeatures().retire(index);
  EXPECT_TRUE(cluster_.machine(1).graph->jobFeatures().names(0).empty());
  std::vector<float> rows;
  EXPECT_TRUE(pull(index, &rows).ok());
  // The name is free, and what it means is the new one's.
  const auto next = cluster_.machine(1).graph->jobFeatures().add(0, {"h", DType::kInt64, {}});
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next, index + 1);
}

TEST_F(JobFeaturesOfThreeMachines, CanGoWhileTheyArePulled) {
  for (int round = 0; round < 20; ++round) {
    const uint32_t index = make();
    std::thread dropper([&] {
      for (int m = 2; m >= 0; --m) drop(m, index);
    });
    std::vector<float> rows;
    const absl::Status status = pull(index, &rows);
    dropper.join();
    EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
  }
}

TEST_F(JobFeaturesOfThreeMachines, SeedsCanBeAllNodes_ByOwnerAndGlobally) {
  std::vector<uint64_t> byOwner;
  for (int m = 0; m < 3; ++m) {
    const auto own = sampler::seedSetOfNodes(*cluster_.machine(m).graph, 0, sampler::Deal::kByOwner);
    ASSERT_TRUE(own.ok());
    EXPECT_EQ(own->perMachine.size(), 3u);
    EXPECT_EQ(own->perMachine[static_cast<size_t>(m)], own->own.size());
    std::vector<uint64_t> ids;
    for (uint64_t gid : own->own) ids.push_back(cluster_.originalId(0, gid));
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    byOwner.insert(byOwner.end(), ids.begin(), ids.end());
  }
  std::sort(byOwner.begin(), byOwner.end());
  const auto all = sampler::seedSetOfNodes(*cluster_.machine(1).graph, 0, sampler::Deal::kGlobal);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->all.size(), 60u);
  for (uint64_t id = 0; id < 60; ++id) {
    EXPECT_EQ(cluster_.originalId(0, all->all[id]), id);
    EXPECT_EQ(byOwner[id], id);
  }
}

}  // namespace
}  // namespace farhop::testing
