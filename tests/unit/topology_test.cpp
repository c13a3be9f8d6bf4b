#include "runtime/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "tests/unit/recorded_topologies.h"

namespace farhop::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BindingChoice kNuma{BindTo::kNuma, false}, kSplit{BindTo::kCore, true}, kNumaSplit{BindTo::kNuma, true};

BindingPlan plan(const Topology& topology, int procs, int proc, const BindingChoice& choice = {}) {
  absl::StatusOr<BindingPlan> result = planBinding(topology, procs, proc, choice);
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
  ASSERT_TRUE(applyBinding(first.processors).ok());
  hold.unlock();
  running.join();
  cpu_set_t later;
  std::thread([&] { sched_getaffinity(0, sizeof(later), &later); }).join();
  EXPECT_EQ(CPU_COUNT(&before), static_cast<int>(first.processors.size()));
  EXPECT_TRUE(CPU_EQUAL(&before, &later));
  EXPECT_TRUE(applyBinding(whole.processors).ok());
}

// Two sockets with 16 hyper-threaded cores each, as one Slurm job sees them that was given cores 4-7 of socket 0 and
// 0-1 of socket 1. Logical processors go round robin over the sockets, siblings are 32 apart.
std::string twoSockets() {
  std::string indexes;
  for (int socket = 0; socket < 2; ++socket) {
    for (int core = 0; core < 16; ++core) {
      const int first = core * 2 + socket;
      absl::StrAppend(&indexes, indexes.empty() ? "" : ",", first, ",", first + 32);
    }
  }
  return absl::StrCat("package:2 numa:1 core:16 pu:2(indexes=", indexes, ")");
}

TEST(PlanBinding, KeepsWhatSlurmGaveTogether_OnTwoSockets) {
  const Topology topology = synthetic(twoSockets(), {8, 40, 10, 42, 12, 44, 14, 46, 1, 33, 3, 35});
  EXPECT_EQ(plan(topology, 3, 0).allowedCores, 6);
  EXPECT_THAT(plan(topology, 3, 0).processors, ElementsAre(8, 10, 40, 42));
  EXPECT_THAT(plan(topology, 3, 1).processors, ElementsAre(12, 14, 44, 46));
  EXPECT_THAT(plan(topology, 3, 2).processors, ElementsAre(1, 3, 33, 35));
  const std::vector<Core> cores = topology.cores();
  EXPECT_EQ(cores[3].package, 0);
  EXPECT_EQ(cores[4].package, 1);
  EXPECT_THAT(cores[4].processors, ElementsAre(1, 33));
}

TEST(PlanBinding, CountsACoreOnce_WhenSlurmGaveOnlyOneOfItsThreads) {
  const Topology topology = synthetic(twoSockets(), {8, 10, 12, 14});  // --hint=nomultithread
  EXPECT_THAT(plan(topology, 2, 1).processors, ElementsAre(12, 14));
  EXPECT_EQ(plan(topology, 2, 1).computeThreads, 2);
  EXPECT_EQ(plan(topology, 2, 1).samplerThreads, 1);
}

TEST(PlanBinding, DealsNodeByNode_WithoutHyperThreads) {
  const Topology topology = synthetic("package:2 numa:2 core:3 pu:1");
  for (int proc = 0; proc < 4; ++proc) {
    EXPECT_THAT(plan(topology, 4, proc).processors, ElementsAre(3 * proc, 3 * proc + 1, 3 * proc + 2));
  }
}

