// Peers that do not keep to the protocol, over every transport: the agent ends the link, says why, and goes on
// with the others. The hostile side is played with the bare transport.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <mutex>
#include <random>

#include "base/socket.h"
#include "rpc/transport.h"
#include "rpc/wire.h"
#include "tests/agent_group.h"
#include "tests/captured_log.h"

namespace farhop::rpc {
namespace {

using namespace farhop::rpc::testing;
using ::testing::HasSubstr;

Hello goodHello(int rank) {
  Hello hello;
  hello.jobId = "job";
  hello.token = "secret";
  hello.rank = rank;
  hello.size = 2;
  hello.maxMessageBytes = uint64_t{1} << 40;
  hello.maxArrays = 1000;
  hello.maxInflightBytes = uint64_t{1} << 40;
  hello.maxCalls = 1'000'000;
  hello.peerTimeoutMs = 10'000;
  return hello;
}

OutMessage message(const Frame& frame, std::vector<OutArray> arrays = {}) {
  OutMessage out;
  appendFrame(frame, &out.metadata);
  out.arrays = std::move(arrays);
  return out;
}

Frame helloFrame(const Hello& hello, uint8_t flags = 0) {
  Frame frame;
  frame.kind = FrameKind::kHello;
  frame.flags = flags;
  frame.tail = encodeHello(hello);
  return frame;
}

// A pipe with waiting calls.
struct BlockingPipe {
  std::shared_ptr<Pipe> pipe;

