// farhop run: how jobs end, and that nothing is left of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "base/file.h"
#include "tests/multiproc/farhop_process.h"

namespace farhop::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

// What a launcher and its trainers take longer when they are checked while they run.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr milliseconds kSlack{2'500};
#else
constexpr milliseconds kSlack{0};
#endif

TEST(FarhopRunEnd, IsTheFailingProcesssExitCode) {
  FarhopProcess farhop(farhopRun(
      kFour, shell("[ $RANK = 2 ] || exec sleep 60; for i in $(seq 30); do echo line $i; done; exit 42")));
  EXPECT_EQ(farhop.wait(), 42);
  EXPECT_THAT(farhop.err(), HasSubstr("farhop: machine 1 process 0 failed: exit code 42\n"));
  EXPECT_THAT(farhop.err(), HasSubstr("its last 20 lines:\n    line 11\n"));
  EXPECT_THAT(farhop.err(), HasSubstr("    line 30\n"));
  EXPECT_THAT(farhop.err(), Not(HasSubstr("    line 10\n")));
  EXPECT_THAT(farhop.err(), HasSubstr("/m1-p0.log\n"));
  EXPECT_TRUE(isGone(farhop.jobId()));
}

TEST(FarhopRunEnd, NamesTheSignalThatKilledAProcess) {
  FarhopProcess farhop(farhopRun(kFour, shell("[ $RANK = 1 ] && kill -SEGV $$; exec sleep 60")));
  EXPECT_EQ(farhop.wait(), 128 + SIGSEGV);
  EXPECT_THAT(farhop.err(), HasSubstr("machine 0 process 1 failed: signal 11 (SIGSEGV)"));
  EXPECT_THAT(farhop.err(), HasSubstr("it wrote nothing"));
}

TEST(FarhopRunEnd, IsZero_WhenProcessesEndAtDifferentTimes) {
  FarhopProcess farhop(farhopRun(kFour, shell("sleep 0.$RANK; echo done")));
  EXPECT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(farhop.linesOf(1, 1), ::testing::ElementsAre("done"));
}

TEST(FarhopRunEnd, LetsTheOthersReportTheirOwnErrors) {
  FarhopProcess farhop(farhopRun(
      kFour,
      shell(
          "[ $RANK = 0 ] && { sleep 0.2; exit 9; }; sleep 0.8; echo lost machine 0 process 0 >&2; exit 1")));
  const auto begin = Clock::now();
  EXPECT_EQ(farhop.wait(), 9);
  EXPECT_LT(Clock::now() - begin, milliseconds(2000) + kSlack);  // all ended by themselves, so nobody waits longer
  EXPECT_THAT(farhop.err(), HasSubstr("[m1 p1] lost machine 0 process 0"));
  EXPECT_THAT(farhop.err(), HasSubstr("machine 1 process 1 ended after that: exit code 1"));
}

