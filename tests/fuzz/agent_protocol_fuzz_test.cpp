// The agents' protocol against bytes that no honest peer sends: never more than a status, never more memory than came.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "launcher/agent_protocol.h"
#include "launcher/frame_stream.h"
#include "launcher/host_file.h"

namespace farhop::launcher {
namespace {

AgentOrders someOrders() {
  AgentOrders orders;
  orders.jobId = "job";
  orders.token = "token";
  orders.machine = 1;
  orders.machines = 2;
  orders.procs = 3;
  orders.start = "gate";
  orders.workingDirectory = "/tmp";
  orders.windowBytes = 1'000;
  orders.environment = {{"A", "b c"}, {"B", std::string("\xff\n", 2)}};
  orders.command = {"./trainer", "", "it's", "$HOME\n"};
  return orders;
}

void decodeAll(const std::string& bytes) {
  (void)decodeHello(bytes);
  (void)decodeOrders(bytes);
  (void)decodePrepared(bytes);
  (void)decodeStarted(bytes);
  (void)decodeOutput(bytes);
  (void)decodeEnded(bytes);
  (void)decodeSaid(bytes);
  (void)decodeRefusal(bytes);
  (void)decodeNumber(bytes);
}

TEST(AgentProtocol, KeepsWordsUntouched) {
  const AgentOrders orders = someOrders();
  const auto decoded = decodeOrders(encode(orders));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->command, orders.command);
  EXPECT_EQ(decoded->environment, orders.environment);
  EXPECT_EQ(decoded->token, "token");
  EXPECT_EQ(decoded->procs, 3u);
  const absl::Status refusal = decodeRefusal(encodeRefusal(absl::NotFoundError("no trainer")));
  EXPECT_TRUE(absl::IsNotFound(refusal));
  EXPECT_EQ(refusal.message(), "no trainer");
}

// FNV-1a.
uint64_t hashOf(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// A launcher tells agents of another build by the protocol's number alone.
TEST(AgentProtocol, GetsANewNumber_WhenAFrameChanges) {
  AgentOrders orders = someOrders();
  orders.start = "gate";
  orders.bind = "core";
  orders.graph = "/graph";
  orders.masterAddr = "10.0.0.1";
  orders.interface = "eth0";
  orders.attempt = 4;
  orders.silenceMs = 5;
  orders.graceMs = 6;
  orders.memoryEstimateBytes = 7;
  orders.masterPort = 8;
  const std::string all = encode(orders) + encode(AgentHello{9, "1.2.3", "host", 10}) + encode(AgentPrepared{"10.0.0.2", 11}) +
                          encode(TrainerStarted{12, 13}) + encode(TrainerOutput{14, 1, "text"}) +
                          encode(TrainerEnded{15, true, 16}) + encode(TrainerSaid{17, "said"}) +
                          encodeRefusal(absl::NotFoundError("no")) + encodeNumber(18);
  EXPECT_EQ(std::make_pair(kAgentProtocol, hashOf(all)), std::make_pair(2u, uint64_t{16163190353587026354U}))
      << "frames have changed: raise kAgentProtocol, then put the new pair here";
}

TEST(AgentProtocol, ReadsAnotherVersionsHello_AsFarAsItMust) {
  std::string bytes = encode(AgentHello{kAgentProtocol + 7, "9.9.9", "", 0}) + "more that we do not know";
  const auto hello = decodeHello(bytes);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->protocol, kAgentProtocol + 7);
  EXPECT_EQ(hello->version, "9.9.9");
}

TEST(AgentProtocol, RefusesOrdersThatMakeNoSense) {
  AgentOrders machine = someOrders(), window = someOrders(), command = someOrders(), procs = someOrders();
  machine.machine = 2;
  window.windowBytes = kMaxWindowBytes + 1;
  command.command.clear();
  procs.procs = 0;
  for (const AgentOrders& orders : {machine, window, command, procs}) EXPECT_FALSE(decodeOrders(encode(orders)).ok());
}

TEST(AgentProtocol, SurvivesBrokenBytes) {
  const uint32_t seed = 20'261'130;
  std::mt19937 random(seed);
  const std::vector<std::string> honest{encode(someOrders()), encode(AgentHello{1, "0.1.0", "host", 7}),
                                        encode(AgentPrepared{"10.0.0.1", 2'000}), encode(TrainerSaid{1, "x"}),
                                        encodeRefusal(absl::InternalError("x")), encode(TrainerEnded{1, true, 9})};
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = honest[random() % honest.size()];
    for (uint32_t edits = 1 + random() % 4; edits > 0 && !bytes.empty(); --edits) {
      switch (random() % 3) {
        case 0:
          bytes[random() % bytes.size()] = static_cast<char>(random());
          break;
        case 1:
          bytes.resize(random() % bytes.size());
          break;
        default:
          bytes.insert(random() % bytes.size(), 1, static_cast<char>(random()));
      }
    }
    decodeAll(bytes);
  }
}

TEST(HostFile, SurvivesAnyBytes) {
  const uint32_t seed = 20'261'201;
  std::mt19937 random(seed);
  const std::vector<std::string> words{"h0",   "10.0.0.1", "[fd00::1]", "fd00::1%e", "22",       "65536", "slots=2", "slots=",
                                       "addr=", "addr=::1", "user=kim",  "user=",     "#",        "\n",    " ",       "\t",
                                       "30050", "=",        "-o",        "\xff",      "[",        "]",     "%",       "name"};
  int understood = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (uint32_t n = random() % 8; n > 0; --n) text += words[random() % words.size()] + (random() % 3 == 0 ? "" : " ");
    const auto hosts = parseHosts(text, "hosts");
    if (!hosts.ok()) continue;
    ++understood;
    for (const Host& host : *hosts) {
      // What stands on ssh's command line is no option of it.
      EXPECT_NE(host.name[0], '-') << text;
      EXPECT_TRUE(host.user.empty() || host.user[0] != '-') << text;
      EXPECT_TRUE(host.address.empty() || isIpAddress(host.address)) << text;
    }
  }
  EXPECT_GT(understood, 100);
}

class StreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    theirs_ = FileDescriptor(fds[0]);
    const int ours = fds[1];
    stream_.emplace(FileDescriptor(::dup(ours)), FileDescriptor(ours), FrameStream::Opening::kExpectMagic);
  }
  // Writes and reads in pieces; stops at the first error.
  absl::Status feed(const std::string& bytes, std::vector<Frame>* frames) {
    for (size_t at = 0; at < bytes.size(); at += 50'000) {
      const std::string piece = bytes.substr(at, 50'000);
      if (::write(theirs_.get(), piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) {
        return absl::InternalError("the socket is full");
      }
      FARHOP_RETURN_IF_ERROR(stream_->readSome());
      for (;;) {
        FARHOP_ASSIGN_OR_RETURN(auto frame, stream_->next());
        if (!frame) break;
        frames->push_back(*std::move(frame));
      }
    }
    return absl::OkStatus();
  }

  FileDescriptor theirs_;
  std::optional<FrameStream> stream_;
};

std::string framed(const std::string& payload, uint32_t kind) {
  std::string bytes = encodeNumber(static_cast<uint32_t>(payload.size()));
  bytes.push_back(static_cast<char>(kind));
  return bytes + payload;
}

TEST_F(StreamTest, SkipsWhatALoginShellPrints) {
  std::vector<Frame> frames;
  ASSERT_TRUE(feed(std::string("Welcome!\n") + kAgentMagic + framed("abc", 4) + framed("", 64), &frames).ok());
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].payload, "abc");
  EXPECT_EQ(frames[1].kind, FrameKind::kAlive);
}

TEST_F(StreamTest, GivesUp_WhenNoAgentAnswers) {
  std::vector<Frame> frames;
  const absl::Status status = feed(std::string(kMaxBannerBytes + 1, 'x'), &frames);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(StreamTest, RefusesLongFramesBeforeTheyCome) {
  std::vector<Frame> frames;
  std::string header = encodeNumber(0xFFFFFFFF);
  header.push_back(5);
  EXPECT_EQ(feed(kAgentMagic + header, &frames).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StreamTest, RefusesUnknownKinds) {
  std::vector<Frame> frames;
  EXPECT_EQ(feed(kAgentMagic + framed("", 99), &frames).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace farhop::launcher
