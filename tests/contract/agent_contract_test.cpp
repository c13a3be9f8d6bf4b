// What every agent promises, over every transport, with peers as threads of one process.
#include <gmock/gmock.h>

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>

#include "tests/agent_group.h"
#include "tests/captured_log.h"

namespace farhop::rpc {
namespace {

using namespace farhop::rpc::testing;
using ::testing::HasSubstr;

class AgentContract : public ::testing::TestWithParam<TransportKind> {
 protected:
  std::vector<std::unique_ptr<Agent>> group(int size, void (*adjust)(AgentOptions&) = nullptr) {
    return connectedGroup(GetParam(), size, adjust);
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, AgentContract,
                         ::testing::Values(TransportKind::kInProcess, TransportKind::kUv, TransportKind::kShm),
                         [](const auto& instance) {
                           return instance.param == TransportKind::kUv    ? "Uv"
                                  : instance.param == TransportKind::kShm ? "Shm"
                                                                      : "InProcess";
                         });

// A gate that handlers wait at.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait_for(lock, std::chrono::seconds(30), [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// Keeps responders without answering them.
struct Shelf {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Responder> responders;
  Handler handler() {
    return [this](Request, Responder responder) {
      std::lock_guard lock(mutex);
      responders.push_back(std::move(responder));
      changed.notify_all();
    };
  }
  bool waitFor(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] { return responders.size() >= count; });
  }
};

TEST_P(AgentContract, AnswersACall) {
  auto agents = group(2);
  agents[0]->handle(7, echo);
  Answer answer = callNow(*agents[1], 0, 7, oneArray("hello"));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.arrays.size(), 1u);
  EXPECT_EQ(textOf(answer.arrays[0]), "hello");
  leaveTogether(agents);
}

TEST_P(AgentContract, WorksAloneInItsGroup) {
  auto agents = group(1);
  EXPECT_TRUE(agents[0]->farewell(soon()).ok());
}

TEST_P(AgentContract, ReceivesArraysInPlace) {
  class InPlace : public ReplySink {
   public:
    absl::StatusOr<std::vector<void*>> allocate(std::span<const size_t> sizes) override {
      seen.assign(sizes.begin(), sizes.end());
      return std::vector<void*>{a.data(), b.data()};
    }
    std::vector<uint32_t> a = std::vector<uint32_t>(3), b = std::vector<uint32_t>(2);
    std::vector<size_t> seen;
  };
  auto agents = group(2);
  agents[1]->handle(1, [](Request, Responder responder) {
    responder.reply({OutArray::fromVector(std::vector<uint32_t>{1, 2, 3}), OutArray::fromVector(std::vector<uint32_t>{4, 5})});
  });
  auto sink = std::make_shared<InPlace>();
  PendingAnswer pending;
  agents[0]->call(1, 1, {}, soon(), sink, pending.completion());
  EXPECT_TRUE(pending.wait().status.ok());
  EXPECT_EQ(sink->a, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(sink->b, (std::vector<uint32_t>{4, 5}));
  EXPECT_EQ(sink->seen, (std::vector<size_t>{12, 8}));
}

TEST_P(AgentContract, CarriesEmptyArrays) {
  auto agents = group(2);
  agents[0]->handle(7, echo);
  std::vector<OutArray> arrays(3);
  arrays[1] = OutArray::fromVector(std::string("x"));
  Answer answer = callNow(*agents[1], 0, 7, std::move(arrays));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.arrays.size(), 3u);
  EXPECT_EQ(answer.arrays[0].size(), 0u);
  EXPECT_EQ(textOf(answer.arrays[1]), "x");
  EXPECT_EQ(answer.arrays[2].size(), 0u);
  EXPECT_TRUE(callNow(*agents[1], 0, 7, {}).status.ok());
}