  absl::Status write(OutMessage out) {
    std::promise<absl::Status> done;
    pipe->write(std::move(out), [&done](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  // The next message's frames, its arrays dropped; a Status when the pipe ends.
  absl::StatusOr<std::vector<Frame>> read() {
    std::promise<absl::StatusOr<MessageDescriptor>> described;
    pipe->readDescriptor([&described](absl::StatusOr<MessageDescriptor> descriptor) { described.set_value(std::move(descriptor)); });
    FARHOP_ASSIGN_OR_RETURN(MessageDescriptor descriptor, described.get_future().get());
    std::vector<std::string> buffers;
    std::vector<void*> into;
    buffers.reserve(descriptor.arraySizes.size());
    for (size_t bytes : descriptor.arraySizes) into.push_back(buffers.emplace_back(bytes, ' ').data());
    std::promise<absl::Status> done;
    pipe->read(std::move(into), [&done](absl::Status status) { done.set_value(std::move(status)); });
    FARHOP_RETURN_IF_ERROR(done.get_future().get());
    return parseFrames(descriptor.metadata, descriptor.arraySizes, {size_t{1} << 40, 1000});
  }
  // Until the other side closes; false when it goes on for 1000 messages.
  bool endsEventually() {
    for (int i = 0; i < 1000; ++i) {
      if (!read().ok()) return true;
    }
    return false;
  }
};

// Rank 0 is an agent, rank 1 is played by the test.
class HostilePeer : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    AgentOptions options = optionsFor(GetParam(), 0, 2);
    options.maxMessageBytes = 10'000;
    options.maxInflightBytesPerPeer = 20'000;
    options.maxQueuedCallsPerPeer = 8;
    auto agent = Agent::create(options);
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    agent_->handle(7, echo);
    agent_->onPeerLost([this](int, absl::Status status) { lost_.set_value(std::move(status)); });
    transport_ = *makeTransport(GetParam());
    connecting_ = std::thread([this] { connected_ = agent_->connect({agent_->address(), ""}, soon(10'000)); });
    peer_.pipe = *transport_->connect(agent_->address());
  }
  void TearDown() override {
    if (connecting_.joinable()) connecting_.join();
    if (agent_ != nullptr) agent_->close(absl::OkStatus());
    peer_.pipe.reset();
    transport_->shutdown();
  }
  void shakeHands() {
    ASSERT_TRUE(peer_.write(message(helloFrame(goodHello(1)))).ok());
    auto welcome = peer_.read();
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    ASSERT_EQ(welcome->at(0).flags, kFlagWelcome);
    connecting_.join();
    ASSERT_TRUE(connected_.ok()) << connected_;
  }
  // What the agent said when it gave the peer up.
  std::string lossReason() {
    auto future = lost_.get_future();
    if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) return "(not lost)";
    const absl::Status status = future.get();
    EXPECT_EQ(peerOf(status)->machine, 1);
    return std::string(status.message());
  }
  static Frame request(uint64_t id, uint32_t arrays) {
    Frame frame;
    frame.kind = FrameKind::kRequest;
    frame.method = 7;
    frame.id = id;
    frame.deadlineMs = 10'000;
    frame.arrays = arrays;
    return frame;
  }

  std::promise<absl::Status> lost_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Transport> transport_;
  BlockingPipe peer_;
  std::thread connecting_;
  absl::Status connected_;
};

INSTANTIATE_TEST_SUITE_P(Transports, HostilePeer,
                         ::testing::Values(TransportKind::kInProcess, TransportKind::kUv, TransportKind::kShm),
                         [](const auto& instance) {
                           return instance.param == TransportKind::kUv    ? "Uv"
                                  : instance.param == TransportKind::kShm ? "Shm"
                                                                          : "InProcess";
                         });

TEST_P(HostilePeer, IsServed_WhileItBehaves) {
  shakeHands();
  ASSERT_TRUE(peer_.write(message(request(5, 1), oneArray("abc"))).ok());
  auto reply = peer_.read();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->at(0).id, 5u);
  EXPECT_EQ(reply->at(0).code, absl::StatusCode::kOk);
}

TEST_P(HostilePeer, IsGivenUp_WhenItsMessageIsTooLong) {
  shakeHands();
  std::string big(10'001, 'x');
  peer_.pipe->write(message(request(1, 1), oneArray(big)), [](const absl::Status&) {});
  EXPECT_THAT(lossReason(), HasSubstr("exceeds the limit of 10000 bytes"));
}

TEST_P(HostilePeer, IsGivenUp_WhenItsMessageIsGarbage) {
  shakeHands();
  OutMessage out;
  out.metadata = "GET / HTTP/1.1";
  peer_.pipe->write(std::move(out), [](const absl::Status&) {});
  EXPECT_THAT(lossReason(), HasSubstr("malformed message"));
}

TEST_P(HostilePeer, IsGivenUp_WhenItAnswersWhatNobodyAsked) {
  shakeHands();
  Frame reply;
  reply.kind = FrameKind::kReply;
  reply.id = 77;
  peer_.pipe->write(message(reply), [](const absl::Status&) {});
  EXPECT_THAT(lossReason(), HasSubstr("a reply to no request"));
}

TEST_P(HostilePeer, IsGivenUp_WhenItAnswersTwice) {
  shakeHands();
  PendingAnswer pending = callAsync(*agent_, 1, 3, oneArray("question"));
  auto asked = peer_.read();
  ASSERT_TRUE(asked.ok());
  Frame reply;
  reply.kind = FrameKind::kReply;
  reply.id = asked->at(0).id;
  OutMessage twice = message(reply);
  appendFrame(reply, &twice.metadata);
  peer_.pipe->write(std::move(twice), [](const absl::Status&) {});
  EXPECT_THAT(lossReason(), HasSubstr("a reply to no request"));
  EXPECT_EQ(pending.wait().status.code(), absl::StatusCode::kUnavailable);
}

TEST_P(HostilePeer, IsGivenUp_WhenItSaysHelloAgain) {
  shakeHands();
  peer_.pipe->write(message(helloFrame(goodHello(1))), [](const absl::Status&) {});
  EXPECT_THAT(lossReason(), HasSubstr("a second hello"));
}

TEST_P(HostilePeer, IsGivenUp_WhenItAsksTooMuchAtOnce) {
  shakeHands();
  std::mutex mutex;
  std::vector<Responder> kept;
  agent_->handle(7, [&](Request, Responder responder) {
    std::lock_guard lock(mutex);
    kept.push_back(std::move(responder));
  });
  for (uint64_t id = 1; id <= 9; ++id) {
    peer_.pipe->write(message(request(id, 0)), [](const absl::Status&) {});
  }
  EXPECT_THAT(lossReason(), HasSubstr("more requests than this process accepts"));
  agent_->close(absl::OkStatus());
}

TEST_P(HostilePeer, IsGivenUp_WhenItAsksAfterItsFarewell) {
  shakeHands();
  Frame farewell;
  farewell.kind = FrameKind::kFarewell;
  ASSERT_TRUE(peer_.write(message(farewell)).ok());
  peer_.pipe->write(message(request(1, 0)), [](const absl::Status&) {});
  EXPECT_TRUE(peer_.endsEventually());
}

TEST_P(HostilePeer, EndsWithTheSameReason_WhenAReplyBreaksOffHalfWay) {
  shakeHands();
  PendingAnswer pending = callAsync(*agent_, 1, 3, {});
  ASSERT_TRUE(peer_.read().ok());
  peer_.pipe->close();
  const absl::Status status = pending.wait().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(peerOf(status)->machine, 1);
}

// It could be anybody, so that it does not end the start; the log says so at once.
TEST_P(HostilePeer, IsRefused_WhenItSpeaksAnotherVersion) {
  farhop::testing::CapturedLog log;
  OutMessage out = message(helloFrame(goodHello(1)));
  out.metadata[4] = 9;
  ASSERT_TRUE(peer_.write(std::move(out)).ok());
  auto refusal = peer_.read();
  ASSERT_TRUE(refusal.ok()) << refusal.status();
  EXPECT_EQ(refusal->at(0).flags, kFlagRejected);
  EXPECT_THAT(std::string(decodeStatus(refusal->at(0).code, refusal->at(0).tail).message()), HasSubstr("version 9"));
  EXPECT_THAT(log.text(), HasSubstr("version 9"));
  peer_.pipe->close();
  agent_->close(absl::AbortedError("the test is over"));
  connecting_.join();
  EXPECT_EQ(connected_, absl::AbortedError("the test is over"));
}

TEST_P(HostilePeer, DoesNotDisturbTheStart_WhenItSaysNothingSensible) {
  BlockingPipe silent{*transport_->connect(agent_->address())};
  BlockingPipe babbling{*transport_->connect(agent_->address())};
  OutMessage out;
  out.metadata = "hello?";
  babbling.pipe->write(std::move(out), [](const absl::Status&) {});
  EXPECT_FALSE(babbling.read().ok());
  shakeHands();
  EXPECT_FALSE(silent.read().ok());  // closed when the group is connected
}

TEST_P(HostilePeer, CannotTakeAnothersPlace) {
  shakeHands();
  // The listener is closed, so a second rank 1 cannot even connect.
  BlockingPipe second{*transport_->connect(agent_->address())};
  second.pipe->write(message(helloFrame(goodHello(1))), [](const absl::Status&) {});
  EXPECT_FALSE(second.read().ok());
}

TEST_P(HostilePeer, SurvivesMutatedMessages) {
  shakeHands();
  std::mt19937 random(11);
  OutMessage out = message(request(1, 1), oneArray("abc"));
  out.metadata[random() % 4] ^= 1;
  peer_.pipe->write(std::move(out), [](const absl::Status&) {});
  EXPECT_TRUE(peer_.endsEventually());
}

// A dialling agent meets an answer of another version.
TEST(HostileListener, IsRefused_WhenItSpeaksAnotherVersion) {
  auto transport = *makeTransport(TransportKind::kUv);
  const std::string address = *transport->listen("127.0.0.1");
  BlockingPipe accepted;
  std::promise<void> answered;
  transport->accept([&](absl::StatusOr<std::shared_ptr<Pipe>> pipe) {
    accepted.pipe = *pipe;
    OutMessage out = message(helloFrame(goodHello(0), kFlagWelcome));
    out.metadata[4] = 9;
    accepted.pipe->write(std::move(out), [&](const absl::Status&) { answered.set_value(); });
  });
  auto agent = *Agent::create(optionsFor(TransportKind::kUv, 1, 2));
  const absl::Status status = agent->connect({address, agent->address()}, soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 9"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("machine 0 process 0"));
  answered.get_future().wait();
  accepted.pipe.reset();
  transport->shutdown();
}

TEST(ListenerPort, RefusesConnections_OnceTheGroupIsConnected) {
  auto agents = connectedGroup(TransportKind::kUv, 3);
  for (auto& agent : agents) agent->handle(7, echo);
  for (auto& agent : agents) {
    const std::string address = agent->address();
    const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    auto stranger = connectTcp({"127.0.0.1", port}, soon(1000), false);
    EXPECT_FALSE(stranger.ok()) << "port " << port << " still takes connections";
    if (stranger.ok()) static_cast<void>(sendAll(stranger->get(), "GET / HTTP/1.1\r\n\r\n", 18, soon()));
  }
  EXPECT_TRUE(callNow(*agents[0], 2, 7, oneArray("x")).status.ok());
  leaveTogether(agents);
}

}  // namespace
}  // namespace farhop::rpc
