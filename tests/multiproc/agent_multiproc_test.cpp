// Agents of different processes: killed, stopped, leaving.
#include <gmock/gmock.h>

#include <filesystem>
#include <mutex>
#include <optional>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/agent_group.h"
#include "tests/agent_processes.h"

namespace farhop::rpc {
namespace {

using namespace farhop::rpc::testing;
using ::testing::HasSubstr;

// Timeouts differ on purpose: each side's heartbeats suit the other's patience.
class AgentProcesses : public ::testing::TestWithParam<TransportKind> {
 protected:
  // A member: creates its agent, meets the others through the test, says "connected".
  static std::unique_ptr<Agent> join(TransportKind kind, int rank, int size, Line& line, int timeoutMs = 10'000) {
    AgentOptions options = optionsFor(kind, rank, size);
    options.peerTimeout = milliseconds(timeoutMs);
    auto created = Agent::create(options);
    if (!created.ok()) {
      line.say(created.status().ToString());
      return nullptr;
    }
    std::unique_ptr<Agent> agent = *std::move(created);
    agent->handle(1, [](Request, Responder responder) {
      static auto* kept = new std::vector<Responder>;  // never answered
      kept->push_back(std::move(responder));
    });
    agent->handle(7, echo);
    line.say(agent->address());
    const std::vector<std::string> addresses = absl::StrSplit(line.hear(), ' ');
    const absl::Status status = agent->connect(addresses, soon());
    line.say(status.ok() ? "connected" : status.ToString());
    return agent;
  }
  // The test's side of join().
  static void introduce(Processes& processes) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < processes.size(); ++rank) addresses.push_back(processes.line(rank).hear());
    for (int rank = 0; rank < processes.size(); ++rank) processes.line(rank).say(absl::StrJoin(addresses, " "));
    for (int rank = 0; rank < processes.size(); ++rank) ASSERT_EQ(processes.line(rank).hear(), "connected");
  }
  static std::string describe(const absl::Status& status) {
    const std::optional<PeerName> peer = peerOf(status);
    return absl::StrCat(status.ToString(), " peer=", peer ? describePeer(*peer) : "none");
  }
  static size_t sharedMemoryFiles() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) count += entry.exists() ? 1 : 0;
    return count;
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, AgentProcesses, ::testing::Values(TransportKind::kUv, TransportKind::kShm),
                         [](const auto& instance) { return instance.param == TransportKind::kUv ? "Uv" : "Shm"; });

TEST_P(AgentProcesses, LearnAtOnce_ThatOneWasKilled) {
  const size_t before = sharedMemoryFiles();
  Processes processes(3, [&](int rank, Line& line) {
    auto agent = join(GetParam(), rank, 3, line);
    if (rank == 2) {
      line.hear(60'000);
      return;
    }
    std::vector<PendingAnswer> pending;
    for (int i = 0; i < 5; ++i) pending.push_back(callAsync(*agent, 2, 1, oneArray("x")));
    line.say("called");
    line.hear();
    const auto start = Clock::now();
    for (PendingAnswer& one : pending) line.say(describe(one.wait().status));
    line.say(Clock::now() - start < milliseconds(1000) ? "at once" : "late");
    line.say(callNow(*agent, 1 - rank, 7, oneArray("x")).status.ToString());
    line.hear();
  });
  introduce(processes);
  for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(processes.line(rank).hear(), "called");
  processes.signal(2, SIGKILL);
  EXPECT_EQ(processes.wait(2), -SIGKILL);
  for (int rank = 0; rank < 2; ++rank) processes.line(rank).say("look");
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 5; ++i) {
      const std::string text = processes.line(rank).hear();
      EXPECT_THAT(text, HasSubstr("UNAVAILABLE"));
      EXPECT_THAT(text, HasSubstr("peer=machine 2 process 0 ("));
      EXPECT_THAT(text, HasSubstr("was lost"));
    }
    EXPECT_EQ(processes.line(rank).hear(), "at once");
    EXPECT_EQ(processes.line(rank).hear(), "OK");
  }
  for (int rank = 0; rank < 2; ++rank) processes.line(rank).say("go");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(processes.wait(rank), 0);
  EXPECT_EQ(sharedMemoryFiles(), before);
}

