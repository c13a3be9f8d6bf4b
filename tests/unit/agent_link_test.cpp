// The rules of one link that need exact control over when the transport does what: a pipe made of callbacks.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>

#include "rpc/peer_link.h"
#include "tests/agent_group.h"

namespace farhop::rpc {
namespace {

using namespace farhop::rpc::testing;
using ::testing::HasSubstr;

// Does nothing by itself; the test ends each operation. Close fails what is under way, except a held read.
class ManualPipe : public Pipe {
 public:
  void write(OutMessage message, Done done) override {
    std::lock_guard lock(mutex_);
    written.push_back({std::move(message), std::move(done)});
  }
  void readDescriptor(std::function<void(absl::StatusOr<MessageDescriptor>)> done) override {
    std::lock_guard lock(mutex_);
    descriptor_ = std::move(done);
  }
  void read(std::vector<void*> into, Done done) override {
    std::lock_guard lock(mutex_);
    memory = std::move(into);
    read_ = std::move(done);
  }
  void close() override { closed = true; }

  size_t writes() {
    std::lock_guard lock(mutex_);
    return written.size();
  }
  std::vector<Frame> frames(size_t write) {
    std::lock_guard lock(mutex_);
    std::vector<size_t> sizes;
    for (const OutArray& array : written[write].message.arrays) sizes.push_back(array.bytes);
    return *parseFrames(written[write].message.metadata, sizes, {size_t{1} << 30, 1000});
  }
  void finishWrite(size_t write, absl::Status status = absl::OkStatus()) {
    Done done = std::move(written[write].done);
    done(std::move(status));
  }
  void arrive(const Frame& frame, std::vector<size_t> sizes = {}) {
    MessageDescriptor descriptor;
    appendFrame(frame, &descriptor.metadata);
    descriptor.arraySizes = std::move(sizes);
    std::exchange(descriptor_, nullptr)(std::move(descriptor));
  }
  void finishRead(absl::Status status = absl::OkStatus()) { std::exchange(read_, nullptr)(std::move(status)); }
  void breakOff() { std::exchange(descriptor_, nullptr)(absl::UnavailableError("connection closed")); }

  struct Written {
    OutMessage message;
    Done done;
  };
  std::vector<Written> written;
  std::vector<void*> memory;
  std::atomic<bool> closed{false};

 private:
  std::mutex mutex_;
  std::function<void(absl::StatusOr<MessageDescriptor>)> descriptor_;
  Done read_;
};

class AgentLink : public ::testing::Test {
 protected:
  AgentLink() {
    AgentOptions options = optionsFor(TransportKind::kInProcess, 0, 2);
    options.peerTimeout = milliseconds(400);
    core = std::make_shared<AgentCore>(options);
    core->peerLost = [this](int, absl::Status) { ++lost; };
    link = std::make_shared<PeerLink>(core, 1, PeerName{1, 0, "h:1"});
    Hello hello;
    hello.maxMessageBytes = hello.maxInflightBytes = size_t{1} << 30;
    hello.maxArrays = 64;
    hello.maxCalls = 1000;
    hello.peerTimeoutMs = 400;
    link->start(pipe, hello);
  }
  ~AgentLink() override {
    link->fail(absl::CancelledError("end"), false);
    core->timer.stop();
    core->serving.shutdown();
  }
  PendingAnswer call(std::vector<OutArray> arrays, int deadlineMs = 20'000) {
    PendingAnswer pending;
    link->call(7, std::move(arrays), soon(deadlineMs), pending.sink(), pending.completion());
    return pending;
  }
  static Frame replyTo(uint64_t id, uint32_t arrays) {
    Frame frame;
    frame.kind = FrameKind::kReply;
    frame.id = id;
    frame.arrays = arrays;
    return frame;
  }