TEST(FarhopRunEnd, EndsTheRestWithinFiveSeconds_EvenThoseThatIgnoreSigterm) {
  TemporaryDirectory directory;
  FarhopProcess farhop(farhopRun(kFour, shell("if [ $RANK = 3 ]; then while [ ! -e " + (directory / "go") +
                                              " ]; do sleep 0.05; done; exit 6; fi\n"
                                              "exec " TEST_TRAINER " stubborn")));
  ASSERT_TRUE(eventually([&] {
    return !farhop.linesOf(0, 0).empty() && !farhop.linesOf(0, 1).empty() && !farhop.linesOf(1, 0).empty();
  }));
  const auto begin = Clock::now();
  std::ofstream(directory / "go") << "";
  EXPECT_EQ(farhop.wait(), 6);
  EXPECT_LT(Clock::now() - begin, milliseconds(5500) + kSlack);
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

TEST(FarhopRunEnd, ForwardsSigterm) {
  FarhopProcess farhop(
      farhopRun(kFour, shell("trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.05; done")));
  ASSERT_TRUE(eventually([&] { return !farhop.linesOf(1, 1).empty() && !farhop.linesOf(0, 0).empty(); }));
  ::kill(farhop.pid(), SIGTERM);
  EXPECT_EQ(farhop.wait(), 143);
  EXPECT_THAT(farhop.linesOf(1, 1), ::testing::ElementsAre("ready", "got TERM"));
  EXPECT_THAT(farhop.err(), HasSubstr("received SIGTERM"));
  EXPECT_TRUE(isGone(farhop.jobId()));
}

TEST(FarhopRunEnd, IsNoFailure_WhenTrainersStopBecauseTheyAreAskedTo) {
  for (const int signal : {SIGUSR1, SIGTERM}) {
    FarhopProcess farhop(farhopRun(four({"--max-restarts", "3"}),
                                   shell("trap 'exit 75' USR1 TERM; echo ready; while :; do sleep 0.05; done")));
    ASSERT_TRUE(eventually([&] {
      return !farhop.linesOf(0, 0).empty() && !farhop.linesOf(0, 1).empty() && !farhop.linesOf(1, 0).empty() &&
             !farhop.linesOf(1, 1).empty();
    }));
    ::kill(farhop.pid(), signal);
    EXPECT_EQ(farhop.wait(), 75);
    EXPECT_THAT(farhop.err(), Not(HasSubstr("failed")));
    EXPECT_THAT(farhop.err(), Not(HasSubstr("again (")));
    EXPECT_TRUE(isGone(farhop.jobId()));
  }
}

TEST(FarhopRunEnd, ForwardsCtrlCAsSigint_AndKillsAfterTheGrace) {
  FarhopProcess polite(
      farhopRun({}, shell("trap 'echo got INT; exit 3' INT; echo ready; while :; do sleep 0.05; done")));
  ASSERT_TRUE(polite.awaitOut("ready"));
  ::kill(polite.pid(), SIGINT);
  EXPECT_EQ(polite.wait(), 130);
  EXPECT_THAT(polite.out(), HasSubstr("got INT"));
  EXPECT_THAT(polite.err(), Not(HasSubstr("failed")));

  FarhopProcess stubborn(farhopRun(four({"--grace", "0.5"}), {TEST_TRAINER, "stubborn"}));
  ASSERT_TRUE(eventually([&] { return !stubborn.linesOf(1, 1).empty(); }));
  const auto begin = Clock::now();
  ::kill(stubborn.pid(), SIGINT);
  EXPECT_EQ(stubborn.wait(), 130);
  EXPECT_GE(Clock::now() - begin, milliseconds(400));
  EXPECT_LT(Clock::now() - begin, milliseconds(3000) + kSlack);
  EXPECT_TRUE(isGone(stubborn.jobId(), 1));
}

TEST(FarhopRunEnd, SkipsTheGrace_WhenCtrlCComesTwice) {
  FarhopProcess farhop(farhopRun(four({"--grace", "60"}), {TEST_TRAINER, "stubborn"}));
  ASSERT_TRUE(eventually([&] { return !farhop.linesOf(1, 1).empty(); }));
  ::kill(farhop.pid(), SIGINT);
  ASSERT_TRUE(farhop.awaitErr("again to kill"));
  EXPECT_EQ(farhop.wait(0), -1);
  ::kill(farhop.pid(), SIGINT);
  EXPECT_EQ(farhop.wait(5), 130);
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

TEST(FarhopRunEnd, TakesTheTrainersAlong_WhenTheLauncherIsKilled) {
  FarhopProcess farhop(farhopRun(kFour, {TEST_TRAINER, "stubborn"}));
  ASSERT_TRUE(
      eventually([&] { return processesOf(farhop.jobId()).size() == 8 && !farhop.linesOf(1, 1).empty(); }));
  const std::string jobId = farhop.jobId();
  ::kill(farhop.pid(), SIGKILL);
  EXPECT_EQ(farhop.wait(), 137);
  EXPECT_TRUE(isGone(jobId));
}

TEST(FarhopRunEnd, ComesAtTheTimeLimit) {
  FarhopProcess farhop(farhopRun(four({"--timeout", "0.5", "--grace", "0.3"}), {TEST_TRAINER, "stubborn"}));
  EXPECT_EQ(farhop.wait(10), 124);
  EXPECT_THAT(farhop.err(), HasSubstr("time limit of 0.5 s"));
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

TEST(FarhopRunEnd, DoesNotWaitForABackgroundChildThatHoldsTheOutput) {
  FarhopProcess farhop(farhopRun(kFour, shell("sleep 60 & echo started; exit 0")));
  const auto begin = Clock::now();
  EXPECT_EQ(farhop.wait(10), 0);
  EXPECT_LT(Clock::now() - begin, milliseconds(4000) + kSlack);
  EXPECT_THAT(farhop.linesOf(0, 0), ::testing::ElementsAre("started"));
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

TEST(FarhopRunEnd, EndsDaemonsOfTrainersToo) {
  // Daemons with children of their own, which reach the launcher only once their parents are dead.
  FarhopProcess farhop(
      farhopRun({}, shell("for i in 1 2 3 4 5 6 7 8; do\n"
                          "setsid sh -c 'trap \"\" TERM HUP; sh -c \"sleep 60 & wait\" & wait' &\n"
                          "done; sleep 0.5; exit 4")));
  EXPECT_EQ(farhop.wait(10), 4);
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

TEST(FarhopRunEnd, LetsAHelperPassOnItsLastOutput) {
  TemporaryDirectory directory;
  FarhopProcess farhop(
      farhopRun({}, {"/bin/bash", "-c", "exec > >(sleep 0.1; cat); echo the last line; exit 0"}));
  EXPECT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(farhop.linesOf(0, 0), ::testing::ElementsAre("the last line"));
}

TEST(FarhopRunEnd, IgnoresWhatItWasToldToIgnore) {
  // As under nohup.
  FarhopProcess farhop({"/bin/sh", "-c",
                        "trap '' HUP; exec " FARHOP_PROGRAM
                        " run -- /bin/sh -c 'echo ready; sleep 1; echo done'"});
  ASSERT_TRUE(farhop.awaitOut("ready"));
  ::kill(farhop.pid(), SIGHUP);
  EXPECT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(farhop.out(), HasSubstr("done"));
}

TEST(FarhopRunEnd, LeavesNoZombiesOfDaemonsWhileItRuns) {
  FarhopProcess farhop(farhopRun({}, shell("for i in 1 2 3 4 5; do (true &) ; done; echo ready; sleep 2.5")));
  ASSERT_TRUE(farhop.awaitOut("ready"));
  const auto childrenOf = [](int pid) {
    const std::string text = std::to_string(pid);
    std::ifstream file("/proc/" + text + "/task/" + text + "/children");
    std::vector<int> children;
    for (int child = 0; file >> child;) children.push_back(child);
    return children;
  };
  const std::vector<int> agents = childrenOf(farhop.pid());
  ASSERT_EQ(agents.size(), 1u);
  EXPECT_TRUE(eventually([&] { return childrenOf(agents[0]).size() == 2; }, 3));  // its watcher and the trainer
  EXPECT_EQ(farhop.wait(), 0);
}

}  // namespace
}  // namespace farhop::testing
