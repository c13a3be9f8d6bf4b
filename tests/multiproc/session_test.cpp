#include "runtime/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "rpc/stages.h"
#include "tests/open_ports.h"
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

constexpr milliseconds kPatience{60'000};
Deadline soon() { return Deadline::after(milliseconds(20'000)); }

// A point of the clock that all processes share, in seconds.
double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

class SessionShapes : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(SessionShapes, StartsWorksAndLeaves) {
  const int machines = GetParam().first, procs = GetParam().second;
  SessionJob job(machines, procs, "session-shapes");
  ProcessGroup group(job.worldSize(), [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    if (((*session)->agent() != nullptr) != (machines > 1)) return "agent";
    if ((*session)->computeThreads() < 1 || (*session)->samplerThreads() < 1) return "threads";
    std::vector<double> data{1.0, static_cast<double>(rank)};
    absl::Status status = (*session)->collectives().allReduceSum(std::span<double>(data), soon());
    if (!status.ok()) return describeFailure(status);
    if (data[0] != job.worldSize()) return "wrong sum";
    status = (*session)->leave(soon());
    const StageTimes times = (*session)->times();
    if (!(0 <= times.boundSeconds && times.boundSeconds <= times.channelSeconds &&
          times.channelSeconds <= times.gateSeconds && times.gateSeconds <= times.readySeconds &&
          times.readySeconds <= times.allReadySeconds && times.allReadySeconds <= times.leavingSeconds &&
          times.leavingSeconds <= times.leftSeconds && times.peakBytes > 0)) {
      return "times out of order";
    }
    return describeFailure(status);
  });
  job.releasePorts();
  for (const ChildResult& result : group.wait(kPatience)) EXPECT_EQ(result.text, "OK");
  EXPECT_EQ(job.leftovers(), "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, SessionShapes,
                         ::testing::Values(std::pair(1, 1), std::pair(1, 3), std::pair(2, 2), std::pair(3, 1),
                                           std::pair(3, 2)),
                         [](const auto& shape) {
                           return absl::StrCat(shape.param.first, "x", shape.param.second);
                         });

// "gate ready": when each process passed its gate and when its group was ready.
std::vector<std::pair<double, double>> stagesOf(SessionJob& job, const StartMode& mode) {
  ProcessGroup group(job.worldSize(), [&](int rank) -> std::string {
    LaunchContract contract = job.contract(rank);
    contract.start = mode;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(contract, quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    const StageTimes times = (*session)->times();
    if (const absl::Status status = (*session)->leave(soon()); !status.ok()) return describeFailure(status);
    const double begin = std::chrono::duration<double>(times.begin.time_since_epoch()).count();
    char text[64];
    std::snprintf(text, sizeof(text), "%.9f %.9f", begin + times.gateSeconds, begin + times.readySeconds);
    return text;
  });
  job.releasePorts();
  std::vector<std::pair<double, double>> stages;
  for (const ChildResult& result : group.wait(kPatience)) {
    double gate = 0, ready = 0;
    EXPECT_EQ(std::sscanf(result.text.c_str(), "%lf %lf", &gate, &ready), 2) << result.text;
    stages.emplace_back(gate, ready);
  }
  return stages;
}

TEST(Session, LetsAGroupThroughTheGate_OnlyWhenTheOneBeforeItIsReady) {
  SessionJob job(2, 3, "session-gate");
  const auto stages = stagesOf(job, {true, milliseconds(0)});
  for (size_t machine = 0; machine < 2; ++machine) {
    for (size_t proc = 1; proc < 3; ++proc) {
      // A group is ready on both machines at its barrier; each machine's gate hears of its own.
      EXPECT_GE(stages[machine * 3 + proc].first, stages[machine * 3 + proc - 1].second);
    }
  }
}

TEST(Session, SleepsBetweenGroups_WhenAskedTo) {
  SessionJob job(2, 3, "session-sleep");
  const double begin = now();
  const auto stages = stagesOf(job, {false, milliseconds(300)});
  for (size_t machine = 0; machine < 2; ++machine) {
    for (size_t proc = 0; proc < 3; ++proc) {
      EXPECT_GE(stages[machine * 3 + proc].first, begin + 0.3 * static_cast<double>(proc));
    }
  }
}

// On which ports the processes of a job listen before they start, and when they are ready. Each has a socket for its
// group's port, as a launcher hands it over: inheritable.
std::vector<std::string> listeningBeforeAndAfterStart(int machines, int procs) {
  SessionJob job(machines, procs, "session-listening");
  ProcessGroup group(job.worldSize(), [&](int rank) -> std::string {
    LaunchContract contract = job.contract(rank);
    if (machines == 1) {
      absl::StatusOr<FileDescriptor> fd = listenTcp({"127.0.0.1", 0}, 1);
      if (!fd.ok()) return describeFailure(fd.status());
      contract.masterFd = fd->release();
    }
    if (contract.masterFd >= 0 && !setCloseOnExec(contract.masterFd, false).ok()) return "inheritable";
    const size_t before = farhop::testing::listeningPorts(::getpid()).size();
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(contract, quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    const size_t ready = farhop::testing::listeningPorts(::getpid()).size();
    const absl::Status left = (*session)->leave(soon());
    return left.ok() ? absl::StrCat(before, " then ", ready) : describeFailure(left);
  });
  job.releasePorts();
  std::vector<std::string> results;
  for (const ChildResult& result : group.wait(kPatience)) results.push_back(result.text);
  return results;
}

TEST(Session, ListensOnNoPort_OnceItIsReady) {
  EXPECT_THAT(listeningBeforeAndAfterStart(1, 1), ::testing::ElementsAre("1 then 0"));
  EXPECT_THAT(listeningBeforeAndAfterStart(1, 2), ::testing::ElementsAre("1 then 0", "1 then 0"));
  EXPECT_THAT(listeningBeforeAndAfterStart(2, 1), ::testing::ElementsAre("1 then 0", "0 then 0"));
}

TEST(Session, GivesTheMastersSocketToNoProgramThatItsTrainerStarts) {
  SessionJob job(2, 2, "session-inherit");
  ProcessGroup group(1, [&](int) -> std::string {
    const LaunchContract contract = job.contract(0);
    if (!setCloseOnExec(contract.masterFd, false).ok()) return "inheritable";
    // Still before the store takes it.
    static int masterFd;
    masterFd = contract.masterFd;
    rpc::stageHook = [](const char* stage) {
      if (std::string(stage) == "channel/open") {
        ProcessGroup::signalLine(::fcntl(masterFd, F_GETFD) == FD_CLOEXEC ? "close-on-exec" : "inheritable");
      }
    };
    SessionOptions options = quickOptions();
    options.startTimeout = milliseconds(1'000);
    return describeFailure(Session::start(contract, options).status());
  });
  job.releasePorts();
  EXPECT_TRUE(group.awaitLine(0, "close-on-exec", kPatience));
  (void)group.wait(kPatience);
}

TEST(Session, LeavesADescriptorAlone_ThatIsNoListeningSocket) {
  LaunchContract contract;
  contract.masterPort = 1;
  FileDescriptor file(::open("/dev/null", O_RDONLY));
  contract.masterFd = file.get();
  absl::StatusOr<std::unique_ptr<Session>> session = Session::start(contract, quickOptions());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(::fcntl(file.get(), F_GETFD), 0);
}

TEST(Session, ListensOnTheMastersPort_WhenNoSocketIsHandedOver) {
  SessionJob job(2, 2, "session-port");
  job.releasePorts();
  ProcessGroup group(4, [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    return describeFailure(session.ok() ? (*session)->leave(soon()) : session.status());
  });
  for (const ChildResult& result : group.wait(kPatience)) EXPECT_EQ(result.text, "OK");
}

TEST(Session, ConnectsAProcessOnlyToItsGroupAndItsMachine) {
  SessionJob job(3, 2, "session-peers");
  ProcessGroup group(job.worldSize(), [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    ProcessGroup::signalLine("ready");
    (void)(*session)->failure().waitFor(soon());
    return "ended";
  });
  job.releasePorts();
  std::vector<int> pids;
  for (int rank = 0; rank < job.worldSize(); ++rank) {
    ASSERT_TRUE(group.awaitLine(rank, "ready", kPatience));
    pids.push_back(group.pid(rank));
  }
  const auto counts = farhop::testing::connectionsBetween(pids);
  for (int a = 0; a < job.worldSize(); ++a) {
    for (int b = 0; b < job.worldSize(); ++b) {
      if (a == b) continue;
      const int count = counts[static_cast<size_t>(a)][static_cast<size_t>(b)];
      if (job.procOf(a) == job.procOf(b)) {
        // TensorPipe's pipe (a connection or more), and one of Gloo's.
        EXPECT_GE(count, 2) << a << " and " << b << " of one group";
      } else if (job.machineOf(a) == job.machineOf(b)) {
        EXPECT_EQ(count, 1) << a << " and " << b << " of one machine: Gloo's mesh alone";
      } else {
        EXPECT_EQ(count, 0) << a << " and " << b << " have nothing in common";
      }
    }
  }
}

TEST(Session, RefusesAContractThatCannotWork_AtOnce) {
  LaunchContract contract;
  contract.procsPerMachine = 0;
  EXPECT_THAT(describeFailure(Session::start(contract, quickOptions()).status()),
              ::testing::AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("procsPerMachine is 0")));
  contract.procsPerMachine = 2;
  contract.proc = 7;
  EXPECT_THAT(describeFailure(Session::start(contract, quickOptions()).status()), HasSubstr("proc is 7"));
}

TEST(Session, RefusesAWrongToken) {
  SessionJob job(2, 1, "session-token");
  ProcessGroup group(2, [&](int rank) -> std::string {
    LaunchContract contract = job.contract(rank);
    if (rank == 1) contract.token = "another";
    SessionOptions options = quickOptions();
    options.startTimeout = milliseconds(3'000);
    return describeFailure(Session::start(contract, options).status());
  });
  job.releasePorts();
  const std::vector<ChildResult> results = group.wait(kPatience);
  EXPECT_THAT(results[1].text, HasSubstr("PERMISSION_DENIED"));
  EXPECT_THAT(results[1].text, HasSubstr("token"));
  EXPECT_THAT(results[0].text, HasSubstr("DEADLINE_EXCEEDED"));  // a stranger must not end a start
}

// The hook runs on the thread that would look up the master's name: it stays there, as a resolver might.
TEST(Session, EndsAtItsDeadline_WhenTheResolverDoesNot) {
  SessionJob job(2, 1, "session-resolver");
  ProcessGroup group(1, [&](int) -> std::string {
    LaunchContract contract = job.contract(1);
    rpc::stageHook = [](const char* stage) {
      while (std::string(stage) == "store/resolve") ::pause();
    };
    SessionOptions options = quickOptions();
    options.startTimeout = milliseconds(500);
    return describeFailure(Session::start(contract, options).status());
  });
  job.releasePorts();
  const ChildResult result = group.wait(kPatience)[0];
  EXPECT_THAT(result.text, ::testing::AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("looking up '127.0.0.1'")));
  EXPECT_LT(result.lifetime, milliseconds(4'000));
}

TEST(Session, SaysSo_WhenTheMastersPortIsInUse) {
  SessionJob job(2, 2, "session-busy");
  ProcessGroup group(4, [&](int rank) -> std::string {
    LaunchContract contract = job.contract(rank);
    // This process of the test goes on listening on both ports.
    contract.masterFd = -1;
    SessionOptions options = quickOptions();
    options.startTimeout = milliseconds(3'000);
    return describeFailure(Session::start(contract, options).status());
  });
  const std::vector<ChildResult> results = group.wait(kPatience);
  EXPECT_THAT(results[0].text, HasSubstr("ALREADY_EXISTS"));
  EXPECT_THAT(results[0].text, HasSubstr(absl::StrCat("127.0.0.1 port ", job.port())));
  for (const ChildResult& result : results) {
    EXPECT_TRUE(result.finished);
    EXPECT_THAT(result.text, ::testing::Not(HasSubstr("OK")));
  }
  // The other group on the same machine hears why, unless it has found its own port in use meanwhile.
  EXPECT_THAT(results[1].text, HasSubstr("in use"));
}

TEST(Session, SaysSo_WhenTheMasterDoesNotResolve) {
  SessionJob job(2, 1, "session-resolve");
  job.releasePorts();
  ProcessGroup group(2, [&](int rank) -> std::string {
    LaunchContract contract = job.contract(rank);
    contract.masterAddr = "no-such-host.invalid";
    return describeFailure(Session::start(contract, quickOptions()).status());
  });
  for (const ChildResult& result : group.wait(kPatience)) {
    EXPECT_THAT(result.text, HasSubstr("NOT_FOUND"));
    EXPECT_THAT(result.text, HasSubstr("no-such-host.invalid"));
  }
}

TEST(Session, SaysWhatItWaitsFor_WhenAProcessNeverStarts) {
  SessionJob job(2, 2, "session-missing");
  // Rank 3 is missing.
  ProcessGroup group(3, [&](int rank) -> std::string {
    SessionOptions options = quickOptions();
    options.startTimeout = milliseconds(2'000);
    return describeFailure(Session::start(job.contract(rank), options).status());
  });
  job.releasePorts();
  const std::vector<ChildResult> results = group.wait(kPatience);
  for (const ChildResult& result : results) EXPECT_THAT(result.text, HasSubstr("DEADLINE_EXCEEDED"));
  // Its neighbour and its group miss the process itself.
  for (size_t rank : {1, 2}) {
    EXPECT_THAT(results[rank].text, ::testing::StartsWith("machine 1 process 1 |"));
    EXPECT_THAT(results[rank].text, HasSubstr("kill-on-bad-exit"));
  }
  EXPECT_THAT(results[0].text, HasSubstr("process 1"));
}

// As in a Slurm step, where nobody reserves the ports.
TEST(Session, MeetsOnAnotherPort_WhenStrangersHaveTheFirst) {
  SessionJob job(2, 2, "session-ports"), free(2, 2, "session-free");
  free.releasePorts();
  ProcessGroup group(4, [&](int rank) -> std::string {
    LaunchContract contract = job.contract(rank);
    contract.masterFd = -1;
    contract.otherMasterPorts = {free.port()};
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(contract, quickOptions());
    return describeFailure(session.ok() ? (*session)->leave(soon()) : session.status());
  });
  // The test itself is the stranger: silent on the first group's port, a web server on the second's.
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop) {
      FileDescriptor client(::accept(job.listener(1), nullptr, nullptr));
      const std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
      if (client.valid()) (void)sendAll(client.get(), answer.data(), answer.size(), soon());
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (const ChildResult& result : group.wait(kPatience)) EXPECT_EQ(result.text, "OK");
  stop = true;
  server.join();
}

TEST(Session, NamesAllPorts_WhenStrangersHaveThemAll) {
  SessionJob job(2, 1, "session-ports"), other(2, 1, "session-others");
  ProcessGroup group(2, [&](int rank) -> std::string {
    LaunchContract contract = job.contract(rank);
    contract.masterFd = -1;
    contract.otherMasterPorts = {other.port()};
    SessionOptions options = quickOptions();
    options.startTimeout = milliseconds(1'500);
    return describeFailure(Session::start(contract, options).status());
  });
  const std::vector<ChildResult> results = group.wait(kPatience);
  EXPECT_THAT(results[0].text, HasSubstr(absl::StrCat("the ports ", job.port(), ", ", other.port(), " of 127.0.0.1 are all in use")));
  EXPECT_THAT(results[1].text, ::testing::AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr(absl::StrCat(":", job.port(), ":")),
                                                HasSubstr(absl::StrCat(":", other.port(), ":"))));
}

TEST(Session, TellsEveryoneWhy_WhenAProcessAbandonsIt) {
  SessionJob job(2, 2, "session-abandon");
  ProcessGroup group(4, [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    if (rank == 3) {
      (*session)->abandon(absl::DataLossError("feature file x is damaged"));
      return "abandoned";
    }
    return describeFailure((*session)->leave(soon()));
  });
  job.releasePorts();
  const std::vector<ChildResult> results = group.wait(kPatience);
  EXPECT_EQ(results[3].text, "abandoned");
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(results[rank].text, HasSubstr("machine 1 process 1"));
    EXPECT_THAT(results[rank].text, HasSubstr("DATA_LOSS"));
    EXPECT_THAT(results[rank].text, HasSubstr("feature file x is damaged"));
  }
}

TEST(Session, LeavesWhenItIsDestroyed) {
  SessionJob job(2, 1, "session-destroy");
  ProcessGroup group(2, [&](int rank) -> std::string {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), quickOptions());
    if (!session.ok()) return describeFailure(session.status());
    if (rank == 1) return describeFailure((*session)->leave(soon()));
    session->reset();
    return "destroyed";
  });
  job.releasePorts();
  const std::vector<ChildResult> results = group.wait(kPatience);
  EXPECT_EQ(results[0].text, "destroyed");
  EXPECT_EQ(results[1].text, "OK");
}

}  // namespace
}  // namespace farhop::runtime
