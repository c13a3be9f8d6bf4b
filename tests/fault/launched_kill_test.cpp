// Processes of `farhop run` that die before any other has been in touch with them: the launcher alone sees that, and
// every other process is to end within five seconds with an error that names the dead one. And launchers that die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "base/status.h"
#include "tests/multiproc/farhop_process.h"

namespace farhop::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kMostAfterDeath{5'000};

struct Death {
  const char* name;
  int rank;
  const char* stage;  // "exec": before the trainer itself is executed
  const char* how;
};

class LaunchedKill : public ::testing::TestWithParam<Death> {
 protected:
  static Words command(const Death& death) {
    Words argv{FARHOP_PROGRAM, "run", "--machines", "2", "--procs", "2", "--"};
    if (std::string(death.stage) == "exec") {
      const Words shell{"/bin/sh", "-c",
                        absl::StrCat("[ $RANK = ", death.rank, " ] && { echo dying at exec; kill -", death.how,
                                     " $$; }; exec ", FATAL_TRAINER, " -1 none 0")};
      argv.insert(argv.end(), shell.begin(), shell.end());
    } else {
      const Words trainer{FATAL_TRAINER, std::to_string(death.rank), death.stage, death.how};
      argv.insert(argv.end(), trainer.begin(), trainer.end());
    }
    return argv;
  }
};

TEST_P(LaunchedKill, BeforeAnybodyHasMetIt_EndsTheOthersByName) {
  const Death& death = GetParam();
  FarhopProcess farhop(command(death));
  ASSERT_TRUE(farhop.awaitOut(absl::StrCat("dying at ", death.stage))) << farhop.err();
  const auto begin = Clock::now();
  EXPECT_GT(farhop.wait(20), 0);
  EXPECT_LT(Clock::now() - begin, kMostAfterDeath);
  const std::string name = absl::StrCat("machine ", death.rank / 2, " process ", death.rank % 2);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == death.rank) continue;
    EXPECT_THAT(farhop.linesOf(rank / 2, rank % 2),
                ElementsAre(AllOf(StartsWith(absl::StrCat("ended: ", name, " (")), HasSubstr("UNAVAILABLE"))))
        << "rank " << rank << "\n" << farhop.err();
  }
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

struct KilledJob {
  const char* name;
  int machines, procs;
  bool ready;  // or the last process never comes, and the others wait for it
};

class KilledLauncher : public ::testing::TestWithParam<KilledJob> {};

// What a process of the job has started itself does not end with the launcher as the process does: a trainer under a
// script has to notice.
TEST_P(KilledLauncher, LeavesNothingBehind_WhenItsTrainersRunUnderAScript) {
  const auto [name, machines, procs, ready] = GetParam();
  const int world = machines * procs;
  const std::string late = ready ? "" : absl::StrCat("[ $RANK = ", world - 1, " ] && exec sleep 60; ");
  FarhopProcess farhop({FARHOP_PROGRAM, "run", "--machines", std::to_string(machines), "--procs", std::to_string(procs),
                        "--", "/bin/sh", "-c", absl::StrCat(late, "echo begun; ", FATAL_TRAINER, " 0 main stay; exit $?")});
  for (int rank = 0; rank < (ready ? world : world - 1); ++rank) {
    const std::string last = ready ? "staying" : "begun";
    ASSERT_TRUE(eventually([&] {
      const Words lines = farhop.linesOf(rank / procs, rank % procs);
      return !lines.empty() && lines.back() == last;
    })) << "rank " << rank << "\n" << farhop.err();
  }
  const std::string jobId = farhop.jobId();
  // Of each rank the script and its trainer, and the machines' agents with their watchers.
  const size_t running = static_cast<size_t>(2 * world - (ready ? 0 : 1) + 2 * machines);
  ASSERT_TRUE(eventually([&] { return processesOf(jobId).size() == running; }));
  ASSERT_EQ(::kill(farhop.pid(), SIGKILL), 0);
  EXPECT_EQ(farhop.wait(5), 128 + SIGKILL);
  EXPECT_TRUE(isGone(jobId, 5)) << processesOf(jobId).size() << " processes are left";
}

INSTANTIATE_TEST_SUITE_P(Cases, KilledLauncher,
                         ::testing::Values(KilledJob{"WhenReady", 2, 2, true}, KilledJob{"InAStart", 2, 2, false},
                                           KilledJob{"OfASingleProcess", 1, 1, true}),
                         [](const auto& instance) { return std::string(instance.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Cases, LaunchedKill,
    ::testing::Values(Death{"MasterBeforeItsProgram", 0, "exec", "KILL"}, Death{"ClientBeforeItsProgram", 3, "exec", "KILL"},
                      Death{"Hub0BeforeItsStart", 0, "main", "9"}, Death{"Client1BeforeItsStart", 1, "main", "9"},
                      Death{"Hub2BeforeItsStart", 2, "main", "9"}, Death{"Client3BeforeItsStart", 3, "main", "9"},
                      Death{"MasterBeforeItListens", 0, "channel/open", "9"},
                      Death{"HubBeforeItsMachineHasMetAnybody", 2, "channel/open", "9"},
                      Death{"ClientAtItsHello", 3, "channel/hello", "9"}, Death{"MasterListening", 0, "group/store", "9"},
                      Death{"ByItsOwnError", 2, "main", "exit:3"}, Death{"WithoutAnError", 1, "main", "exit:0"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace farhop::testing