TEST_P(AgentProcesses, LoseASilentPeer_AfterTheConfiguredTime) {
  Processes processes(2, [&](int rank, Line& line) {
    auto agent = join(GetParam(), rank, 2, line, rank == 0 ? 400 : 10'000);
    if (rank == 0) {
      auto pending = callAsync(*agent, 1, 1, oneArray("x"));
      line.say("called");
      line.hear();
      const auto start = Clock::now();
      line.say(describe(pending.wait().status));
      const auto waited = Clock::now() - start;
      line.say(waited < milliseconds(3000) && waited > milliseconds(200) ? "in time" : "not in time");
    }
    line.hear(60'000);
  });
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "called");
  std::this_thread::sleep_for(milliseconds(700));  // heartbeats keep it alive
  processes.signal(1, SIGSTOP);
  processes.line(0).say("look");
  const std::string text = processes.line(0).hear();
  EXPECT_THAT(text, HasSubstr("silent for more than 400 ms"));
  EXPECT_THAT(text, HasSubstr("peer=machine 1 process 0 ("));
  EXPECT_EQ(processes.line(0).hear(), "in time");
}

TEST_P(AgentProcesses, DoNotBlameOthers_WhenTheyWereStoppedThemselves) {
  Processes processes(2, [&](int rank, Line& line) {
    auto agent = join(GetParam(), rank, 2, line, rank == 0 ? 300 : 10'000);
    line.hear();
    if (rank == 0) line.say(callNow(*agent, 1, 7, oneArray("x")).status.ToString());
    line.hear(60'000);
  });
  introduce(processes);
  processes.signal(0, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(600));
  processes.signal(0, SIGCONT);
  processes.line(0).say("ask");
  EXPECT_EQ(processes.line(0).hear(), "OK");
}

TEST_P(AgentProcesses, LeaveTogether_AndLeaveNothingBehind) {
  const size_t before = sharedMemoryFiles();
  Processes processes(3, [&](int rank, Line& line) {
    std::atomic<int> lost{0};
    auto agent = join(GetParam(), rank, 3, line);
    agent->onPeerLost([&](int, absl::Status) { ++lost; });
    line.hear();
    for (int i = 0; i < 3; ++i) {
      if (i == rank) continue;
      EXPECT_TRUE(callNow(*agent, i, 7, oneArray(std::string(100'000, 'x'))).status.ok());
    }
    if (rank == 2) std::this_thread::sleep_for(milliseconds(150));  // the others wait
    const absl::Status status = agent->farewell(soon());
    agent->close(absl::OkStatus());
    line.say(absl::StrCat(status.ToString(), " lost ", lost.load()));
  });
  introduce(processes);
  for (int rank = 0; rank < 3; ++rank) processes.line(rank).say("go");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.line(rank).hear(), "OK lost 0");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 0);
  EXPECT_EQ(sharedMemoryFiles(), before);
}

TEST_P(AgentProcesses, FailToConnect_WhenOneDiesMeanwhile) {
  Processes processes(2, [&](int rank, Line& line) {
    auto agent = Agent::create(optionsFor(GetParam(), rank, 2));
    ASSERT_TRUE(agent.ok());
    line.say((*agent)->address());
    const std::vector<std::string> addresses = absl::StrSplit(line.hear(), ' ');
    line.say(describe((*agent)->connect(addresses, soon(300))));
  });
  const std::string a = processes.line(0).hear(), b = processes.line(1).hear();
  processes.signal(1, SIGKILL);
  processes.wait(1);
  processes.line(0).say(absl::StrCat(a, " ", b));
  const std::string text = processes.line(0).hear();
  EXPECT_THAT(text, HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_THAT(text, HasSubstr("peer=machine 1 process 0"));
}

}  // namespace
}  // namespace farhop::rpc
