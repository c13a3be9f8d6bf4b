#include "runtime/start_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "tests/process_group.h"

namespace farhop::runtime {
namespace {

using std::chrono::milliseconds;
using test::ChildResult;
using test::ProcessGroup;
using ::testing::HasSubstr;

Deadline soon() { return Deadline::after(milliseconds(10'000)); }

LaunchContract contractOf(int procs, int proc) {
  LaunchContract contract;
  contract.procsPerMachine = procs;
  contract.proc = proc;
  contract.jobId = absl::StrCat("start-gate-test-", ::getpgrp(), "-", procs);
  contract.token = "secret";
  return contract;
}

// Opens a channel for a process that is alone, for the cases that only need some channel.
std::unique_ptr<LocalChannel> soloChannel(FailureMonitor* monitor) {
  return *LocalChannel::open(contractOf(1, 0), monitor, soon());
}

TEST(StartGate, LetsEachProcessThroughWhenTheOneBeforeItIsReady) {
  ProcessGroup group(3, [](int proc) -> std::string {
    const LaunchContract contract = contractOf(3, proc);
    FailureMonitor monitor;
    absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
    if (!channel.ok()) return channel.status().ToString();
    const absl::Status status = passStartGate(contract, **channel, monitor, {}, soon());
    if (!status.ok()) return status.ToString();
    // The mark of the process before must have been set before this one passed.
    for (int other = 0; other < 3; ++other) {
      const bool set = (*channel)->get(absl::StrCat("passed", other), Deadline::after(milliseconds(20))).ok();
      if (set != (other < proc)) return absl::StrCat("process ", other, (set ? " was" : " was not"), " through");
    }
    std::this_thread::sleep_for(milliseconds(100));
    (void)(*channel)->set(absl::StrCat("passed", proc), "");
    (*channel)->announceReady();
    (void)(*channel)->leave(soon());
    return "OK";
  });
  for (const ChildResult& result : group.wait(milliseconds(10'000))) EXPECT_EQ(result.text, "OK");
}

TEST(StartGate, FailsWithTheName_WhenTheProcessBeforeDies) {
  ProcessGroup group(2, [](int proc) -> std::string {
    const LaunchContract contract = contractOf(2, proc);
    FailureMonitor monitor;
    absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
    if (!channel.ok()) return channel.status().ToString();
    if (proc == 0) {
      std::this_thread::sleep_for(milliseconds(200));
      ::_exit(3);
    }
    return passStartGate(contract, **channel, monitor, {}, soon()).ToString();
  });
  EXPECT_THAT(group.wait(milliseconds(10'000))[1].text, HasSubstr("lost machine 0 process 0"));
}

TEST(StartGate, LetsAsManyStartAtOnceAsItIsWide) {
  ProcessGroup group(5, [](int proc) -> std::string {
    LaunchContract contract = contractOf(5, proc);
    contract.start.width = 2;
    FailureMonitor monitor;
    absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
    if (!channel.ok()) return channel.status().ToString();
    const auto is = [&](const char* what, int other, int waitMs) {
      return (*channel)->get(absl::StrCat(what, other), Deadline::after(milliseconds(waitMs))).ok();
    };
    const absl::Status status = passStartGate(contract, **channel, monitor, {}, soon());
    if (!status.ok()) return status.ToString();
    (void)(*channel)->set(absl::StrCat("started", proc), "");
    if (proc >= 2 && !is("done", proc - 2, 1'000)) return "two were still starting";
    // Its neighbour starts without waiting for it.
    const int neighbour = proc % 2 == 0 ? proc + 1 : proc - 1;
    if (neighbour < 4 && !is("started", neighbour, 8'000)) return "nobody starts beside it";
    if (is("done", proc + 2 < 5 ? proc + 2 : proc, 20)) return "one of the next pair was through before";
    (void)(*channel)->set(absl::StrCat("done", proc), "");
    (*channel)->announceReady();
    (void)(*channel)->leave(soon());
    return "OK";
  });
  for (const ChildResult& result : group.wait(milliseconds(15'000))) EXPECT_EQ(result.text, "OK");
}

TEST(StartGate, WantsMemoryForAllThatStartAtOnce) {
  FailureMonitor monitor;
  const std::unique_ptr<LocalChannel> channel = soloChannel(&monitor);
  LaunchContract contract = contractOf(8, 1);
  contract.start.width = 4;
  StartGateOptions options;
  options.memoryEstimateBytes = 1'000;
  options.availableBytes = []() -> uint64_t { return 1'999; };
  EXPECT_THAT(std::string(passStartGate(contract, *channel, monitor, options, Deadline::after(milliseconds(10))).message()),
              HasSubstr("2000 bytes, 1999 are available"));
}

TEST(StartGate, SleepsPerProcess_WhateverTheOthersDo) {
  FailureMonitor monitor;
  const std::unique_ptr<LocalChannel> channel = soloChannel(&monitor);
  LaunchContract contract = contractOf(8, 3);
  contract.start = {false, milliseconds(40)};
  const auto begin = Clock::now();
  EXPECT_TRUE(passStartGate(contract, *channel, monitor, {}, soon()).ok());
  EXPECT_GE(Clock::now() - begin, milliseconds(120));
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
}

TEST(StartGate, EndsItsSleep_WhenSomethingFails) {
  FailureMonitor monitor;
  const std::unique_ptr<LocalChannel> channel = soloChannel(&monitor);
  LaunchContract contract = contractOf(8, 3);
  contract.start = {false, milliseconds(60'000)};
  std::thread failing([&] { monitor.record(absl::UnavailableError("lost machine 1")); });
  EXPECT_EQ(passStartGate(contract, *channel, monitor, {}, soon()).message(), "lost machine 1");
  failing.join();
}

TEST(StartGate, SaysWhenTheSleepIsLongerThanTheDeadline) {
  FailureMonitor monitor;
  const std::unique_ptr<LocalChannel> channel = soloChannel(&monitor);
  LaunchContract contract = contractOf(8, 2);
  contract.start = {false, milliseconds(60'000)};
  const absl::Status status =
      passStartGate(contract, *channel, monitor, {}, Deadline::after(milliseconds(10)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("120000 ms"));
}

TEST(StartGate, WaitsUntilTheMemoryEstimateFits) {
  FailureMonitor monitor;
  const std::unique_ptr<LocalChannel> channel = soloChannel(&monitor);
  int asked = 0;
  StartGateOptions options;
  options.memoryEstimateBytes = 1'000;
  options.availableBytes = [&asked]() -> uint64_t { return ++asked < 3 ? 999 : 1'000; };
  EXPECT_TRUE(passStartGate(contractOf(1, 0), *channel, monitor, options, soon()).ok());
  EXPECT_EQ(asked, 3);
}

TEST(StartGate, SaysHowMuchMemoryIsNeededAndAvailable) {
  FailureMonitor monitor;
  const std::unique_ptr<LocalChannel> channel = soloChannel(&monitor);
  StartGateOptions options;
  options.memoryEstimateBytes = 5'000;
  options.availableBytes = []() -> uint64_t { return 1'234; };
  const absl::Status status =
      passStartGate(contractOf(1, 0), *channel, monitor, options, Deadline::after(milliseconds(10)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("5000 bytes, 1234 are available"));
}

}  // namespace
}  // namespace farhop::runtime
