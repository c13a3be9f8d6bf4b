// What the benchmarks measure with: pinned threads, memory, counters, and a baseline that does the sampler's
// work.
#include <gtest/gtest.h>
#include <sched.h>

#include <vector>

#include "benchmarks/machine.h"
#include "benchmarks/memory_limits.h"
#include "benchmarks/pinned_worker.h"
#include "benchmarks/rmat_graph.h"
#include "benchmarks/sampler_cases.h"
#include "tests/temporary_directory.h"

namespace farhop::benchmarks {
namespace {

TEST(PinnedWorker, RunsOnItsCoreAlone) {
  const std::vector<int> cores = usableCores();
  ASSERT_FALSE(cores.empty());
  for (int core : cores) {
    const auto worker = PinnedWorker::start(core);
    ASSERT_TRUE(worker.ok()) << worker.status();
    int cpu = -1;
    (*worker)->run([&] { cpu = ::sched_getcpu(); });
    EXPECT_EQ(cpu, core);
  }
  // The calling thread keeps all of its cores.
  EXPECT_EQ(usableCores(), cores);
}

TEST(PinnedWorker, RefusesACpuThatDoesNotExist) {
  EXPECT_TRUE(absl::IsInvalidArgument(PinnedWorker::start(CPU_SETSIZE - 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PinnedWorker::start(-1).status()));
}

TEST(RandomReads, ReadTheSameLinesWhateverTheWindow) {
  std::vector<std::byte> array(1 << 16);
  for (size_t i = 0; i < array.size(); ++i) array[i] = static_cast<std::byte>(i * 7 % 251);
  const ReadRate one = randomReads(array, 10'000, 1);
  EXPECT_EQ(randomReads(array, 10'000, 64).checksum, one.checksum);
  EXPECT_NE(randomReads(array, 10'001, 64).checksum, one.checksum);
  EXPECT_GT(one.readsPerSecond, 0);
}

TEST(TouchedMemory, TakesNoFaultsAfterwards) {
  TouchedMemory memory(size_t{8} << 20, TouchedMemory::Pages::kSmall);
  ASSERT_FALSE(memory.empty());
  const ThreadUsage before = ThreadUsage::now();
  touchPages(memory.bytes());
  EXPECT_LT((ThreadUsage::now() - before).minorFaults, 16U);
}

class BaselineTest : public ::testing::TestWithParam<int> {};

TEST_P(BaselineTest, SamplesWhatTheSamplerSamples) {
  const testing::TemporaryDirectory directory;
  RmatOptions options;
  options.nodesLog2 = 10;
  options.edges = 30'000;
  options.parts = GetParam();
  options.cacheDirectory = directory.path();
  auto store = openRmatGraph(options, [](const std::string&) {});
  ASSERT_TRUE(store.ok()) << store.status();
  const auto graph = sampler::PartitionedGraph::open(*store, 0, 1);
  ASSERT_TRUE(graph.ok()) << graph.status();
  Executor executor("idle", 1);
  // Few, many, none, more than the small draw's scan is for, all.
  for (const std::vector<std::vector<int64_t>>& fanouts : std::vector<std::vector<std::vector<int64_t>>>{
           {{15}, {10}, {5}}, {{3}, {0}, {4}}, {{100}, {60}}, {{-1}, {2}}}) {
    sampler::SamplingOptions sampling;
    sampling.fanouts = fanouts;
    sampling.seed = 5;
    const auto ours = makeBatchSampler(*graph, sampling, &executor),
               baseline = makeUnorderedMapSampler(*graph, sampling);
    const auto plan = BatchPlan::make(**graph, 1, 64, 4);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (uint64_t batch = 0; batch < plan->batches(); ++batch) {
      const BatchResult a = ours->make(plan->request(batch)), b = baseline->make(plan->request(batch));
      ASSERT_TRUE(a.ok() && b.ok());
      EXPECT_EQ((*a)->nodes, (*b)->nodes);
      EXPECT_EQ((*a)->nodesByHop, (*b)->nodesByHop);
      EXPECT_EQ((*a)->seedIndex, (*b)->seedIndex);
      EXPECT_EQ((*a)->relations[0].indptr, (*b)->relations[0].indptr);
      EXPECT_EQ((*a)->relations[0].indices, (*b)->relations[0].indices);
      EXPECT_EQ((*a)->traffic.sampledEdges, (*b)->traffic.sampledEdges);
    }
    EXPECT_EQ(*checksumPass(*ours, **graph, *plan, {0, 4}), *checksumPass(*baseline, **graph, *plan, {0, 4}));
    EXPECT_NE(*checksumPass(*ours, **graph, *plan, {0, 4}), *checksumPass(*ours, **graph, *plan, {0, 3}));
  }
}

INSTANTIATE_TEST_SUITE_P(Partitions, BaselineTest, ::testing::Values(1, 3),
                         ::testing::PrintToStringParamName());

TEST(BatchPlan, DealsEveryNodeAtMostOnce) {
  const testing::TemporaryDirectory directory;
  RmatOptions options;
  options.nodesLog2 = 8;
  options.edges = 1000;
  options.cacheDirectory = directory.path();
  const auto graph =
      sampler::PartitionedGraph::open(*openRmatGraph(options, [](const std::string&) {}), 0, 1);
  ASSERT_TRUE(graph.ok());
  const auto plan = BatchPlan::make(**graph, 1, 32, 8);
  ASSERT_TRUE(plan.ok());
  std::vector<int> dealt(256);
  for (uint64_t batch = 0; batch < 8; ++batch) {
    for (uint64_t seed : plan->request(batch).seeds) ++dealt[seed];
  }
  EXPECT_EQ(dealt, std::vector<int>(256, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(BatchPlan::make(**graph, 1, 32, 9).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(BatchPlan::make(**graph, 1, 0, 9).status()));
}

}  // namespace
}  // namespace farhop::benchmarks
