#include "runtime/collectives.h"
#include "runtime/gloo_mesh.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/file.h"
#include "base/random.h"
#include "runtime/local_channel.h"
#include "runtime/stop_agreement.h"
#include "tests/process_group.h"

namespace farhop::runtime {
namespace {

using std::chrono::milliseconds;
using test::ChildResult;
using test::ProcessGroup;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 77;
Deadline soon() { return Deadline::after(milliseconds(20'000)); }

struct Shape {
  int machines;
  int procs;
};

// What a process of these tests has: its machine's channel, and another channel over all W processes that
// stands in for the rendezvous store, and for the wire that notices a dead process.
struct Member {
  LaunchContract contract;
  FailureMonitor monitor;
  FailureMonitor wire;
  std::unique_ptr<LocalChannel> channel;
  std::unique_ptr<LocalChannel> store;
  std::unique_ptr<Collectives> collectives;

  static MeshStore over(LocalChannel* values, std::string prefix) {
    return {[=](const std::string& key, const std::string& value, Deadline) { return values->set(prefix + key, value); },
            [=](const std::string& key, Deadline deadline) { return values->get(prefix + key, deadline); }};
  }

  absl::Status open(Shape shape, int rank) {
    contract.numMachines = shape.machines;
    contract.machine = rank / shape.procs;
    contract.procsPerMachine = shape.procs;
    contract.proc = rank % shape.procs;
    contract.jobId = absl::StrCat("collectives-test-", ::getpgrp());
    contract.token = "secret";
    LaunchContract flat = contract;
    flat.jobId += "-store";
    flat.numMachines = 1;
    flat.machine = 0;
    flat.procsPerMachine = contract.worldSize();
    flat.proc = rank;
    wire.addListener([this, shape](const absl::Status& lost) {
      const int who = peerOf(lost)->proc;
      const PeerName peer{who / shape.procs, who % shape.procs, ""};
      monitor.record(withPeer(absl::UnavailableError(absl::StrCat("lost ", describePeer(peer))), peer));
    });
    FARHOP_ASSIGN_OR_RETURN(channel, LocalChannel::open(contract, &monitor, soon()));
    FARHOP_ASSIGN_OR_RETURN(store, LocalChannel::open(flat, &wire, soon()));
    collectives = std::make_unique<Collectives>(contract, &monitor);
    std::vector<PeerName> peers;
    for (int machine = 0; machine < shape.machines; ++machine) peers.push_back({machine, contract.proc, ""});
    FARHOP_RETURN_IF_ERROR(collectives->connectGroup(over(store.get(), ""), "127.0.0.1", peers, soon()));
    return collectives->connectMachine(over(channel.get(), ""), soon());
  }

  void leave() {
    (void)store->leave(soon());
    (void)channel->leave(soon());
  }
};

// Runs `body` in all W processes and returns their results.
template <typename Body>
std::vector<ChildResult> runAll(Shape shape, Body body) {
  ProcessGroup group(shape.machines * shape.procs, [&](int rank) -> std::string {
    Member member;
    const absl::Status status = member.open(shape, rank);
    if (!status.ok()) return status.ToString();
    std::string result = body(member, rank);
    member.leave();
    return result;
  });
  return group.wait(milliseconds(40'000));
}

class CollectivesShapes : public ::testing::TestWithParam<Shape> {};

template <typename T>
std::vector<T> inputOf(int rank, size_t size) {
  KeyedRandom random(combineKey(kSeed, static_cast<uint64_t>(rank)));
  std::vector<T> values(size);
  for (T& value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>((random.uniform() - 0.5) * std::pow(10.0, static_cast<double>(random.below(12))));
    } else {
      value = static_cast<T>(random.next());
    }
  }
  return values;
}

template <typename T>
std::string sumAndCheck(Member& member, Shape shape, int rank, size_t size) {
  const int world = shape.machines * shape.procs;
  std::vector<T> data = inputOf<T>(rank, size);
  const absl::Status status = member.collectives->allReduceSum(std::span<T>(data), soon());
  if (!status.ok()) return status.ToString();
  std::vector<long double> floating(size), magnitude(size);
  std::vector<uint64_t> exact(size);
  for (int other = 0; other < world; ++other) {
    const std::vector<T> input = inputOf<T>(other, size);
    for (size_t i = 0; i < size; ++i) {
      if constexpr (std::is_floating_point_v<T>) {
        floating[i] += input[i];
        magnitude[i] += std::fabs(static_cast<long double>(input[i]));
      } else {
        exact[i] += static_cast<uint64_t>(input[i]);
      }
    }
  }
  for (size_t i = 0; i < size; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      const long double error = std::fabs(static_cast<long double>(data[i]) - floating[i]);
      if (error > magnitude[i] * world * std::numeric_limits<T>::epsilon()) return absl::StrCat("wrong sum at ", i);
    } else if (static_cast<uint64_t>(data[i]) != exact[i]) {
      return absl::StrCat("wrong sum at ", i);
    }
  }
  // The bits, to be compared between processes.
  return absl::StrCat(checksum64(std::as_bytes(std::span<const T>(data))), ",");
}

TEST_P(CollectivesShapes, SumsToTheSameBitsEverywhere) {
  const Shape shape = GetParam();
  const std::vector<ChildResult> results = runAll(shape, [shape](Member& member, int rank) {
    std::string bits;
    for (size_t size : {size_t{0}, size_t{1}, size_t{5}, size_t{1'000}, size_t{300'001}}) {
      bits += sumAndCheck<float>(member, shape, rank, size);
    }
    bits += sumAndCheck<double>(member, shape, rank, 1'234);
    bits += sumAndCheck<int64_t>(member, shape, rank, 77);
    bits += sumAndCheck<uint64_t>(member, shape, rank, 78);
    return bits;
  });
  for (const ChildResult& result : results) {
    ASSERT_TRUE(result.finished);
    EXPECT_THAT(result.text, ::testing::MatchesRegex("([0-9]+,)+"));
    EXPECT_EQ(result.text, results[0].text);
  }
}

TEST_P(CollectivesShapes, GathersAndBroadcastsByWorldRank) {
  const Shape shape = GetParam();
  const int world = shape.machines * shape.procs;
  const std::vector<ChildResult> results = runAll(shape, [&](Member& member, int rank) -> std::string {
    const auto valueOf = [](int of) {
      return std::string(static_cast<size_t>(of) * 70'000, static_cast<char>('a' + of % 26));
    };
    for (int round = 0; round < 3; ++round) {
      absl::StatusOr<std::vector<std::string>> gathered = member.collectives->gatherJob(valueOf(rank), soon());
      if (!gathered.ok()) return gathered.status().ToString();
      if (gathered->size() != (rank == 0 ? static_cast<size_t>(world) : 0)) return "gather: wrong size";
      absl::StatusOr<std::vector<std::string>> all = member.collectives->allGatherJob(valueOf(rank), soon());
      if (!all.ok()) return all.status().ToString();
      if (all->size() != static_cast<size_t>(world)) return "all-gather: wrong size";
      for (int other = 0; other < world; ++other) {
        if ((*all)[static_cast<size_t>(other)] != valueOf(other)) return "all-gather: wrong value";
        if (rank == 0 && (*gathered)[static_cast<size_t>(other)] != valueOf(other)) return "gather: wrong value";
      }
      absl::StatusOr<std::string> told =
          member.collectives->broadcastJob(rank == 0 ? absl::StrCat("round ", round) : "mine", soon());
      if (!told.ok()) return told.status().ToString();
      if (*told != absl::StrCat("round ", round)) return "broadcast: " + *told;
    }
    return "OK";
  });
  for (const ChildResult& result : results) EXPECT_EQ(result.text, "OK");
}

TEST_P(CollectivesShapes, LetsNobodyPassABarrierBeforeAllHaveCome) {
  const Shape shape = GetParam();
  const int world = shape.machines * shape.procs;
  void* page = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* arrived = new (page) std::atomic<int>(0);
  const std::vector<ChildResult> results = runAll(shape, [&](Member& member, int rank) -> std::string {
    for (int round = 1; round <= 20; ++round) {
      if (rank == round % world) std::this_thread::sleep_for(milliseconds(5));
      arrived->fetch_add(1);
      const absl::Status status = member.collectives->barrierJob(soon());
      if (!status.ok()) return status.ToString();
      if (arrived->load() < round * world) return absl::StrCat("passed barrier ", round, " too early");
    }
    return "OK";
  });
  for (const ChildResult& result : results) EXPECT_EQ(result.text, "OK");
  ::munmap(page, sizeof(std::atomic<int>));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CollectivesShapes,
                         ::testing::Values(Shape{1, 1}, Shape{1, 4}, Shape{2, 2}, Shape{4, 1}, Shape{3, 2}),
                         [](const auto& shape) {
                           return absl::StrCat(shape.param.machines, "x", shape.param.procs);
                         });

TEST(Collectives, EndEverywhereWithTheName_WhenAProcessIsKilled) {
  const Shape shape{2, 2};
  for (const bool large : {false, true}) {
    ProcessGroup group(4, [&](int rank) -> std::string {
      Member member;
      absl::Status status = member.open(shape, rank);
      if (!status.ok()) return status.ToString();
      std::vector<float> data(large ? 8'000'000 : 10, 1.0F);
      for (int round = 0; status.ok(); ++round) {
        if (round == 3) ProcessGroup::signalLine("busy");
        status = member.collectives->allReduceSum(std::span<float>(data), soon());
      }
      return status.ToString();
    });
    for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(group.awaitLine(rank, "busy", milliseconds(30'000)));
    group.kill(3, SIGKILL);
    const auto begin = Clock::now();
    const std::vector<ChildResult> results = group.wait(milliseconds(10'000));
    EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_THAT(results[rank].text, HasSubstr("lost machine 1 process 1"));
  }
}

TEST(Collectives, AreInterruptedAtOnce_WhenAFailureIsRecorded) {
  const std::vector<ChildResult> results = runAll({2, 1}, [](Member& member, int rank) -> std::string {
    if (rank == 1) {
      // Never joins the sum; learns by the broken connection that the other has given up.
      return member.monitor.waitFor(Deadline::after(milliseconds(1'500))) ? "failed" : "OK";
    }
    std::thread failing([&] {
      std::this_thread::sleep_for(milliseconds(100));
      member.monitor.record(absl::UnavailableError("lost somebody"));
    });
    std::vector<float> data(4'000'000, 1.0F);
    const auto begin = Clock::now();
    const absl::Status status = member.collectives->allReduceSum(std::span<float>(data), soon());
    const auto took = Clock::now() - begin;
    failing.join();
    if (took > milliseconds(600)) return "took too long";
    return std::string(status.message());
  });
  EXPECT_EQ(results[0].text, "lost somebody");
  EXPECT_EQ(results[1].text, "OK");
}

TEST(Collectives, SayWhoDoesWhat_WhenProcessesCallDifferentThings) {
  const std::vector<ChildResult> results = runAll({2, 1}, [](Member& member, int rank) -> std::string {
    std::vector<float> data(rank == 0 ? 100 : 200);
    const absl::Status status = member.collectives->allReduceSum(std::span<float>(data), soon());
    return absl::StrCat(status.ToString(), " | ", member.collectives->barrierJob(soon()).ToString());
  });
  int named = 0;
  for (const ChildResult& result : results) {
    ASSERT_TRUE(result.finished) << "signal " << result.signal;
    named += result.text.find("INVALID_ARGUMENT: all-reduce: group 0: this process calls a reduction of") == 0;
    EXPECT_EQ(result.text.find("OK"), std::string::npos);
  }
  EXPECT_GE(named, 1);
}

TEST(Collectives, NameTheOneThatDidNotCome_WhenTheDeadlinePasses) {
  const std::vector<ChildResult> results = runAll({1, 2}, [](Member& member, int rank) -> std::string {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(500));
      return "absent";
    }
    return member.collectives->barrierJob(Deadline::after(milliseconds(100))).ToString();
  });
  EXPECT_THAT(results[0].text, HasSubstr("DEADLINE_EXCEEDED: barrier of the job: machine 0: receiving from machine 0 process 1"));
}

// Sockets of this process that listen on TCP.
int listeningSockets() {
  int count = 0;
  DIR* fds = ::opendir("/proc/self/fd");
  while (dirent* entry = ::readdir(fds)) {
    const int fd = std::atoi(entry->d_name);
    int listening = 0, domain = 0;
    socklen_t size = sizeof(listening);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) continue;
    size = sizeof(domain);
    ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    count += domain != AF_UNIX;
  }
  ::closedir(fds);
  return count;
}

TEST(Collectives, ListenNowhere_OnceConnected) {
  for (const ChildResult& result : runAll({3, 2}, [](Member&, int) { return absl::StrCat(listeningSockets()); })) {
    EXPECT_EQ(result.text, "0");
  }
}

TEST(MeshWait, GoesBeyondAnHour_AndSurvivesAnyDeadline) {
  EXPECT_GT(meshWait(Deadline::after(std::chrono::hours(3))), std::chrono::minutes(179));
  EXPECT_EQ(meshWait(Deadline()), std::chrono::milliseconds(0));
  EXPECT_EQ(meshWait(Deadline(Clock::time_point::max())), std::chrono::hours(24 * 30));
}

// How a process comes to want the stop, and the step after which the job had agreed.
enum class Asked { kUserSignal, kTerminated, kRequest, kTimeLimit };

std::string stepOfAgreement(Member& member, bool victim, Asked asked, bool withAverages) {
  constexpr int kAskAt = 5, kSteps = 20;
  const Clock::time_point limit = Clock::now() + milliseconds(100);
  StopAgreement stop(victim && asked == Asked::kTimeLimit ? limit : Clock::time_point::max());
  for (int step = 0; step < kSteps; ++step) {
    if (step == kAskAt && asked == Asked::kTimeLimit && victim) std::this_thread::sleep_until(limit);
    if (withAverages) {
      int64_t wanting = stop.wanted() ? 1 : 0;
      if (const auto status = member.collectives->allReduceSum(std::span<int64_t>(&wanting, 1), soon()); !status.ok()) return status.ToString();
      stop.learn(wanting);
    }
    // After this step's sum where there is one, so that it shows in the next one's.
    stop.takeSignals();
    if (victim && step == kAskAt) {
      if (asked == Asked::kUserSignal) ::raise(SIGUSR1);
      if (asked == Asked::kTerminated) ::raise(SIGTERM);
      if (asked == Asked::kRequest) stop.request();
    }
    const absl::StatusOr<bool> agreed = stop.agreed(*member.collectives, soon());
    if (!agreed.ok()) return agreed.status().ToString();
    if (*agreed) return absl::StrCat(step, *stop.agreed(*member.collectives, soon()) ? "" : " and not for good");
  }
  return "never";
}

TEST(StopAgreement, HoldsAfterTheSameStepEverywhere_WhoeverIsAskedAndHow) {
  for (Asked asked : {Asked::kUserSignal, Asked::kTerminated, Asked::kRequest, Asked::kTimeLimit}) {
    for (bool withAverages : {true, false}) {
      const int victim = (static_cast<int>(asked) + 1) % 4;
      const auto results = runAll({2, 2}, [&](Member& member, int rank) {
        return stepOfAgreement(member, rank == victim, asked, withAverages);
      });
      // What is asked after a step's sum shows in the next one's; when the time is over depends on the machine.
      const std::string expected = asked == Asked::kTimeLimit ? results.front().text : withAverages ? "6" : "5";
      EXPECT_TRUE(expected.size() <= 2) << expected;
      for (const ChildResult& result : results) EXPECT_EQ(result.text, expected) << static_cast<int>(asked) << withAverages;
    }
  }
}

TEST(StopSignals, AreGivenBack_AndLeaveTheProgramsOwnAlone) {
  const auto handler = [](int signal) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    return action.sa_handler;
  };
  ::signal(SIGTERM, SIG_IGN);
  {
    const auto signals = StopSignals::take();
    ASSERT_NE(signals, nullptr);
    EXPECT_EQ(StopSignals::take(), nullptr);
    EXPECT_EQ(signals->raised(), 0);
    EXPECT_EQ(handler(SIGTERM), SIG_IGN);
    ::raise(SIGUSR1);
    EXPECT_EQ(signals->raised(), SIGUSR1);
  }
  EXPECT_EQ(handler(SIGUSR1), SIG_DFL);
  EXPECT_EQ(handler(SIGTERM), SIG_IGN);
  ::signal(SIGTERM, SIG_DFL);
  const auto again = StopSignals::take();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->raised(), 0);
}

}  // namespace
}  // namespace farhop::runtime