  std::atomic<int> lost{0};
  std::shared_ptr<AgentCore> core;
  std::shared_ptr<ManualPipe> pipe = std::make_shared<ManualPipe>();
  std::shared_ptr<PeerLink> link;
};

TEST_F(AgentLink, SendsWhatWaitsAsOneMessage) {
  std::vector<PendingAnswer> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(call(oneArray("x")));
  ASSERT_EQ(pipe->writes(), 1u);
  EXPECT_EQ(pipe->frames(0).size(), 1u);
  pipe->finishWrite(0);
  ASSERT_EQ(pipe->writes(), 2u);
  EXPECT_EQ(pipe->frames(1).size(), 9u);
  EXPECT_EQ(link->traffic().messagesSent, 2u);
}

TEST_F(AgentLink, SplitsWhatWaits_AtItsBounds) {
  auto first = call({});
  std::vector<PendingAnswer> pending;
  for (int i = 0; i < 3; ++i) pending.push_back(call(oneArray(std::string(kCoalesceBytes / 2, 'x'))));
  for (int i = 0; i < 200; ++i) pending.push_back(call({}));
  pipe->finishWrite(0);
  EXPECT_EQ(pipe->frames(1).size(), 2u);
  pipe->finishWrite(1);
  EXPECT_EQ(pipe->frames(2).size(), kMaxFramesPerMessage);
}

TEST_F(AgentLink, EndsAnExpiredCall_OnlyOnceItsMemoryIsFree_WhileAReplyIsRead) {
  auto pending = call({}, 100);
  pipe->finishWrite(0);
  pipe->arrive(replyTo(1, 1), {3});
  EXPECT_FALSE(pending.ready(300));
  std::memcpy(pipe->memory[0], "abc", 3);  // the memory is still there
  pipe->finishRead();
  EXPECT_EQ(pending.wait().status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(AgentLink, EndsAnExpiredCall_OnlyOnceItsMemoryIsFree_WhileItIsWritten) {
  std::string borrowed = "abc";
  auto pending = call({OutArray{borrowed.data(), borrowed.size(), nullptr}}, 50);
  EXPECT_FALSE(pending.ready(200));
  pipe->finishWrite(0);
  EXPECT_EQ(pending.wait().status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(AgentLink, EndsAnExpiredCallAtOnce_WhenTheMessageOwnsItsMemory) {
  auto pending = call(oneArray("abc"), 50);
  EXPECT_EQ(pending.wait().status.code(), absl::StatusCode::kDeadlineExceeded);
  // The late reply goes to scratch memory, and nothing is left.
  pipe->finishWrite(0);
  pipe->arrive(replyTo(1, 2), {3, 5});
  ASSERT_EQ(pipe->memory.size(), 2u);
  EXPECT_EQ(pipe->memory[0], pipe->memory[1]);
  pipe->finishRead();
  EXPECT_FALSE(pipe->closed);
}

TEST_F(AgentLink, NeverSendsACallThatExpiredInLine) {
  auto first = call({});
  auto expired = call(oneArray("late"), 30);
  EXPECT_EQ(expired.wait().status.code(), absl::StatusCode::kDeadlineExceeded);
  auto third = call({});
  pipe->finishWrite(0);
  ASSERT_EQ(pipe->writes(), 2u);
  ASSERT_EQ(pipe->frames(1).size(), 1u);
  EXPECT_EQ(pipe->frames(1)[0].id, 3u);
}

TEST_F(AgentLink, WaitsForTheRead_WhenThePeerIsLostMeanwhile) {
  auto reading = call({}), other = call({});
  pipe->finishWrite(0);
  pipe->finishWrite(1);
  pipe->arrive(replyTo(1, 1), {3});
  link->fail(absl::UnavailableError("silent"), true);
  EXPECT_EQ(other.wait().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(reading.ready(50));
  EXPECT_TRUE(pipe->closed);
  pipe->finishRead(absl::UnavailableError("closed"));
  const absl::Status status = reading.wait().status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("machine 1 process 0 (h:1) was lost: silent"));
  EXPECT_EQ(lost, 1);
}

TEST_F(AgentLink, SendsHeartbeats_UntilItsFarewell) {
  link->tick(Clock::now() + milliseconds(200), true);
  ASSERT_EQ(pipe->writes(), 1u);
  EXPECT_EQ(pipe->frames(0)[0].kind, FrameKind::kHeartbeat);
  pipe->finishWrite(0);
  link->beginFarewell();
  ASSERT_EQ(pipe->writes(), 2u);
  EXPECT_EQ(pipe->frames(1)[0].kind, FrameKind::kFarewell);
  pipe->finishWrite(1);
  link->tick(Clock::now() + milliseconds(300), true);
  EXPECT_EQ(pipe->writes(), 2u);
}

TEST_F(AgentLink, SaysFarewell_OnlyWhenItsCallsAreAnswered) {
  auto pending = call({});
  pipe->finishWrite(0);
  link->beginFarewell();
  EXPECT_EQ(pipe->writes(), 1u);
  pipe->arrive(replyTo(1, 0));
  pipe->finishRead();
  ASSERT_EQ(pipe->writes(), 2u);
  EXPECT_EQ(pipe->frames(1)[0].kind, FrameKind::kFarewell);
  EXPECT_FALSE(link->farewellResult().has_value());
  pipe->finishWrite(1);
  Frame farewell;
  farewell.kind = FrameKind::kFarewell;
  pipe->arrive(farewell);
  pipe->finishRead();
  pipe->finishWrite(2);  // the acknowledgement
  EXPECT_FALSE(link->farewellResult().has_value());  // the peer has not said that it knows ours
  farewell.flags = kFlagAcknowledge;
  pipe->arrive(farewell);
  pipe->finishRead();
  ASSERT_TRUE(link->farewellResult().has_value());
  EXPECT_TRUE(link->farewellResult()->ok());
  pipe->breakOff();
  EXPECT_EQ(lost, 0);
}

TEST_F(AgentLink, LosesASilentPeer_ButNotOneWhoseMessageIsOnItsWay) {
  auto pending = call({});
  pipe->finishWrite(0);
  pipe->arrive(replyTo(1, 1), {50'000'000});  // takes 5 s on a slow network
  link->tick(Clock::now() + milliseconds(3000), false);
  EXPECT_EQ(lost, 0);
  pipe->finishRead();
  EXPECT_TRUE(pending.wait().status.ok());
  link->tick(Clock::now() + milliseconds(3000), false);
  EXPECT_EQ(lost, 1);
}

}  // namespace
}  // namespace farhop::rpc