TEST(PlanBinding, GivesAProcessItsWholeNode_WhenBoundToNodes) {
  const Topology topology = synthetic("numa:2 core:4 pu:1");
  EXPECT_THAT(plan(topology, 4, 1, kNuma).processors, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan(topology, 4, 2, kNuma).processors, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(plan(topology, 4, 2, kNuma).computeThreads, 2);
  // Shares of 3, 3 and 2 cores: the second crosses the nodes, and goes where its middle is.
  EXPECT_THAT(plan(topology, 3, 1, kNuma).processors, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(plan(topology, 1, 0, kNuma).processors.size(), 8u);
}

TEST(PlanBinding, GivesAProcessSeveralNodes_WhenThereAreFewerProcesses) {
  const Topology topology = synthetic("numa:4 core:2 pu:1");
  EXPECT_THAT(plan(topology, 2, 0, kNuma).processors, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan(topology, 2, 1, kNuma).processors, ElementsAre(4, 5, 6, 7));
}

TEST(PlanBinding, SplitsTheCores_ForThreadsOfTheirOwn) {
  const BindingPlan share = plan(synthetic("core:12 pu:1"), 2, 1, kSplit);
  EXPECT_TRUE(share.split);
  EXPECT_THAT(share.computeProcessors, ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(share.serviceProcessors, ElementsAre(10, 11));
  EXPECT_EQ(share.computeThreads, 4);
  EXPECT_EQ(share.samplerThreads, 2);
  const BindingPlan node = plan(synthetic("numa:2 core:6 pu:1"), 4, 1, kNumaSplit);
  EXPECT_THAT(node.computeProcessors, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(node.serviceProcessors, ElementsAre(4, 5));
  EXPECT_EQ(node.computeThreads, 2);
}

TEST(PlanBinding, SplitsTheHyperThreadsOfASingleCore_AndLeavesASingleProcessorWhole) {
  const BindingPlan threads = plan(synthetic("core:2 pu:2"), 2, 1, kSplit);
  EXPECT_THAT(threads.computeProcessors, ElementsAre(2));
  EXPECT_THAT(threads.serviceProcessors, ElementsAre(3));
  const BindingPlan single = plan(synthetic("core:2 pu:1"), 2, 1, kSplit);
  EXPECT_FALSE(single.split);
  EXPECT_EQ(single.serviceProcessors, single.computeProcessors);
}

TEST(PlanBinding, GivesEveryProcessorOnce_OnAnyTopologyAndNumberOfProcesses) {
  for (const char* description : {"numa:2 core:8 pu:2", "package:2 numa:2 core:5 pu:1", "core:7 pu:4",
                                  "numa:4 core:2 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)"}) {
    const Topology topology = synthetic(description);
    const int cores = static_cast<int>(topology.cores().size());
    for (int procs = 1; procs <= cores; ++procs) {
      std::set<int> seen;
      for (int proc = 0; proc < procs; ++proc) {
        for (int processor : plan(topology, procs, proc).processors) {
          EXPECT_TRUE(seen.insert(processor).second) << description << ", " << procs << " processes: " << processor;
        }
      }
      EXPECT_EQ(seen.size(), plan(topology, 1, 0).processors.size()) << description << ", " << procs;
    }
  }
}

TEST(Topology, ReadsWhatAMachineRecorded) {
  const absl::StatusOr<Topology> topology = Topology::fromXml(test::kVirtualMachine);
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(plan(*topology, 2, 0).processors, ElementsAre(0));
  EXPECT_THAT(plan(*topology, 2, 1).processors, ElementsAre(1));
  EXPECT_TRUE(plan(*topology, 3, 0).shared);
}

TEST(Topology, KeepsTheSetThatWasAllowedInARecording) {
  std::string xml = test::kVirtualMachine;
  const std::string all = "allowed_cpuset=\"0x00000003\"";
  ASSERT_NE(xml.find(all), std::string::npos);
  xml.replace(xml.find(all), all.size(), "allowed_cpuset=\"0x00000002\"");  // as a cgroup of one processor shows
  const absl::StatusOr<Topology> topology = Topology::fromXml(xml);
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(plan(*topology, 1, 0).processors, ElementsAre(1));
}

TEST(Topology, SurvivesItsOwnRecording) {
  const Topology topology = synthetic(twoSockets(), {8, 40, 1, 33});
  const absl::StatusOr<std::string> xml = topology.xml();
  ASSERT_TRUE(xml.ok()) << xml.status();
  const absl::StatusOr<Topology> again = Topology::fromXml(*xml);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(plan(*again, 2, 1).processors, ElementsAre(1, 33));
}

TEST(Topology, RefusesWhatIsNoTopology) {
  EXPECT_TRUE(absl::IsInvalidArgument(Topology::fromXml("<html></html>").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Topology::synthetic("core:0").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Topology::synthetic("core:2 pu:1", {7}).status()));
}

TEST(Topology, OfThisMachineFollowsTaskset) {
  const absl::StatusOr<Topology> whole = Topology::ofThisMachine();
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::vector<Core> cores = whole->cores();
  ASSERT_TRUE(applyBinding(cores.back().processors).ok());
  const absl::StatusOr<Topology> part = Topology::ofThisMachine();
  ASSERT_TRUE(applyBinding(plan(*whole, 1, 0).processors).ok());
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->cores().size(), 1u);
  EXPECT_EQ(part->cores()[0].processors, cores.back().processors);
}

// A cgroup with one processor, made where this user may.
TEST(Topology, OfThisMachineFollowsItsCgroup) {
  const std::string group = absl::StrCat("/sys/fs/cgroup/cpuset/farhop-topology-test-", ::getpid());
  if (::mkdir(group.c_str(), 0755) != 0) GTEST_SKIP() << "no cgroup can be made here";
  const absl::StatusOr<Topology> whole = Topology::ofThisMachine();
  ASSERT_TRUE(whole.ok());
  const int last = whole->cores().back().processors.front();
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream(group + "/cpuset.mems") << 0;
    std::ofstream(group + "/cpuset.cpus") << last;
    std::ofstream(group + "/cgroup.procs") << ::getpid();
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) != 1) ::_exit(2);
    const absl::StatusOr<Topology> part = Topology::ofThisMachine();
    const bool right = part.ok() && part->cores().size() == 1 && part->cores()[0].processors == std::vector<int>{last};
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(::rmdir(group.c_str()), 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "the cgroup narrows nothing here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(BindingChoice, SaysWhatItUnderstands) {
  for (const char* text : {"none", "core", "numa", "core:split", "numa:split"}) {
    const absl::StatusOr<BindingChoice> choice = parseBindingChoice(text);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(formatBindingChoice(*choice), text);
  }
  for (const char* text : {"", "cores", "core:", "core:split:split", "none:split", "Core"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parseBindingChoice(text).status())) << text;
  }
}

TEST(ScopedThreadBinding, PlacesThreadsThatStartMeanwhile_AndPutsItsOwnBack) {
  const absl::StatusOr<Topology> topology = Topology::ofThisMachine();
  ASSERT_TRUE(topology.ok()) << topology.status();
  const std::vector<int> last = topology->cores().back().processors;
  cpu_set_t before, inside, after;
  sched_getaffinity(0, sizeof(before), &before);
  {
    const ScopedThreadBinding scope(last);
    std::thread([&] { sched_getaffinity(0, sizeof(inside), &inside); }).join();
  }
  sched_getaffinity(0, sizeof(after), &after);
  EXPECT_EQ(CPU_COUNT(&inside), static_cast<int>(last.size()));
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace farhop::runtime
