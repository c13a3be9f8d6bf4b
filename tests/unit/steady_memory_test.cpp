// A sampler that has seen its batches once allocates nothing for the next ones.
#include <gtest/gtest.h>

#include <cstddef>

#include "sampler/link_sampler.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

// Sanitizers have allocators of their own, and coroutine frames are not kept there.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FARHOP_COUNTS_ALLOCATIONS 1
#else
#define FARHOP_COUNTS_ALLOCATIONS 0
#endif

namespace {
thread_local bool counting = false;
thread_local size_t allocations = 0;
}  // namespace

#if FARHOP_COUNTS_ALLOCATIONS
// The program's own come before the C library's; operator new and std::realloc end here.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t bytes) {
  allocations += counting ? 1 : 0;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  allocations += counting ? 1 : 0;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  allocations += counting ? 1 : 0;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  allocations += counting ? 1 : 0;
  return __libc_memalign(alignment, bytes);
}
}
#endif

namespace farhop::testing {
namespace {

using sampler::DrawKind;

class SteadyMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FARHOP_COUNTS_ALLOCATIONS) GTEST_SKIP() << "allocations cannot be counted in this build";
    FixtureOptions fixture;
    fixture.nodes = 2000;
    fixture.edges = 40'000;
    fixture.edgeTimes = true;
    writeFixtureStore(fixture, 2, directory_ / "store");
    cluster_ = std::make_unique<SamplingCluster>(directory_ / "store", 1, rpc::TransportKind::kInProcess);
  }

  // Allocations of a pass over ten batches after passes that had the same ones. `exclude`: seeds draw no edge from
  // another; `link`: seeds are edges.
  size_t count(sampler::SamplingOptions options, bool exclude = false, const sampler::LinkSampler* link = nullptr) {
    options.fanouts = {{15}, {10}, {5}};
    const auto& graph = cluster_->machine(0).graph;
    Executor idle("idle", 1);
    sampler::BatchSampler sampler(graph, nullptr, &idle, options);
    sampler::BatchWorkspace workspace(*graph);
    sampler::BatchPool pool(2);
    const auto pass = [&] {
      size_t counted = 0;
      for (uint64_t batch = 0; batch < 10; ++batch) {
        sampler::BatchRequest request;
        request.number = batch;
        for (uint64_t i = 0; i < 64; ++i) request.seeds.push_back((batch * 64 + i) * 3 % 2000);
        if (options.temporal && link == nullptr) request.treeTimes.assign(64, 100);
        for (size_t i = 0; exclude && i + 1 < 64; ++i) request.excluded.push_back({0, request.seeds[i], request.seeds[i + 1]});
        using Result = absl::StatusOr<std::unique_ptr<sampler::SampledBatch>>;
        std::optional<Result> result;
        allocations = 0;
        counting = true;
        startTask<Result>(link == nullptr ? sampler.sample(std::move(request), &workspace, pool.take())
                                          : link->sample(&sampler, std::move(request), &workspace, pool.take()),
                          [&](Result made) { result.emplace(std::move(made)); });
        if (result && result->ok()) pool.giveBack(*std::move(*result));
        counting = false;
        counted += allocations;
        EXPECT_TRUE(result && result->ok());
      }
      return counted;
    };
    EXPECT_GT(pass(), 0u);  // what counts does count
    pass();
    return pass();
  }

  TemporaryDirectory directory_;
  std::unique_ptr<SamplingCluster> cluster_;
};

TEST_F(SteadyMemory, IsEnough_ForUniformBatches) {
  sampler::SamplingOptions options;
  EXPECT_EQ(count(options), 0u);
  options.edgeIds = true;
  EXPECT_EQ(count(options), 0u);
  options.expand = sampler::Expand::kAll;
  EXPECT_EQ(count(options), 0u);
}

TEST_F(SteadyMemory, IsEnough_ForOtherKinds) {
  for (DrawKind kind : {DrawKind::kUniformWithReplacement, DrawKind::kMostRecent, DrawKind::kLabor, DrawKind::kLaborPoisson}) {
    sampler::SamplingOptions options;
    options.kinds = {{kind}};
    EXPECT_EQ(count(options), 0u) << static_cast<int>(kind);
    options.disjoint = options.temporal = true;
    EXPECT_EQ(count(options), 0u) << static_cast<int>(kind);
  }
}

TEST_F(SteadyMemory, IsEnough_WhereEdgesAreExcluded) {
  EXPECT_EQ(count({}, true), 0u);
}

TEST_F(SteadyMemory, IsEnough_ForInducedSubgraphs) {
  sampler::SamplingOptions options;
  options.subgraph = sampler::Subgraph::kInduced;
  options.edgeIds = true;
  EXPECT_EQ(count(options), 0u);
  options.disjoint = options.temporal = true;
  EXPECT_EQ(count(options), 0u);
}

// But for strict negatives, whose questions are asked in rounds.
TEST_F(SteadyMemory, IsEnough_ForSeedEdges) {
  const auto& graph = cluster_->machine(0).graph;
  const auto seeds = sampler::linkSeedsOfRelation(graph, 0, sampler::Deal::kByOwner);
  ASSERT_TRUE(seeds.ok()) << seeds.status();
  sampler::LinkOptions link;
  link.negativesPerEdge = 2;
  link.excludeSeeds = true;
  link.reverseRelation = 0;
  const auto sampler = sampler::LinkSampler::make(graph, nullptr, seeds->pairs, link);
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  sampler::SamplingOptions options;
  EXPECT_EQ(count(options, false, sampler->get()), 0u);
  options.disjoint = options.temporal = true;
  EXPECT_EQ(count(options, false, sampler->get()), 0u);
}

TEST_F(SteadyMemory, IsEnough_ForWeightedKinds) {
  for (DrawKind kind : {DrawKind::kWeighted, DrawKind::kWeightedWithReplacement}) {
    sampler::SamplingOptions options;
    options.kinds = {{kind, 0}};
    EXPECT_EQ(count(options), 0u) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace farhop::testing
