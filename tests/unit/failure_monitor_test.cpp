#include "runtime/failure_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "runtime/launcher_watch.h"
#include "runtime/step_watch.h"

namespace farhop::runtime {
namespace {

using std::chrono::milliseconds;

ProcessEnded newsOf(const PeerName& process, bool clean, const std::string& how) {
  ProcessEnded news;
  news.process = process;
  news.clean = clean;
  news.how = how;
  return news;
}

TEST(FailureMonitor, KeepsTheFirstFailureAndItsPeer) {
  FailureMonitor monitor;
  EXPECT_TRUE(monitor.status().ok());
  EXPECT_FALSE(monitor.record(absl::OkStatus()));
  EXPECT_TRUE(monitor.record(withPeer(absl::UnavailableError("lost machine 1 process 0"), {1, 0, "10.0.0.1:1"})));
  EXPECT_FALSE(monitor.record(absl::UnavailableError("lost machine 2 process 0")));
  ASSERT_TRUE(peerOf(monitor.status()).has_value());
  EXPECT_EQ(peerOf(monitor.status())->machine, 1);
  EXPECT_TRUE(monitor.failed());
}

TEST(FailureMonitor, RunsEachListenerOnce_AlsoOneThatComesLate) {
  FailureMonitor monitor;
  int early = 0, removed = 0, late = 0;
  monitor.addListener([&](const absl::Status&) { ++early; });
  const int id = monitor.addListener([&](const absl::Status&) { ++removed; });
  monitor.removeListener(id);
  monitor.record(absl::UnavailableError("one"));
  monitor.record(absl::UnavailableError("two"));
  monitor.addListener([&](const absl::Status& status) { late += status.message() == "one"; });
  EXPECT_EQ(early, 1);
  EXPECT_EQ(removed, 0);
  EXPECT_EQ(late, 1);
}

TEST(FailureMonitor, LetsAListenerCallBack) {
  FailureMonitor monitor;
  int id = -1;
  absl::Status seen;
  id = monitor.addListener([&](const absl::Status&) {
    seen = monitor.status();
    monitor.removeListener(id);
    monitor.record(absl::InternalError("again"));
  });
  monitor.record(absl::UnavailableError("first"));
  EXPECT_EQ(seen.message(), "first");
}

TEST(FailureMonitor, WaitsForAListenerThatRuns_WhenItIsRemoved) {
  FailureMonitor monitor;
  std::atomic<bool> running{false}, ended{false};
  const int id = monitor.addListener([&](const absl::Status&) {
    running = true;
    std::this_thread::sleep_for(milliseconds(50));
    ended = true;
  });
  std::thread recorder([&] { monitor.record(absl::UnavailableError("lost")); });
  while (!running) std::this_thread::yield();
  monitor.removeListener(id);
  EXPECT_TRUE(ended);
  recorder.join();
}

TEST(FailureMonitor, EndsAWait_WhenAFailureIsRecorded) {
  FailureMonitor monitor;
  EXPECT_FALSE(monitor.waitFor(Deadline::after(milliseconds(1))));
  std::thread recorder([&] { monitor.record(absl::UnavailableError("lost")); });
  EXPECT_TRUE(monitor.waitFor(Deadline::after(milliseconds(5'000))));
  recorder.join();
}

TEST(FailureMonitor, RecordsNothing_OnceItIsToIgnore) {
  FailureMonitor monitor;
  monitor.ignoreFurther();
  EXPECT_FALSE(monitor.record(absl::UnavailableError("lost")));
  EXPECT_TRUE(monitor.status().ok());
}

TEST(JobNews, SurvivesItsEncoding) {
  const auto news = decodeJobNews(encodeJobNews(newsOf({3, 1, "10.0.0.7 pid 12"}, false, "signal 9 (SIGKILL)")));
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(describePeer(news->process), "machine 3 process 1 (10.0.0.7 pid 12)");
  EXPECT_FALSE(news->clean);
  EXPECT_EQ(news->how, "signal 9 (SIGKILL)");
}

TEST(JobNews, StaysOneMessageOfBoundedSize_WhateverItsTexts) {
  const std::string message = encodeJobNews(newsOf({0, 0, std::string(5'000, 'a')}, true, "a\tb\nc" + std::string(5'000, 'b')));
  EXPECT_LE(message.size(), kMaxJobNewsBytes);
  const auto news = decodeJobNews(message);
  ASSERT_TRUE(news.has_value());
  EXPECT_TRUE(news->clean);
  EXPECT_EQ(news->how.substr(0, 5), "a b c");
}

TEST(JobNews, IsNothing_WhenItDoesNotParse) {
  for (const std::string text : {"", "ended", "ended\t1\t0\tx\tclean", "ended\tone\t0\tx\tclean\thow", "ended\t1\t0\tx\tgone\thow",
                                 "begun\t1\t0\tx\tclean\thow", "ended\t99999999999\t0\tx\tclean\thow"}) {
    EXPECT_FALSE(decodeJobNews(text).has_value()) << text;
  }
  EXPECT_FALSE(decodeJobNews("ended\t1\t0\tx\tclean\t" + std::string(2'000, 'x')).has_value());
}

class LauncherWatchTest : public ::testing::Test {
 protected:
  LauncherWatchTest() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    launcher_ = FileDescriptor(fds[0]);
    inherited_ = FileDescriptor(fds[1]);
    contract_.numMachines = 2;
    contract_.launcherFd = inherited_.get();
  }
  void tell(const std::string& message) { EXPECT_GT(::send(launcher_.get(), message.data(), message.size(), 0), 0); }
  void tell(const ProcessEnded& news) { tell(encodeJobNews(news)); }
  std::string failure(milliseconds timeout) {
    (void)monitor_.waitFor(Deadline::after(timeout));
    return std::string(monitor_.status().message());
  }

  FileDescriptor launcher_, inherited_;
  LaunchContract contract_;
  FailureMonitor monitor_;
};

TEST_F(LauncherWatchTest, RecordsADeathThatWasToldBeforeItListened) {
  tell("something else");
  tell(newsOf({1, 0, "127.0.0.1 pid 5"}, false, "signal 9 (SIGKILL)"));
  auto watch = LauncherWatch::open(contract_, &monitor_);
  ASSERT_TRUE(watch.ok());
  EXPECT_THAT(failure(milliseconds(10'000)),
              ::testing::StartsWith("lost machine 1 process 0 (127.0.0.1 pid 5): it ended with signal 9 (SIGKILL)"));
}

TEST_F(LauncherWatchTest, TakesAnEndInOrderForALoss_OnlyUntilAllAreReady) {
  auto watch = LauncherWatch::open(contract_, &monitor_);
  ASSERT_TRUE(watch.ok());
  tell(newsOf({0, 0, "here"}, false, "signal 9 (SIGKILL)"));  // this process itself
  (*watch)->noteAllReady();
  tell(newsOf({1, 0, "there"}, true, "exit code 0"));
  EXPECT_EQ(failure(milliseconds(300)), "");
  tell(newsOf({1, 0, "there"}, false, "exit code 3"));
  EXPECT_THAT(failure(milliseconds(10'000)), ::testing::HasSubstr("exit code 3"));
  FailureMonitor early;
  auto other = LauncherWatch::open(contract_, &early);
  ASSERT_TRUE(other.ok());
  watch->reset();
  tell(newsOf({1, 0, "there"}, true, "exit code 0"));
  EXPECT_TRUE(early.waitFor(Deadline::after(milliseconds(10'000))));
  EXPECT_THAT(std::string(early.status().message()), ::testing::HasSubstr("before the job was ready"));
}

TEST_F(LauncherWatchTest, LetsThoseSpeakFirstWhoSawItThemselves) {
  LauncherDoubt doubt;
  doubt.whileStarting = milliseconds(60'000);
  auto watch = LauncherWatch::open(contract_, &monitor_, doubt);
  ASSERT_TRUE(watch.ok());
  tell(newsOf({1, 0, "there"}, false, "signal 9 (SIGKILL)"));
  monitor_.record(absl::UnavailableError("seen on the wire"));
  watch->reset();
  EXPECT_EQ(failure(milliseconds(0)), "seen on the wire");
}

TEST_F(LauncherWatchTest, TakesTheLaunchersEndForAFailure_AlsoWhenAllAreReady) {
  auto watch = LauncherWatch::open(contract_, &monitor_);
  ASSERT_TRUE(watch.ok());
  (*watch)->noteAllReady();
  EXPECT_EQ(failure(milliseconds(50)), "");
  launcher_.reset();
  EXPECT_THAT(failure(milliseconds(10'000)), ::testing::HasSubstr("the launcher has ended"));
  EXPECT_EQ(monitor_.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(peerOf(monitor_.status()).has_value());
}

TEST_F(LauncherWatchTest, GoesWithoutALauncher_WhereTheSocketIsLost) {
  for (const int fd : {0, 999}) {
    contract_.launcherFd = fd;
    const auto none = LauncherWatch::open(contract_, &monitor_);
    ASSERT_TRUE(none.ok());
    EXPECT_EQ(*none, nullptr);
  }
}

// The test's own name, 15 characters as the kernel keeps it: an ancestor of a child of a child.
TEST(StepWatch, RecordsThisProcessAsLost_WhenTheAncestorThatStartedItEnds) {
  int ready[2], result[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(result), 0);
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    ::prctl(PR_SET_NAME, "step (daemon) x");
    if (::fork() != 0) {
      ::pause();
      ::_exit(1);
    }
    ::prctl(PR_SET_NAME, "trainer");
    LaunchContract contract;
    contract.numMachines = 2;
    contract.machine = 1;
    FailureMonitor monitor;
    std::string text = "no watch";
    if (auto watch = StepWatch::open(contract, &monitor, "step (daemon) x"); watch.ok() && *watch != nullptr) {
      (void)!::write(ready[1], "r", 1);
      text = monitor.waitFor(Deadline::after(std::chrono::seconds(20))) ? std::string(monitor.status().message()) : "nothing";
    }
    (void)!::write(result[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ready[1]);
  ::close(result[1]);
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);
  char text[500] = "";
  EXPECT_GT(::read(result[0], text, sizeof(text) - 1), 0);
  EXPECT_THAT(std::string(text), ::testing::MatchesRegex("lost machine 1 process 0: step \\(daemon\\) x \\(pid [0-9]+\\), which started it, has ended.*"));
  ::close(ready[0]);
  ::close(result[0]);
}

TEST(StepWatch, IsNoneWithoutSuchAnAncestor_WithALauncher_AndAlone) {
  FailureMonitor monitor;
  LaunchContract contract;
  contract.numMachines = 2;
  EXPECT_EQ(*StepWatch::open(contract, &monitor, "no such process"), nullptr);
  EXPECT_EQ(findAncestor("no such process"), std::nullopt);
  contract.launcherFd = 5;
  EXPECT_EQ(*StepWatch::open(contract, &monitor), nullptr);
}

}  // namespace
}  // namespace farhop::runtime
