#include "runtime/failure_monitor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace farhop::runtime {
namespace {

using std::chrono::milliseconds;

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

}  // namespace
}  // namespace farhop::runtime