TEST_P(AgentContract, CarriesALongArray_BeyondTheInflightBound) {
  auto agents = group(2);
  agents[0]->handle(7, echo);
  std::vector<uint64_t> numbers(100'000'000 / 8);
  std::mt19937_64 random(1);
  for (uint64_t& number : numbers) number = random();
  OutArray array{numbers.data(), numbers.size() * 8, nullptr};
  Answer answer = callNow(*agents[1], 0, 7, {array}, soon(60'000));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.arrays[0].size(), numbers.size() * 8);
  EXPECT_EQ(std::memcmp(answer.arrays[0].data(), numbers.data(), numbers.size() * 8), 0);
  leaveTogether(agents);
}

TEST_P(AgentContract, AnswersManyCallsInBothDirectionsAtOnce) {
  auto agents = group(3, [](AgentOptions& options) { options.servingThreads = 2; });
  for (auto& agent : agents) agent->handle(7, echo);
  std::vector<std::thread> threads;
  for (int me = 0; me < 3; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937 random(static_cast<uint32_t>(me));
      for (int round = 0; round < 20; ++round) {
        std::vector<std::pair<std::string, PendingAnswer>> pending;
        for (int i = 0; i < 30; ++i) {
          const std::string text(random() % 20'000, static_cast<char>('a' + i % 26));
          const int peer = (me + 1 + i % 2) % 3;
          pending.emplace_back(text, callAsync(*agents[static_cast<size_t>(me)], peer, 7, oneArray(text)));
        }
        for (auto& [text, one] : pending) {
          Answer answer = one.wait();
          ASSERT_TRUE(answer.status.ok()) << answer.status;
          ASSERT_EQ(textOf(answer.arrays[0]), text);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  leaveTogether(agents);
}

TEST_P(AgentContract, SendsWaitingCallsTogether) {
  auto agents = group(2);
  agents[0]->handle(7, echo);
  std::string big(20'000'000, 'x');
  std::vector<PendingAnswer> pending;
  pending.push_back(callAsync(*agents[1], 0, 7, oneArray(big)));
  for (int i = 0; i < 500; ++i) pending.push_back(callAsync(*agents[1], 0, 7, oneArray("small")));
  for (PendingAnswer& one : pending) EXPECT_TRUE(one.wait().status.ok());
  const PeerTraffic traffic = agents[1]->traffic();
  EXPECT_EQ(traffic.callsSent, 501u);
  EXPECT_LT(traffic.messagesSent, 100u);
  EXPECT_GT(traffic.bytesSent, big.size());
  EXPECT_GT(traffic.bytesReceived, big.size());
}

TEST_P(AgentContract, EndsACallAtItsDeadline_AndGoesOn) {
  auto agents = group(2);
  Shelf shelf;
  agents[0]->handle(1, shelf.handler());
  agents[0]->handle(7, echo);
  const auto start = Clock::now();
  Answer answer = callNow(*agents[1], 0, 1, oneArray("late"), soon(100));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("machine 0 process 0"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(callNow(*agents[1], 0, 7, oneArray("x")).status.ok());
  // The late answer is dropped, and disturbs nothing.
  ASSERT_TRUE(shelf.waitFor(1));
  shelf.responders[0].reply(oneArray(std::string(100'000, 'y')));
  EXPECT_TRUE(callNow(*agents[1], 0, 7, oneArray("x")).status.ok());
  leaveTogether(agents);
}

TEST_P(AgentContract, HandsTheDeadlineToTheHandler) {
  auto agents = group(2);
  std::atomic<int> left{0};
  agents[0]->handle(1, [&](Request request, Responder responder) {
    left = request.deadline.remainingMs();
    responder.reply({});
  });
  EXPECT_TRUE(callNow(*agents[1], 0, 1, {}, soon(10'000)).status.ok());
  EXPECT_GT(left, 1000);
  EXPECT_LE(left, 10'000);
}

TEST_P(AgentContract, DoesNotRunExpiredRequests) {
  auto agents = group(2);
  Gate gate;
  std::atomic<int> ran{0};
  agents[0]->handle(1, [&](Request, Responder responder) {
    gate.wait();
    responder.reply({});
  });
  agents[0]->handle(2, [&](Request, Responder responder) {
    ++ran;
    responder.reply({});
  });
  auto first = callAsync(*agents[1], 0, 1, {});
  auto second = callAsync(*agents[1], 0, 2, {}, soon(50));
  EXPECT_EQ(second.wait().status.code(), absl::StatusCode::kDeadlineExceeded);
  std::this_thread::sleep_for(milliseconds(50));
  gate.open();
  EXPECT_TRUE(first.wait().status.ok());
  leaveTogether(agents);
  EXPECT_EQ(ran, 0);
}

TEST_P(AgentContract, CarriesAHandlersFailure_WithItsPeer) {
  auto agents = group(2);
  agents[0]->handle(1, [](Request, Responder responder) {
    responder.fail(withPeer(absl::DataLossError("partition 3 is damaged"), {5, 6, "h:1"}));
  });
  agents[0]->handle(2, [](Request, Responder) {});
  Answer answer = callNow(*agents[1], 0, 1, {});
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(answer.status.message(), "partition 3 is damaged");
  ASSERT_TRUE(peerOf(answer.status).has_value());
  EXPECT_EQ(peerOf(answer.status)->machine, 5);
  EXPECT_EQ(callNow(*agents[1], 0, 2, {}).status.code(), absl::StatusCode::kInternal);
  Answer unknown = callNow(*agents[1], 0, 99, {});
  EXPECT_EQ(unknown.status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.status.message()), HasSubstr("99"));
}

TEST_P(AgentContract, FailsTheRequest_WhenItsHandlerRunsOutOfMemory) {
  auto agents = group(2);
  agents[0]->handle(1, [](Request, Responder) { throw std::bad_alloc(); });
  agents[0]->handle(2, [](Request, Responder responder) { responder.reply({}); });
  EXPECT_EQ(callNow(*agents[1], 0, 1, {}).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(callNow(*agents[1], 0, 2, {}).status.ok());
}

TEST_P(AgentContract, EndsTheCall_WhenItsSinkRefuses) {
  class Refusing : public ReplySink {
   public:
    absl::StatusOr<std::vector<void*>> allocate(std::span<const size_t>) override {
      return absl::OutOfRangeError("too many rows");
    }
  };
  auto agents = group(2);
  agents[0]->handle(7, echo);
  PendingAnswer refused;
  agents[1]->call(0, 7, oneArray("abc"), soon(), std::make_shared<Refusing>(), refused.completion());
  EXPECT_EQ(refused.wait().status, absl::OutOfRangeError("too many rows"));
  PendingAnswer none;
  agents[1]->call(0, 7, oneArray("abc"), soon(), nullptr, none.completion());
  EXPECT_EQ(none.wait().status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(callNow(*agents[1], 0, 7, oneArray("x")).status.ok());
}

TEST_P(AgentContract, RefusesLongMessages) {
  auto agents = group(2, [](AgentOptions& options) {
    options.maxMessageBytes = options.rank == 0 ? 1000 : 5000;  // the smaller of both counts
    options.maxArraysPerMessage = 4;
  });
  for (auto& agent : agents) agent->handle(7, echo);
  agents[1]->handle(2, [](Request, Responder responder) { responder.reply(oneArray(std::string(2000, 'x'))); });
  EXPECT_EQ(callNow(*agents[1], 0, 7, oneArray(std::string(1001, 'x'))).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(callNow(*agents[1], 0, 7, std::vector<OutArray>(5)).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(callNow(*agents[0], 1, 2, {}).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(callNow(*agents[1], 0, 7, oneArray(std::string(1000, 'x'))).status.ok());
}

TEST_P(AgentContract, BoundsTheCallsUnderWay) {
  auto agents = group(2, [](AgentOptions& options) { options.maxQueuedCallsPerPeer = 10; });
  Shelf shelf;
  agents[0]->handle(1, shelf.handler());
  std::vector<PendingAnswer> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(callAsync(*agents[1], 0, 1, {}));
  EXPECT_EQ(callNow(*agents[1], 0, 1, {}).status.code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(shelf.waitFor(10));
  for (Responder& responder : shelf.responders) responder.reply({});
  for (PendingAnswer& one : pending) EXPECT_TRUE(one.wait().status.ok());
}

TEST_P(AgentContract, TakesTheNextRequest_AsSoonAsItsBoundAllows) {
  auto agents = group(2, [](AgentOptions& options) {
    options.maxQueuedCallsPerPeer = 4;
    options.maxInflightBytesPerPeer = 100;
    options.servingThreads = 2;
  });
  agents[0]->handle(7, echo);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 300; ++k) {
        const absl::Status status = callNow(*agents[1], 0, 7, oneArray(std::string(60, 'x'))).status;
        ASSERT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(AgentContract, HoldsCallsBack_BeyondTheInflightBytes) {
  auto agents = group(2, [](AgentOptions& options) { options.maxInflightBytesPerPeer = 1000; });
  Shelf shelf;
  agents[0]->handle(1, shelf.handler());
  std::vector<PendingAnswer> pending;
  for (int i = 0; i < 5; ++i) pending.push_back(callAsync(*agents[1], 0, 1, oneArray(std::string(400, 'x'))));
  ASSERT_TRUE(shelf.waitFor(2));
  std::this_thread::sleep_for(milliseconds(30));
  for (size_t answered = 0; answered < 5; ++answered) {
    ASSERT_TRUE(shelf.waitFor(answered + 1));
    std::lock_guard lock(shelf.mutex);
    EXPECT_LE(shelf.responders.size(), answered + 2);
    shelf.responders[answered].reply({});
  }
  for (PendingAnswer& one : pending) EXPECT_TRUE(one.wait().status.ok());
}

TEST_P(AgentContract, HoldsRequestsBack_WhenRepliesGather) {
  auto agents = group(2, [](AgentOptions& options) {
    options.maxInflightBytesPerPeer = 10'000;
    options.servingThreads = 2;
  });
  for (auto& agent : agents) {
    agent->handle(1, [](Request, Responder responder) { responder.reply(oneArray(std::string(200'000, 'x'))); });
  }
  std::vector<PendingAnswer> pending;
  for (int i = 0; i < 100; ++i) {
    pending.push_back(callAsync(*agents[0], 1, 1, {}));
    pending.push_back(callAsync(*agents[1], 0, 1, {}));
  }
  for (PendingAnswer& one : pending) EXPECT_TRUE(one.wait().status.ok());
  leaveTogether(agents);
}

TEST_P(AgentContract, ReportsALostPeer_EverywhereAtOnce) {
  Shelf shelf;
  std::atomic<int> lostCalls{0};
  auto agents = group(3);
  for (auto& agent : agents) {
    agent->handle(1, shelf.handler());
    agent->handle(7, echo);
  }
  agents[0]->onPeerLost([&](int peer, absl::Status) { lostCalls += peer == 2 ? 1 : 100; });
  std::vector<PendingAnswer> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(callAsync(*agents[0], 2, 1, oneArray("x")));
  ASSERT_TRUE(shelf.waitFor(10));
  const auto start = Clock::now();
  agents[2]->close(absl::InternalError("bye"));
  for (PendingAnswer& one : pending) {
    const absl::Status status = one.wait().status;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    ASSERT_TRUE(peerOf(status).has_value()) << status;
    EXPECT_EQ(peerOf(status)->machine, 2);
    EXPECT_FALSE(peerOf(status)->address.empty());
    EXPECT_THAT(std::string(status.message()), HasSubstr("machine 2 process 0 ("));
    EXPECT_THAT(std::string(status.message()), HasSubstr("was lost: connection"));
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(callNow(*agents[0], 2, 7, {}).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(callNow(*agents[0], 1, 7, oneArray("still here")).status.ok());
  EXPECT_EQ(agents[0]->farewell(soon()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lostCalls, 1);
  agents[0]->close(absl::OkStatus());
}

TEST_P(AgentContract, WaitsForTheSlowPeer_AtTheFarewell) {
  std::atomic<int> lost{0};
  auto agents = group(3);
  for (auto& agent : agents) {
    agent->handle(7, echo);
    agent->onPeerLost([&](int, absl::Status) { ++lost; });
  }
  std::vector<std::thread> leaving;
  std::atomic<int> left{0};
  for (int i = 0; i < 2; ++i) {
    leaving.emplace_back([&, i] {
      EXPECT_TRUE(agents[static_cast<size_t>(i)]->farewell(soon()).ok());
      ++left;
      agents[static_cast<size_t>(i)]->close(absl::OkStatus());
    });
  }
  // The slow one still asks, and is answered.
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_TRUE(callNow(*agents[2], i % 2, 7, oneArray("x")).status.ok());
  }
  EXPECT_EQ(left, 0);
  EXPECT_TRUE(agents[2]->farewell(soon()).ok());
  for (std::thread& thread : leaving) thread.join();
  agents[2]->close(absl::OkStatus());
  EXPECT_EQ(lost, 0);
}

TEST_P(AgentContract, EndsTheFarewellAtItsDeadline_NamingWhomItWaitedFor) {
  auto agents = group(2);
  const absl::Status status = agents[0]->farewell(soon(50));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(peerOf(status)->machine, 1);
  EXPECT_EQ(callNow(*agents[0], 1, 7, {}).status.code(), absl::StatusCode::kFailedPrecondition);
  // Rank 0 goes anyway: rank 1 has its farewell, so it has left rather than been lost.
  agents[0]->close(absl::OkStatus());
  EXPECT_TRUE(agents[1]->farewell(soon()).ok());
}

TEST_P(AgentContract, EndsCallsUnderWay_WhenClosed) {
  auto agents = group(2);
  Shelf shelf;
  agents[1]->handle(1, shelf.handler());
  std::vector<PendingAnswer> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(callAsync(*agents[0], 1, 1, oneArray("x")));
  ASSERT_TRUE(shelf.waitFor(10));
  agents[0]->close(absl::AbortedError("the user gave up"));
  agents[0]->close(absl::AbortedError("again"));
  for (PendingAnswer& one : pending) {
    ASSERT_TRUE(one.ready());
    EXPECT_EQ(one.wait().status, absl::AbortedError("the user gave up"));
  }
  EXPECT_EQ(callNow(*agents[0], 1, 1, {}).status, absl::AbortedError("the user gave up"));
}

TEST_P(AgentContract, EndsConnect_WhenClosedMeanwhile) {
  auto agents = makeGroup({optionsFor(GetParam(), 0, 2), optionsFor(GetParam(), 1, 2)});
  std::vector<std::string> addresses{agents[0]->address(), agents[1]->address()};
  absl::Status status;
  std::thread connecting([&] { status = agents[0]->connect(addresses, soon()); });
  std::this_thread::sleep_for(milliseconds(30));
  agents[0]->close(absl::AbortedError("stop"));
  connecting.join();
  EXPECT_EQ(status, absl::AbortedError("stop"));
}

TEST_P(AgentContract, NamesWhoIsMissing_WhenConnectTimesOut) {
  auto agents = makeGroup({optionsFor(GetParam(), 1, 3)});
  const std::string nobody = GetParam() == TransportKind::kUv    ? "uv://127.0.0.1:1"
                             : GetParam() == TransportKind::kShm ? "shm://farhop-nobody"
                                                                 : "inproc://nobody";
  const absl::Status status = agents[0]->connect({nobody, agents[0]->address(), nobody}, soon(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("machine 0 process 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("machine 2 process 0"));
  EXPECT_EQ(peerOf(status)->machine, 0);
}

TEST_P(AgentContract, RefusesABadAddress) {
  auto agents = makeGroup({optionsFor(GetParam(), 1, 2)});
  const absl::Status status = agents[0]->connect({"uv://no such host:99999", ""}, soon(5000));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

class AgentMismatch : public AgentContract {
 protected:
  // Both sides' errors.
  std::pair<absl::Status, absl::Status> connectWith(AgentOptions other) {
    auto agents = makeGroup({optionsFor(GetParam(), 0, 2), std::move(other)});
    const auto start = Clock::now();
    auto statuses = connectAll(agents, soon(1'500));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
    return {statuses[0], statuses[1]};
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, AgentMismatch,
                         ::testing::Values(TransportKind::kInProcess, TransportKind::kUv, TransportKind::kShm));

TEST_P(AgentMismatch, RefusesAWrongToken_AndSaysSoInTheLogAtOnce) {
  AgentOptions other = optionsFor(GetParam(), 1, 2);
  other.token = "guess";
  farhop::testing::CapturedLog log;
  auto [accepting, dialling] = connectWith(other);
  EXPECT_EQ(dialling.code(), absl::StatusCode::kPermissionDenied) << dialling;
  EXPECT_THAT(std::string(dialling.message()), HasSubstr("token"));
  EXPECT_THAT(std::string(dialling.message()), HasSubstr("machine 0 process 0"));
  EXPECT_EQ(std::string(dialling.message()).find("secret"), std::string::npos);
  EXPECT_EQ(accepting.code(), absl::StatusCode::kDeadlineExceeded) << "a stranger must not fail a start";
  EXPECT_THAT(log.text(), HasSubstr("refused"));
  EXPECT_THAT(log.text(), HasSubstr("rank 1 (machine 1 process 0): its token is not that of job 'job'"));
  EXPECT_EQ(log.text().find("guess"), std::string::npos);
}

TEST_P(AgentMismatch, RefusesAnotherJob_AndSaysSoInTheLogAtOnce) {
  AgentOptions other = optionsFor(GetParam(), 1, 2);
  other.jobId = "another";
  farhop::testing::CapturedLog log;
  auto [accepting, dialling] = connectWith(other);
  EXPECT_THAT(std::string(dialling.message()), HasSubstr("job 'another'"));
  EXPECT_EQ(accepting.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(log.text(), HasSubstr("belongs to job"));
}

TEST_P(AgentMismatch, IsAnErrorOnBothSides_ForTheGroupsSize) {
  AgentOptions other = optionsFor(GetParam(), 1, 2);
  auto agents = makeGroup({optionsFor(GetParam(), 0, 3), std::move(other)});
  std::vector<std::string> addresses{agents[0]->address(), agents[1]->address()};
  absl::Status accepting, dialling;
  std::thread first([&] { accepting = agents[0]->connect({addresses[0], addresses[1], ""}, soon()); });
  dialling = agents[1]->connect(addresses, soon());
  first.join();
  EXPECT_THAT(std::string(accepting.message()), HasSubstr("group has 2 members"));
  EXPECT_THAT(std::string(dialling.message()), HasSubstr("group has 2 members"));
}

TEST(AgentCreate, RefusesABindAddress_ThatIsNoneOfThisMachine) {
  AgentOptions options = optionsFor(TransportKind::kUv, 0, 1);
  options.bindAddress = "192.0.2.1";
  EXPECT_FALSE(Agent::create(options).ok());
  options.bindAddress = "localhost";
  EXPECT_EQ(Agent::create(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.bindAddress = "";
  EXPECT_EQ(Agent::create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

// The signal mask of each TensorPipe thread of this process.
std::vector<uint64_t> blockedByTensorPipeThreads() {
  std::vector<uint64_t> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool tensorPipe = false;
    for (std::string line; std::getline(status, line);) {
      tensorPipe = tensorPipe || line.rfind("Name:\tTP_", 0) == 0;
      if (tensorPipe && line.rfind("SigBlk:", 0) == 0) masks.push_back(std::stoull(line.substr(7), nullptr, 16));
    }
  }
  return masks;
}

TEST(AgentCreate, BlocksSigPipe_InTensorPipesThreadsOnly) {
  auto agent = Agent::create(optionsFor(TransportKind::kUv, 0, 1));
  ASSERT_TRUE(agent.ok());
  const std::vector<uint64_t> masks = blockedByTensorPipeThreads();
  ASSERT_FALSE(masks.empty());
  for (uint64_t mask : masks) EXPECT_TRUE((mask >> (SIGPIPE - 1)) & 1);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_FALSE(sigismember(&own, SIGPIPE));
}

TEST(AgentConnect, ConnectsALargeGroup_WithFewConnectsAtATime) {
  auto agents = connectedGroup(TransportKind::kUv, 12, [](AgentOptions& options) { options.maxConnectsUnderWay = 2; });
  agents[0]->handle(7, echo);
  EXPECT_TRUE(callNow(*agents[11], 0, 7, oneArray("x")).status.ok());
  leaveTogether(agents);
}

TEST(AgentCreate, RefusesARankOutsideTheGroup) {
  EXPECT_EQ(Agent::create(optionsFor(TransportKind::kInProcess, 2, 2)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace farhop::rpc
