#include "runtime/local_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <thread>

#include "tests/captured_log.h"
#include "tests/process_group.h"

namespace farhop::runtime {
namespace {

using std::chrono::milliseconds;
using test::ChildResult;
using test::ProcessGroup;
using ::testing::HasSubstr;

constexpr milliseconds kPatience{10'000};
Deadline soon() { return Deadline::after(kPatience); }

LaunchContract contractOf(int procs, int proc, int machine = 0) {
  LaunchContract contract;
  contract.numMachines = 2;
  contract.machine = machine;
  contract.procsPerMachine = procs;
  contract.proc = proc;
  contract.masterPort = 1;
  contract.jobId = absl::StrCat("local-channel-test-", ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                                "-", ::getpgrp());
  contract.token = "secret";
  return contract;
}

std::string text(const absl::Status& status) { return status.ok() ? "OK" : status.ToString(); }

// What a process of the tests below does: opens, says where it is and that it is ready, then waits for a failure.
std::string waitForFailure(const LaunchContract& contract) {
  FailureMonitor monitor;
  absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
  if (!channel.ok()) return text(channel.status());
  (*channel)->announceAddress(absl::StrCat("127.0.0.1:", 5000 + contract.proc));
  (*channel)->announceReady();
  const absl::Status ready = (*channel)->waitAllReady(soon());
  if (!ready.ok()) return text(ready);
  ProcessGroup::signalLine("ready");
  if (!monitor.waitFor(soon())) return "no failure came";
  const std::optional<PeerName> peer = peerOf(monitor.status());
  return absl::StrCat(peer ? describePeer(*peer) : "nobody", " | ", std::string(monitor.status().message()));
}

TEST(LocalChannel, NeedsNoSocket_WhenAProcessIsAlone) {
  FailureMonitor monitor;
  const LaunchContract contract = contractOf(1, 0);
  EXPECT_EQ(LocalChannel::socketName(contract), "");
  absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
  ASSERT_TRUE(channel.ok()) << channel.status();
  (*channel)->announceReady();
  EXPECT_TRUE((*channel)->waitAllReady(soon()).ok());
  EXPECT_TRUE((*channel)->set("k", "v").ok());
  EXPECT_EQ(*(*channel)->get("k", soon()), "v");
  EXPECT_TRUE((*channel)->leave(soon()).ok());
}

// A connection that the hub has no descriptor for is not looked at all the time, and is taken when it has one.
TEST(LocalChannel, WaitsForDescriptors_WhenTheHubHasNoneLeft) {
  ProcessGroup group(2, [](int proc) -> std::string {
    FailureMonitor monitor;
    const LaunchContract contract = contractOf(2, proc);
    if (proc == 1) std::this_thread::sleep_for(milliseconds(300));  // the hub has used them up by then
    absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
    if (!channel.ok()) return text(channel.status());
    (*channel)->announceReady();
    if (proc == 0) {
      std::vector<FileDescriptor> all;
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = 256;
      ::setrlimit(RLIMIT_NOFILE, &limit);
      while (all.empty() || all.back().valid()) all.emplace_back(::dup(STDOUT_FILENO));
      const std::clock_t begin = std::clock();
      std::this_thread::sleep_for(milliseconds(1'000));
      const double busySeconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      if (busySeconds > 0.4) return absl::StrCat("computed for ", busySeconds, " s of one");
      if ((*channel)->waitReady(1, Deadline()).ok()) return "had a descriptor";
    }
    const absl::Status ready = (*channel)->waitAllReady(soon());
    return text(ready.ok() ? (*channel)->leave(soon()) : ready);
  });
  for (const ChildResult& result : group.wait(kPatience)) EXPECT_EQ(result.text, "OK");
}

TEST(LocalChannel, CarriesReadyValuesAndFarewell) {
  ProcessGroup group(4, [](int proc) -> std::string {
    FailureMonitor monitor;
    absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contractOf(4, proc), &monitor, soon());
    if (!channel.ok()) return text(channel.status());
    // In order: each waits for the one before it.
    if (proc > 0) {
      const absl::Status status = (*channel)->waitReady(proc - 1, soon());
      if (!status.ok()) return text(status);
    }
    if (!(*channel)->set(absl::StrCat("from", proc), std::string(100'000, static_cast<char>('a' + proc))).ok()) return "set";
    (*channel)->announceReady();
    for (int other = 0; other < 4; ++other) {
      const absl::StatusOr<std::string> value = (*channel)->get(absl::StrCat("from", other), soon());
      if (!value.ok()) return text(value.status());
      if (*value != std::string(100'000, static_cast<char>('a' + other))) return "wrong value";
    }
    absl::Status status = (*channel)->waitAllReady(soon());
    if (status.ok()) status = (*channel)->leave(soon());
    if (monitor.failed()) return "failed: " + text(monitor.status());
    return text(status);
  });
  for (const ChildResult& result : group.wait(kPatience)) EXPECT_EQ(result.text, "OK");
}

// As many values as the pairs of a machine's mesh, each for one process only.
TEST(LocalChannel, SendsAValueOnlyToWhoAsksForIt) {
  constexpr int kProcs = 32;
  constexpr size_t kValueBytes = 192;
  std::vector<std::string> results(kProcs);
  std::vector<std::thread> threads;
  for (int proc = 0; proc < kProcs; ++proc) {
    threads.emplace_back([proc, &results] {
      results[static_cast<size_t>(proc)] = [proc]() -> std::string {
        FailureMonitor monitor;
        absl::StatusOr<std::unique_ptr<LocalChannel>> channel =
            LocalChannel::open(contractOf(kProcs, proc), &monitor, soon());
        if (!channel.ok()) return text(channel.status());
        const auto key = [](int from, int to) { return absl::StrCat(from, ">", to); };
        for (int other = 0; other < kProcs; ++other) {
          if (!(*channel)->set(key(proc, other), std::string(kValueBytes, static_cast<char>('a' + proc))).ok()) return "set";
        }
        for (int other = 0; other < kProcs; ++other) {
          const absl::StatusOr<std::string> value = (*channel)->get(key(other, proc), soon());
          if (!value.ok()) return text(value.status());
          if (*value != std::string(kValueBytes, static_cast<char>('a' + other))) return "wrong value";
        }
        const size_t bytes = (*channel)->bytesReceived();
        // A client gets its 31 values, and what else is said: 20 kB are ample. All of them would be 200 kB.
        if (proc != 0 && bytes > 20'000) return absl::StrCat(bytes, " bytes");
        return text((*channel)->leave(soon()));
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, "OK");
}

TEST(LocalChannel, SaysInTheHubsLogWhomItRefused) {
  FailureMonitor monitor, other;
  absl::StatusOr<std::unique_ptr<LocalChannel>> hub = LocalChannel::open(contractOf(2, 0), &monitor, soon());
  ASSERT_TRUE(hub.ok()) << hub.status();
  farhop::testing::CapturedLog log;
  LaunchContract wrong = contractOf(2, 1);
  wrong.token = "guess";
  EXPECT_TRUE(absl::IsPermissionDenied(LocalChannel::open(wrong, &other, soon()).status()));
  EXPECT_THAT(log.text(), HasSubstr(absl::StrCat("the local channel of machine 0 refused process id ", ::getpid(),
                                                 ", which says it is machine 0 process 1: ")));
  EXPECT_FALSE(monitor.failed());
}

TEST(LocalChannel, NamesADeadProcessEverywhere) {
  for (int victim : {0, 1, 3}) {
    ProcessGroup group(4, [](int proc) { return waitForFailure(contractOf(4, proc, 1)); });
    for (int proc = 0; proc < 4; ++proc) ASSERT_TRUE(group.awaitLine(proc, "ready", kPatience));
    group.kill(victim, SIGKILL);
    const std::vector<ChildResult> results = group.wait(milliseconds(3'000));
    for (int proc = 0; proc < 4; ++proc) {
      if (proc == victim) continue;
      EXPECT_THAT(results[static_cast<size_t>(proc)].text,
                  HasSubstr(absl::StrCat("machine 1 process ", victim, " (127.0.0.1:", 5000 + victim, ") | lost ")))
          << "process " << proc;
    }
  }
}

TEST(LocalChannel, RelaysALossThatAnotherGroupSaw) {
  for (int reporter : {0, 2}) {
    ProcessGroup group(3, [reporter](int proc) -> std::string {
      FailureMonitor monitor;
      absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contractOf(3, proc), &monitor, soon());
      if (!channel.ok()) return text(channel.status());
      (*channel)->announceReady();
      // The report may come while this process still waits for the others.
      const absl::Status status = (*channel)->waitAllReady(soon());
      if (!status.ok() && !monitor.waitFor(soon())) return text(status);
      if (proc == reporter) {
        (*channel)->reportLost(withPeer(absl::UnavailableError("lost machine 7: connection closed"),
                                        {7, proc, "10.1.2.3:4567"}));
        return "reported";
      }
      if (!monitor.waitFor(soon())) return "no failure came";
      return absl::StrCat(describePeer(*peerOf(monitor.status())), " | ", std::string(monitor.status().message()));
    });
    const std::vector<ChildResult> results = group.wait(kPatience);
    for (int proc = 0; proc < 3; ++proc) {
      EXPECT_EQ(results[static_cast<size_t>(proc)].text,
                proc == reporter ? "reported"
                                 : absl::StrCat("machine 7 process ", reporter,
                                                " (10.1.2.3:4567) | lost machine 7: connection closed"));
    }
  }
}

TEST(LocalChannel, TellsALateProcessOfADeathBeforeIt) {
  ProcessGroup group(3, [](int proc) -> std::string {
    const LaunchContract contract = contractOf(3, proc);
    FailureMonitor monitor;
    // Process 1 comes and goes in this time.
    if (proc == 2) std::this_thread::sleep_for(milliseconds(300));
    absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
    if (!channel.ok()) return text(channel.status());
    if (proc == 1) ::_exit(0);
    const absl::Status status = (*channel)->waitReady(1, soon());
    if (proc == 0) std::this_thread::sleep_for(milliseconds(600));
    return text(status);
  });
  const std::vector<ChildResult> results = group.wait(kPatience);
  EXPECT_THAT(results[0].text, HasSubstr("lost machine 0 process 1"));
  EXPECT_THAT(results[2].text, HasSubstr("lost machine 0 process 1"));
}

TEST(LocalChannel, IsNotDisturbedByStrangers) {
  ProcessGroup group(2, [](int proc) { return waitForFailure(contractOf(2, proc)); });
  ASSERT_TRUE(group.awaitLine(0, "ready", kPatience));
  ASSERT_TRUE(group.awaitLine(1, "ready", kPatience));
  const std::string name = LocalChannel::socketName(contractOf(2, 0));
  const std::string huge("\xff\xff\xff\x7f", 4);
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\0'), huge,
                                   encodeLocalMessage({LocalMessage::Type::kDead, 0, 1, 0, "", "", ""}),
                                   encodeLocalMessage({LocalMessage::Type::kHello, 0, 1, 1, "other", "secret", ""})}) {
    absl::StatusOr<FileDescriptor> fd = connectAbstract(name, soon(), false);
    ASSERT_TRUE(fd.ok()) << fd.status();
    (void)sendAll(fd->get(), bytes.data(), bytes.size(), soon());
    char answer;
    while (receiveAll(fd->get(), &answer, 1, soon()).ok()) {
    }
  }
  // A silent connection that stays open does no harm either.
  absl::StatusOr<FileDescriptor> silent = connectAbstract(name, soon(), false);
  ASSERT_TRUE(silent.ok());
  std::this_thread::sleep_for(milliseconds(100));
  group.kill(1, SIGKILL);
  EXPECT_THAT(group.wait(kPatience)[0].text, HasSubstr("machine 0 process 1 (127.0.0.1:5001)"));
}

TEST(LocalChannel, RefusesAWrongToken_AndSaysSoToTheOneThatHasIt) {
  ProcessGroup group(2, [](int proc) -> std::string {
    LaunchContract contract = contractOf(2, proc);
    if (proc == 1) contract.token = "guess";
    FailureMonitor monitor;
    absl::StatusOr<std::unique_ptr<LocalChannel>> channel = LocalChannel::open(contract, &monitor, soon());
    if (!channel.ok()) return text(channel.status());
    const absl::Status status = (*channel)->waitReady(1, Deadline::after(milliseconds(300)));
    return text(status);
  });
  const std::vector<ChildResult> results = group.wait(kPatience);
  EXPECT_THAT(results[0].text, HasSubstr("DEADLINE_EXCEEDED: machine 0 process 1"));
  EXPECT_THAT(results[1].text, HasSubstr("PERMISSION_DENIED: process 0 of machine 0 belongs to another job"));
}

TEST(LocalChannel, RefusesTheSameJobTwice) {
  FailureMonitor monitor;
  absl::StatusOr<std::unique_ptr<LocalChannel>> first = LocalChannel::open(contractOf(2, 0), &monitor, soon());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsAlreadyExists(LocalChannel::open(contractOf(2, 0), &monitor, soon()).status()));
  FailureMonitor second;
  absl::StatusOr<std::unique_ptr<LocalChannel>> one = LocalChannel::open(contractOf(2, 1), &second, soon());
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(absl::IsAlreadyExists(LocalChannel::open(contractOf(2, 1), &second, soon()).status()));
}

// The client loses somebody after its hello, before the hub has answered.
TEST(LocalChannel, TellsItsHubWhomItLost_WhenThatEndsItsOpening) {
  const LaunchContract contract = contractOf(2, 1);
  absl::StatusOr<FileDescriptor> listener = listenAbstract(LocalChannel::socketName(contract), 4);
  ASSERT_TRUE(listener.ok()) << listener.status();
  FailureMonitor monitor;
  std::thread recorder([&] {
    std::this_thread::sleep_for(milliseconds(100));
    monitor.record(withPeer(absl::UnavailableError("lost machine 4 process 2"), {4, 2, "10.0.0.4:1"}));
  });
  const absl::Status opened = LocalChannel::open(contract, &monitor, soon()).status();
  recorder.join();
  EXPECT_EQ(opened.message(), "lost machine 4 process 2");
  // What the hub finds, now that it looks: hello, loss, farewell.
  FileDescriptor hub(::accept(listener->get(), nullptr, nullptr));
  ASSERT_TRUE(hub.valid());
  std::string input;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(hub.get(), buffer, sizeof(buffer), 0)) > 0;) input.append(buffer, static_cast<size_t>(n));
  std::vector<LocalMessage::Type> types;
  for (;;) {
    const auto message = takeLocalMessage(input);
    ASSERT_TRUE(message.ok());
    if (!message->has_value()) break;
    types.push_back((*message)->type);
    if (types.back() == LocalMessage::Type::kLost) {
      EXPECT_EQ((*message)->machine, 4);
    }
  }
  EXPECT_THAT(types, ::testing::ElementsAre(LocalMessage::Type::kHello, LocalMessage::Type::kLost, LocalMessage::Type::kLeave));
}

TEST(LocalChannel, SaysWhoIsMissing_WhenTheDeadlinePasses) {
  FailureMonitor monitor;
  absl::StatusOr<std::unique_ptr<LocalChannel>> hub = LocalChannel::open(contractOf(3, 0), &monitor, soon());
  ASSERT_TRUE(hub.ok());
  const absl::Status left = (*hub)->leave(Deadline::after(milliseconds(20)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(left));
  EXPECT_THAT(std::string(left.message()), HasSubstr("process 1, process 2"));
  FailureMonitor other;
  const absl::Status noHub =
      LocalChannel::open(contractOf(3, 1, 1), &other, Deadline::after(milliseconds(20))).status();
  EXPECT_THAT(std::string(noHub.message()), HasSubstr("machine 1 process 0 did not open"));
}

}  // namespace
}  // namespace farhop::runtime
