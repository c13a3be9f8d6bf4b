// A process is killed at a named point of its start or its end; every other one is to end within five seconds,
// naming it, and nothing is to be left behind.
//
// These processes have no launcher. One that dies before it has said hello to its machine's local channel is then known
// to nobody, and so is one of machine 0 that dies before anybody has reached its store; launched_kill_test.cpp kills
// those.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "runtime/session.h"
#include "tests/process_group.h"
#include "tests/session_job.h"

namespace farhop::runtime {
namespace {

using std::chrono::milliseconds;
using test::ChildResult;
using test::describeFailure;
using test::ProcessGroup;
using test::quickOptions;
using test::SessionJob;

constexpr milliseconds kPatience{20'000};
constexpr milliseconds kMostAfterKill{5'000};
Deadline soon() { return Deadline::after(milliseconds(20'000)); }

// Whether all others know the victim's address in its group (from its agent or socket there, or announced on its
// machine), or some only the process's number.
enum class Address { kKnown, kNotYet };

struct Case {
  const char* name;
  int victim;
  const char* stage;
  // Who must have come how far before the kill, so that the others' state does not depend on luck.
  std::vector<std::pair<int, const char*>> before;
  Address address;
  // What some of the others name instead, where they cannot know better.
  const char* otherwise = nullptr;
};

// Ranks of 2 machines with 2 processes: 0 and 1 on machine 0, 2 and 3 on machine 1; groups {0, 2} and {1, 3}.
std::vector<Case> startCases() {
  return {
      // The hub of a machine, and master of group 0, before it has looked at anybody. Process 1 ends with it, having
      // met nobody whom it could tell why; machine 1 sees both masters' ports refuse, and names the one it saw first.
      {"HubOfMachine0", 0, "channel/open", {{1, "channel/hello"}}, Address::kNotYet, "machine 0 process 1"},
      {"ClientAtHello", 3, "channel/hello", {{2, "group/met"}, {0, "group/met"}, {1, "group/met"}}, Address::kNotYet},
      {"MasterBeforeItsStore", 0, "group/store", {{2, "store/connected"}, {1, "group/met"}, {3, "group/met"}}, Address::kNotYet},
      {"MasterOfGroup1BeforeItsStore", 1, "group/store", {{3, "store/connected"}, {0, "group/met"}, {2, "group/met"}},
       Address::kNotYet},
      {"MemberThatHasMet", 2, "group/met", {{0, "group/listening"}, {1, "group/met"}, {3, "group/met"}}, Address::kNotYet},
      {"MemberAtTheGate", 3, "gate/passed", {{0, "group/connected"}, {1, "group/listening"}, {2, "group/connected"}},
       Address::kNotYet},
      {"MasterListening", 0, "group/listening", {{2, "group/listening"}, {1, "group/met"}, {3, "group/met"}}, Address::kNotYet},
      {"MemberListening", 2, "group/listening", {{0, "group/listening"}, {1, "group/met"}, {3, "group/met"}}, Address::kNotYet},
      // TensorPipe's handshake: the dialling side before its hello, the dialled one before its answer.
      {"MemberDialling", 2, "agent/dial", {{0, "group/listening"}, {1, "group/met"}, {3, "group/met"}}, Address::kNotYet},
      {"MasterAnswering", 0, "agent/welcome", {{2, "agent/dial"}, {1, "group/met"}, {3, "group/met"}}, Address::kNotYet},
      {"MemberOfGroup1Dialling", 3, "agent/dial", {{1, "group/listening"}}, Address::kNotYet},
      // Gloo's mesh of the group.
      {"MemberConnected", 2, "group/connected", {{0, "group/connected"}, {1, "group/met"}, {3, "group/met"}}, Address::kKnown},
      {"MemberMeshListening", 2, "mesh/listening", {{0, "mesh/listening"}, {1, "group/met"}, {3, "group/met"}}, Address::kKnown},
      {"MasterMeshListening", 0, "mesh/listening", {{2, "mesh/listening"}, {1, "group/met"}, {3, "group/met"}}, Address::kKnown},
      {"MemberMeshConnecting", 2, "mesh/connecting", {{0, "mesh/connecting"}, {1, "group/met"}, {3, "group/met"}}, Address::kKnown},
      {"MasterMeshConnecting", 0, "mesh/connecting", {{2, "mesh/connecting"}, {1, "group/met"}, {3, "group/met"}}, Address::kKnown},
      {"MemberMeshIdentify", 2, "mesh/identify", {{0, "mesh/identify"}, {1, "group/met"}, {3, "group/met"}}, Address::kKnown},
      // Gloo's mesh of the machine.
      {"HubMachineMesh", 0, "machine/connecting", {{1, "machine/listening"}, {3, "machine/listening"}}, Address::kKnown},
      {"ClientMachineMesh", 3, "machine/identify", {{2, "machine/connecting"}}, Address::kKnown},
  };
}

class StageKill : public ::testing::TestWithParam<Case> {
 protected:
  // Kills, and checks how the others end. `survivorsMayBeDone`: a farewell in full is a good end.
  static void killAndCheck(SessionJob& job, ProcessGroup& group, const Case& c, const std::vector<int>& mayBeDone = {}) {
    ASSERT_TRUE(group.awaitLine(c.victim, absl::StrCat("at ", c.stage), kPatience));
    for (const auto& [rank, stage] : c.before) ASSERT_TRUE(group.awaitLine(rank, absl::StrCat("at ", stage), kPatience)) << rank;
    group.kill(c.victim, SIGKILL);
    const auto begin = Clock::now();
    const std::vector<ChildResult> results = group.wait(milliseconds(10'000));
    EXPECT_LT(Clock::now() - begin, kMostAfterKill);
    const std::string name = absl::StrCat("machine ", job.machineOf(c.victim), " process ", job.procOf(c.victim));
    for (int rank = 0; rank < job.worldSize(); ++rank) {
      if (rank == c.victim) continue;
      const ChildResult& result = results[static_cast<size_t>(rank)];
      EXPECT_FALSE(result.timedOut) << "rank " << rank;
      EXPECT_EQ(result.signal, 0) << "rank " << rank;
      const bool done = std::count(mayBeDone.begin(), mayBeDone.end(), rank) > 0 && result.text == "OK";
      if (done) continue;
      if (c.otherwise != nullptr && job.machineOf(rank) != job.machineOf(c.victim) &&
          result.text.rfind(c.otherwise, 0) == 0) {
        continue;
      }
      EXPECT_THAT(result.text, ::testing::StartsWith(absl::StrCat(name, c.address == Address::kKnown ? " (127.0.0.1:" : " (")))
          << "rank " << rank;
    }
    EXPECT_EQ(job.leftovers(), "");
  }
};

TEST_P(StageKill, DuringTheStart_EndsTheOthersByName) {
  const Case& c = GetParam();
  SessionJob job(2, 2, "stage-start");
  ProcessGroup group(4, [&](int rank) -> std::string {
    job.reportStages(rank == c.victim ? c.stage : "");
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    return describeFailure((*session)->leave(soon()));
  });
  job.releasePorts();
  killAndCheck(job, group, c);
}

INSTANTIATE_TEST_SUITE_P(Cases, StageKill, ::testing::ValuesIn(startCases()),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Its machine's other process knows; but no process of that machine has been in touch with another machine yet.
TEST(StageKillOfAHub, BeforeItsMachineHasMetAnybody_IsKnownOnItsMachineAlone) {
  SessionJob job(2, 2, "stage-hub");
  ProcessGroup group(4, [&](int rank) -> std::string {
    job.reportStages(rank == 2 ? "channel/open" : "");
    SessionOptions options = quickOptions();
    options.startTimeout = milliseconds(3'000);
    return describeFailure(Session::start(job.contract(rank), options).status());
  });
  job.releasePorts();
  ASSERT_TRUE(group.awaitLine(2, "at channel/open", kPatience));
  ASSERT_TRUE(group.awaitLine(3, "at channel/hello", kPatience));
  group.kill(2, SIGKILL);
  const std::vector<ChildResult> results = group.wait(milliseconds(10'000));
  EXPECT_THAT(results[3].text, ::testing::MatchesRegex("machine 1 process 0 \\(pid [0-9]+ on .*\\) \\| UNAVAILABLE.*"));
  for (size_t rank : {0, 1}) EXPECT_THAT(results[rank].text, ::testing::HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_EQ(job.leftovers(), "");
}

// Only process 3 knows of the death, and it has one of its two connections to its store: the store has to hear of it
// from there, not to take this process, which ends soon, for the dead one.
TEST(StageKillOfAHub, IsToldByAProcessThatHasHalfMetItsStore) {
  SessionJob job(2, 2, "stage-half");
  ProcessGroup group(4, [&](int rank) -> std::string {
    job.reportStages(rank == 2 ? "group/store" : rank == 3 ? "watch/connecting" : "");
    return describeFailure(Session::start(job.contract(rank), quickOptions()).status());
  });
  job.releasePorts();
  ASSERT_TRUE(group.awaitLine(2, "at group/store", kPatience));
  ASSERT_TRUE(group.awaitLine(3, "at watch/connecting", kPatience));
  ASSERT_TRUE(group.awaitLine(1, "at group/met", kPatience));
  group.kill(2, SIGKILL);
  const std::vector<ChildResult> results = group.wait(milliseconds(10'000));
  for (size_t rank : {0, 1, 3}) EXPECT_THAT(results[rank].text, ::testing::StartsWith("machine 1 process 0 (")) << rank;
  EXPECT_EQ(job.leftovers(), "");
}

// A master that dies between a member's two connections to its store: what answered once is not waited for until the
// start's deadline, neither by a member to whom somebody tells the death nor by one that is alone.
TEST(StageKillOfAMaster, BetweenTheTwoConnectionsToItsStore_EndsTheMember) {
  for (const int procs : {1, 2}) {
    SCOPED_TRACE(procs);
    SessionJob job(2, procs, "stage-watch");
    const int member = procs;  // machine 1 process 0
    ProcessGroup group(2 * procs, [&](int rank) -> std::string {
      job.reportStages(rank == 0 ? "group/met" : rank == member ? "watch/connecting" : "");
      return describeFailure(Session::start(job.contract(rank), quickOptions()).status());
    });
    job.releasePorts();
    ASSERT_TRUE(group.awaitLine(member, "at watch/connecting", kPatience));
    ASSERT_TRUE(group.awaitLine(0, "at group/met", kPatience));
    if (procs == 2) {
      for (int rank : {1, 3}) ASSERT_TRUE(group.awaitLine(rank, "at group/met", kPatience)) << rank;
    }
    group.kill(0, SIGKILL);
    const auto begin = Clock::now();
    std::this_thread::sleep_for(milliseconds(20));  // its port refuses by then
    job.release();
    const std::vector<ChildResult> results = group.wait(milliseconds(10'000));
    EXPECT_LT(Clock::now() - begin, kMostAfterKill);
    for (size_t rank = 1; rank < results.size(); ++rank) {
      EXPECT_THAT(results[rank].text, ::testing::StartsWith("machine 0 process 0")) << rank;
    }
    EXPECT_EQ(job.leftovers(), "");
  }
}

// A process that is in the middle of meeting its store when its machine loses another one tells the store's others
// whom, before its own connections end.
TEST(StageKillOfAClient, WhileItsHubIsMeeting_IsNotTakenForTheHubs) {
  // Half connected, and connected but not yet able to tell.
  for (const std::string stage : {"watch/connecting", "group/watching"}) {
    SCOPED_TRACE(stage);
    SessionJob job(2, 2, "stage-half");
    ProcessGroup group(4, [&](int rank) -> std::string {
      job.reportStages(rank == 2 ? stage : rank == 3 ? "channel/hello" : "");
      return describeFailure(Session::start(job.contract(rank), quickOptions()).status());
    });
    job.releasePorts();
    ASSERT_TRUE(group.awaitLine(2, "at " + stage, kPatience));
    ASSERT_TRUE(group.awaitLine(3, "at channel/hello", kPatience));
    ASSERT_TRUE(group.awaitLine(0, "at group/met", kPatience));
    ASSERT_TRUE(group.awaitLine(1, "at group/met", kPatience));
    group.kill(3, SIGKILL);
    const auto begin = Clock::now();
    std::this_thread::sleep_for(milliseconds(100));  // rank 2 knows
    job.release();
    const std::vector<ChildResult> results = group.wait(milliseconds(10'000));
    EXPECT_LT(Clock::now() - begin, kMostAfterKill);
    for (size_t rank : {0, 1, 2}) EXPECT_THAT(results[rank].text, ::testing::StartsWith("machine 1 process 1 (")) << rank;
    EXPECT_EQ(job.leftovers(), "");
  }
}

// A master that hangs is no peer that died: but nobody waits for it who has to end for another's death.
TEST(StageKillOfAClient, WhileItsGroupsStoreDoesNotAnswer_EndsItsNeighbour) {
  SessionJob job(2, 2, "stage-stopped");
  ProcessGroup group(4, [&](int rank) -> std::string {
    job.reportStages(rank == 2 ? "group/listening" : "");
    return describeFailure(Session::start(job.contract(rank), quickOptions()).status());
  });
  job.releasePorts();
  ASSERT_TRUE(group.awaitLine(2, "at group/listening", kPatience));
  for (int rank : {0, 1, 3}) ASSERT_TRUE(group.awaitLine(rank, "at group/met", kPatience)) << rank;
  group.kill(0, SIGSTOP);
  job.release();
  std::this_thread::sleep_for(milliseconds(100));  // rank 2 waits for its store
  const auto begin = Clock::now();
  group.kill(3, SIGKILL);
  EXPECT_TRUE(group.awaitEnd(2, milliseconds(10'000)));
  EXPECT_LT(Clock::now() - begin, kMostAfterKill);
  group.kill(0, SIGKILL);
  EXPECT_THAT(group.wait(milliseconds(10'000))[2].text, ::testing::StartsWith("machine 1 process 1 ("));
  EXPECT_EQ(job.leftovers(), "");
}

class LeaveKill : public StageKill {};

TEST_P(LeaveKill, EndsTheOthersByName_UnlessTheyNeedItNoMore) {
  const Case& c = GetParam();
  SessionJob job(2, 2, "stage-leave");
  ProcessGroup group(4, [&](int rank) -> std::string {
    job.reportStages(rank == c.victim ? c.stage : "");
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    return describeFailure((*session)->leave(soon()));
  });
  job.releasePorts();
  std::vector<int> mayBeDone;
  const std::string stage = c.stage;
  // Its group has its farewell, and it has answered theirs by itself (TensorPipe's threads do): they may end well,
  // for nothing was missing. Its machine still waits for it.
  if (stage == "leave/said" || stage == "leave/group" || stage == "leave/machine") {
    const int neighbour = c.victim ^ 1;
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != c.victim && (rank != neighbour || stage == "leave/machine")) mayBeDone.push_back(rank);
    }
  }
  killAndCheck(job, group, c, mayBeDone);
}

std::vector<Case> leaveCases() {
  std::vector<Case> cases;
  static const char* const kNames[] = {"Barrier", "Said", "Group", "Machine"};
  static const char* const kStages[] = {"leave/barrier", "leave/said", "leave/group", "leave/machine"};
  static std::vector<std::string> names;
  names.reserve(16);
  for (int stage = 0; stage < 4; ++stage) {
    for (int victim : {0, 3}) {
      names.push_back(absl::StrCat(kNames[stage], "Rank", victim));
      cases.push_back({names.back().c_str(), victim, kStages[stage], {}, Address::kKnown});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, LeaveKill, ::testing::ValuesIn(leaveCases()),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace farhop::runtime
