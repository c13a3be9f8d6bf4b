#include "runtime/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

namespace farhop::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BindingPlan plan(const Topology& topology, int procs, int proc) {
  absl::StatusOr<BindingPlan> result = planBinding(topology, procs, proc);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(BindingPlan{});
}

Topology synthetic(const std::string& description, const std::vector<int>& allowed = {}) {
  absl::StatusOr<Topology> topology = Topology::synthetic(description, allowed);
  EXPECT_TRUE(topology.ok()) << topology.status();
  return *std::move(topology);
}

TEST(PlanBinding, DealsWholeCoresWithTheirSiblings_NodeByNode) {
  const Topology topology = synthetic("numa:2 core:4 pu:2");
  EXPECT_THAT(plan(topology, 4, 0).processors, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan(topology, 4, 1).processors, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(plan(topology, 4, 2).processors, ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(plan(topology, 4, 3).processors, ElementsAre(12, 13, 14, 15));
  EXPECT_EQ(plan(topology, 4, 3).cores, 2);
  EXPECT_EQ(plan(topology, 4, 3).computeThreads, 2);
  EXPECT_EQ(plan(topology, 4, 3).samplerThreads, 2);
  EXPECT_FALSE(plan(topology, 4, 3).shared);
}

TEST(PlanBinding, KeepsSiblingsTogether_WhenTheyAreNumberedApart) {
  // Logical processors as many servers number them: first one of each core on node 0, then of each on node 1,
  // then the second ones.
  const Topology topology = synthetic("numa:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  EXPECT_THAT(plan(topology, 2, 0).processors, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(plan(topology, 2, 1).processors, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(plan(topology, 4, 3).processors, ElementsAre(3, 7));
}

TEST(PlanBinding, KeepsToANode_WhenNodesAreNumberedRoundRobin) {
  const Topology topology = synthetic("numa:2 core:2 pu:1(indexes=0,2,1,3)");
  EXPECT_THAT(plan(topology, 2, 0).processors, ElementsAre(0, 2));
  EXPECT_THAT(plan(topology, 2, 1).processors, ElementsAre(1, 3));
}

TEST(PlanBinding, UsesOnlyWhatIsAllowed) {
  // Core 1 has lost a sibling, core 3 is gone altogether.
  const Topology topology = synthetic("core:4 pu:2", {0, 1, 2, 4, 5});
  EXPECT_EQ(plan(topology, 1, 0).allowedCores, 3);
  EXPECT_THAT(plan(topology, 3, 0).processors, ElementsAre(0, 1));
  EXPECT_THAT(plan(topology, 3, 1).processors, ElementsAre(2));
  EXPECT_THAT(plan(topology, 3, 2).processors, ElementsAre(4, 5));
}

TEST(PlanBinding, GivesSharesThatDifferByOneCoreAtMost) {
  const Topology topology = synthetic("numa:1 core:7 pu:1");
  std::set<int> seen;
  for (int proc = 0; proc < 3; ++proc) {
    const BindingPlan share = plan(topology, 3, proc);
    EXPECT_EQ(share.cores, proc == 0 ? 3 : 2);
    for (int processor : share.processors) EXPECT_TRUE(seen.insert(processor).second) << processor;
  }
  EXPECT_EQ(seen.size(), 7u);
}

TEST(PlanBinding, SharesCores_WhenThereAreMoreProcessesThanCores) {
  const Topology topology = synthetic("core:2 pu:1");
  for (int proc = 0; proc < 5; ++proc) {
    const BindingPlan share = plan(topology, 5, proc);
    EXPECT_TRUE(share.shared);
    EXPECT_EQ(share.cores, 1);
    EXPECT_EQ(share.computeThreads, 1);
    EXPECT_EQ(share.samplerThreads, 1);
  }
  EXPECT_THAT(plan(topology, 5, 0).processors, ElementsAre(0));
  EXPECT_THAT(plan(topology, 5, 4).processors, ElementsAre(1));
}

TEST(PlanBinding, RefusesAProcessOutOfRange) {
  const Topology topology = synthetic("core:2 pu:1");
  EXPECT_TRUE(absl::IsInvalidArgument(planBinding(topology, 2, 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(planBinding(topology, 0, 0).status()));
}

TEST(PlanBinding, DescribesItselfInRanges) {
  EXPECT_EQ(plan(synthetic("core:4 pu:2(indexes=0,8,1,9,2,10,3,11)"), 1, 0).text(), "4 cores: 0-3,8-11");
  EXPECT_THAT(plan(synthetic("core:1 pu:1"), 2, 1).text(), HasSubstr("shared"));
}

TEST(ApplyBinding, BindsThreadsThatRunAndThreadsToCome) {
  absl::StatusOr<Topology> topology = Topology::ofThisMachine();
  ASSERT_TRUE(topology.ok()) << topology.status();
  const BindingPlan whole = plan(*topology, 1, 0);
  const BindingPlan first = plan(*topology, whole.allowedCores, 0);

  std::mutex mutex;
  std::unique_lock hold(mutex);
  cpu_set_t before;
  std::thread running([&] {
    std::lock_guard wait(mutex);
    sched_getaffinity(0, sizeof(before), &before);
  });
  ASSERT_TRUE(applyBinding(first).ok());
  hold.unlock();
  running.join();
  cpu_set_t later;
  std::thread([&] { sched_getaffinity(0, sizeof(later), &later); }).join();
  EXPECT_EQ(CPU_COUNT(&before), static_cast<int>(first.processors.size()));
  EXPECT_TRUE(CPU_EQUAL(&before, &later));
  EXPECT_TRUE(applyBinding(whole).ok());
}

}  // namespace
}  // namespace farhop::runtime
