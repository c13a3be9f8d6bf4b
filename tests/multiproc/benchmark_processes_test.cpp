#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "benchmarks/exchange_process.h"

namespace farhop::benchmarks {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTimeout{20'000};

// Nothing that was forked is left, not even unreaped.
void expectNoChildren() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(BenchmarkProcesses, MeetAndGiveTheirResultsInOrderOfRank) {
  const auto results = runProcesses(3, kTimeout, [](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    std::string all;
    for (int round = 0; round < 2; ++round) {
      FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> texts, channel.gather(absl::StrCat(rank, round)));
      for (const std::string& text : texts) absl::StrAppend(&all, text, " ");
    }
    return absl::StrCat(rank, ": ", all);
  });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(*results, (std::vector<std::string>{"0: 00 10 20 01 11 21 ", "1: 00 10 20 01 11 21 ", "2: 00 10 20 01 11 21 "}));
  expectNoChildren();
}

TEST(BenchmarkProcesses, EndAtOnce_WhenOneFailsWhileTheOthersWait) {
  const auto start = std::chrono::steady_clock::now();
  const auto results = runProcesses(3, kTimeout, [](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    if (rank == 1) return absl::NotFoundError("no graph");
    FARHOP_RETURN_IF_ERROR(channel.gather("").status());
    return "";
  });
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.status().message(), "process 1: no graph");
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout / 2);
  expectNoChildren();
}

TEST(BenchmarkProcesses, SayWhichOneDied) {
  const auto results = runProcesses(2, kTimeout, [](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    if (rank == 0) ::kill(::getpid(), SIGKILL);
    FARHOP_RETURN_IF_ERROR(channel.gather("").status());
    return "";
  });
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.status().message(), "process 0 ended by signal 9");
  expectNoChildren();
}

TEST(BenchmarkProcesses, AreEnded_WhenOneDoesNotGetOn) {
  const auto results = runProcesses(2, milliseconds(200), [](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    if (rank == 0) ::pause();
    FARHOP_RETURN_IF_ERROR(channel.gather("").status());
    return "";
  });
  ASSERT_FALSE(results.ok());
  expectNoChildren();
}

TEST(BenchmarkProcesses, AreEnded_WhenTheyDisagreeOnHowOftenTheyMeet) {
  const auto results = runProcesses(2, kTimeout, [](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    if (rank == 0) FARHOP_RETURN_IF_ERROR(channel.gather("").status());
    return "";
  });
  ASSERT_FALSE(results.ok());
  EXPECT_NE(results.status().message().find("disagree"), std::string::npos) << results.status();
  expectNoChildren();
}

}  // namespace
}  // namespace farhop::benchmarks
