// A process is killed; every other one is to end within five seconds, naming it.
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
using ::testing::HasSubstr;

constexpr milliseconds kPatience{30'000};
constexpr milliseconds kMostAfterKill{5'000};
Deadline soon() { return Deadline::after(milliseconds(20'000)); }

// Kills `victim` and checks what the others then return.
void killAndCheck(SessionJob& job, ProcessGroup& group, int victim, bool withAddress) {
  group.kill(victim, SIGKILL);
  const auto begin = Clock::now();
  const std::vector<ChildResult> results = group.wait(milliseconds(10'000));
  EXPECT_LT(Clock::now() - begin, kMostAfterKill) << "victim " << victim;
  const std::string name = absl::StrCat("machine ", job.machineOf(victim), " process ", job.procOf(victim));
  for (int rank = 0; rank < job.worldSize(); ++rank) {
    const ChildResult& result = results[static_cast<size_t>(rank)];
    if (rank == victim) continue;
    EXPECT_FALSE(result.timedOut) << "rank " << rank << " outlived victim " << victim;
    EXPECT_EQ(result.signal, 0);
    EXPECT_THAT(result.text, ::testing::StartsWith(absl::StrCat(name, withAddress ? " (127.0.0.1:" : "")))
        << "rank " << rank << ", victim " << victim;
  }
  EXPECT_EQ(job.leftovers(), "");
}

class AnyVictim : public ::testing::TestWithParam<int> {};

TEST_P(AnyVictim, KilledWhileRunning_EndsTheOthersByName) {
  SessionJob job(2, 2, "failure-running");
  ProcessGroup group(4, [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    std::vector<float> gradient(100'000, 1.0F);
    absl::Status status;
    for (int step = 0; status.ok(); ++step) {
      if (step == 2) ProcessGroup::signalLine("running");
      status = (*session)->collectives().allReduceSum(std::span<float>(gradient), soon());
    }
    return describeFailure((*session)->leave(soon()));
  });
  job.releasePorts();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(group.awaitLine(rank, "running", kPatience));
  killAndCheck(job, group, GetParam(), true);
}

TEST_P(AnyVictim, KilledWhileNobodyCommunicates_EndsTheOthersByName) {
  SessionJob job(2, 2, "failure-idle");
  ProcessGroup group(4, [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    ProcessGroup::signalLine("running");
    (void)(*session)->failure().waitFor(soon());
    return describeFailure((*session)->leave(soon()));
  });
  job.releasePorts();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(group.awaitLine(rank, "running", kPatience));
  killAndCheck(job, group, GetParam(), true);
}

TEST_P(AnyVictim, KilledWhileTheOthersLeave_EndsThemByName) {
  SessionJob job(2, 2, "failure-leaving");
  const int victim = GetParam();
  ProcessGroup group(4, [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    ProcessGroup::signalLine("leaving");
    // The victim still works while the others wait for its farewell.
    if (rank == victim) (void)(*session)->failure().waitFor(soon());
    return describeFailure((*session)->leave(soon()));
  });
  job.releasePorts();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(group.awaitLine(rank, "leaving", kPatience));
  std::this_thread::sleep_for(milliseconds(100));
  killAndCheck(job, group, victim, true);
}

// The second group is held back at its gate by a memory estimate that never fits, so that everyone is still
// starting: group 0 connected, one process of group 1 at the meeting point, the other at the gate.
TEST_P(AnyVictim, KilledDuringTheStart_EndsTheOthersByName) {
  SessionJob job(2, 2, "failure-start");
  ProcessGroup group(4, [&](int rank) -> std::string {
    SessionOptions options = quickOptions();
    if (rank == 3) options.memoryEstimateBytes = UINT64_MAX;
    job.reportStages("");
    return describeFailure(Session::start(job.contract(rank), options).status());
  });
  job.releasePorts();
  // Group 0 is connected, rank 1 waits for rank 3 to connect, rank 3 for memory.
  for (int rank : {0, 2}) ASSERT_TRUE(group.awaitLine(rank, "at group/connected", kPatience));
  ASSERT_TRUE(group.awaitLine(1, "at group/listening", kPatience));
  ASSERT_TRUE(group.awaitLine(3, "at group/met", kPatience));
  // Rank 3 has no address of its own yet; rank 2, on its machine, knows it by its number only.
  killAndCheck(job, group, GetParam(), GetParam() != 3);
}

INSTANTIATE_TEST_SUITE_P(Rank, AnyVictim, ::testing::Range(0, 4));

TEST(Failure, OfALeavingProcess_IsNoneForThoseThatHaveItsFarewell) {
  SessionJob job(2, 2, "failure-left");
  ProcessGroup group(4, [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    const absl::Status status = (*session)->leave(soon());
    if (rank == 3) ::raise(SIGKILL);
    return describeFailure(status);
  });
  job.releasePorts();
  const std::vector<ChildResult> results = group.wait(kPatience);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(results[rank].text, "OK");
}

}  // namespace
}  // namespace farhop::runtime
