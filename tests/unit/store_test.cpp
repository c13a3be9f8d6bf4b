// The rendezvous store: what it serves, whom it refuses, how it fails.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "rpc/byte_codec.h"
#include "rpc/rendezvous.h"
#include "rpc/rendezvous_protocol.h"
#include "tests/captured_log.h"

namespace farhop::rpc {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Deadline soon(int ms = 20'000) { return Deadline::after(milliseconds(ms)); }

class Store : public ::testing::Test {
 protected:
  void start(StoreServerOptions options = {}) {
    options.jobId = "job";
    options.token = "secret";
    auto listener = listenTcp({"127.0.0.1", 0}, 1024);
    ASSERT_TRUE(listener.ok());
    auto server = StoreServer::start(*std::move(listener), options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    master_ = {"127.0.0.1", server_->port()};
  }
  std::unique_ptr<StoreClient> client(int machine) {
    auto connected = StoreClient::connect({master_, "job", "secret", {machine, 0, ""}}, soon());
    EXPECT_TRUE(connected.ok()) << connected.status();
    return connected.ok() ? *std::move(connected) : nullptr;
  }
  // A raw connection, and whether the server closes it.
  FileDescriptor raw() { return *connectTcp(master_, soon(), false); }
  static bool closed(const FileDescriptor& fd, int ms = 5000) {
    char byte;
    return absl::IsUnavailable(receiveAll(fd.get(), &byte, 1, soon(ms)));
  }

  HostPort master_;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(Store, KeepsValues) {
  start();
  auto a = client(0), b = client(1);
  EXPECT_TRUE(a->set("k", "v1", soon()).ok());
  EXPECT_EQ(*b->get("k", soon()), "v1");
  EXPECT_TRUE(b->set("k", std::string("\0x", 2), soon()).ok());
  EXPECT_EQ(*a->get("k", soon()), std::string("\0x", 2));
  EXPECT_EQ(a->localAddress(), "127.0.0.1");
}

TEST_F(Store, WaitsUntilAKeyIsSet) {
  start();
  auto a = client(0), b = client(1), c = client(2);
  std::atomic<int> got{0};
  auto waitFor = [&](StoreClient* one) {
    if (one->get("late", soon()).value_or("") == "value") ++got;
  };
  std::thread first(waitFor, b.get()), second(waitFor, c.get());
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_TRUE(a->set("late", "value", soon()).ok());
  first.join();
  second.join();
  EXPECT_EQ(got, 2);
}

TEST_F(Store, EndsAGetAtItsDeadline_AndGoesOn) {
  start();
  auto a = client(0);
  auto value = a->get("never", soon(50));
  EXPECT_EQ(value.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(value.status().message()), HasSubstr("'never'"));
  EXPECT_TRUE(a->set("never", "now", soon()).ok());
  EXPECT_EQ(*a->get("never", soon()), "now");
}

TEST_F(Store, AddsAtomically) {
  start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      auto one = client(i);
      for (int k = 0; k < 100; ++k) ASSERT_TRUE(one->add("n", i == 0 ? -1 : 1, soon()).ok());
      one->farewell();
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto last = client(9);
  EXPECT_EQ(*last->add("n", 0, soon()), 200);
  EXPECT_TRUE(last->set("text", "no number", soon()).ok());
  EXPECT_EQ(last->add("text", 1, soon()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(last->add("n", std::numeric_limits<int64_t>::max(), soon()).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(Store, RefusesAWrongTokenOrJob) {
  start();
  auto token = StoreClient::connect({master_, "job", "guess", {1, 0, ""}}, soon());
  EXPECT_EQ(token.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(token.status().message()), HasSubstr("token"));
  EXPECT_EQ(std::string(token.status().message()).find("secret"), std::string::npos);
  auto job = StoreClient::connect({master_, "other", "secret", {1, 0, ""}}, soon());
  EXPECT_EQ(job.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("job 'other'"));
  auto group = StoreClient::connect({master_, "job", "secret", {1, 3, ""}}, soon());
  EXPECT_EQ(group.status().code(), absl::StatusCode::kFailedPrecondition);
  auto good = client(0);
  EXPECT_TRUE(good->set("k", "v", soon()).ok());
}

TEST_F(Store, SaysInTheLogWhomItRefusedAndWhy_AtOnce) {
  start();
  farhop::testing::CapturedLog log;
  EXPECT_FALSE(StoreClient::connect({master_, "job", "guess", {1, 0, ""}}, soon()).ok());
  EXPECT_THAT(log.text(), ::testing::MatchesRegex(
      "WARNING .*the rendezvous store of group 0 refused 127\\.0\\.0\\.1:[0-9]+, which says it is machine 1 process 0: "
      "this process's token is not that of job 'job'\n"));
}

TEST_F(Store, BoundsWhatStrangersCanMakeItLog) {
  start();
  farhop::testing::CapturedLog log;
  const std::string job = "a\nforged line\x1b[31m" + std::string(2'000, 'x');
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(StoreClient::connect({master_, job, "guess", {1, 0, ""}}, soon()).ok());
  EXPECT_GE(log.lines(), 10u);
  EXPECT_LE(log.lines(), 20u);
  EXPECT_LE(log.text().size(), 20u * 500);
  EXPECT_EQ(log.text().find("\nforged"), std::string::npos);
  EXPECT_EQ(log.text().find('\x1b'), std::string::npos);
}

TEST_F(Store, IsGivenUpByName_WhenItWasReachedAndIsGoneThen) {
  // A listener that nobody serves: a connection succeeds and stays without an answer.
  auto listener = std::make_unique<FileDescriptor>(*listenTcp({"127.0.0.1", 0}, 16));
  const HostPort master{"127.0.0.1", *boundPort(listener->get())};
  const auto begin = Clock::now();
  std::thread end([&] {
    // The client knows that it is connected when it has sent its hello.
    pollfd entry{listener->get(), POLLIN, 0};
    ::poll(&entry, 1, 10'000);
    const FileDescriptor connection(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    entry.fd = connection.get();
    ::poll(&entry, 1, 10'000);
    listener.reset();
  });
  const absl::Status status = StoreClient::connect({master, "job", "secret", {1, 0, ""}}, soon()).status();
  end.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("machine 0 process 0 (", master.text(), ")")));
  ASSERT_TRUE(peerOf(status).has_value());
  EXPECT_EQ(peerOf(status)->machine, 0);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
}

TEST_F(Store, RefusesAnotherVersion_SayingWhich) {
  start();
  FileDescriptor fd = raw();
  std::string frame = storeFrame(StoreOperation::kHello, encodeStoreHello({"job", "secret", 1, 0}));
  frame[4] = 9;
  ASSERT_TRUE(sendAll(fd.get(), frame.data(), frame.size(), soon()).ok());
  std::string prefix(kStorePrefixBytes, ' ');
  ASSERT_TRUE(receiveAll(fd.get(), prefix.data(), prefix.size(), soon()).ok());
  std::string body(parseStorePrefix(prefix)->bodyBytes, ' ');
  ASSERT_TRUE(receiveAll(fd.get(), body.data(), body.size(), soon()).ok());
  const absl::Status status = decodeStoreReply(body, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 9"));
  EXPECT_TRUE(closed(fd));
}

TEST_F(Store, ClosesTheConnection_OnAnythingButAHello) {
  start();
  for (std::string bytes : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100, '\0'),
                            storeFrame(StoreOperation::kGet, "whatever"), storeFrame(StoreOperation::kReply, "")}) {
    FileDescriptor fd = raw();
    ASSERT_TRUE(sendAll(fd.get(), bytes.data(), bytes.size(), soon()).ok());
    EXPECT_TRUE(closed(fd)) << bytes;
  }
}

TEST_F(Store, ClosesSilentStrangers_AfterTheHelloTimeout) {
  StoreServerOptions options;
  options.helloTimeout = milliseconds(50);
  start(options);
  FileDescriptor silent = raw(), half = raw();
  ASSERT_TRUE(sendAll(half.get(), "FHRV", 4, soon()).ok());
  EXPECT_TRUE(closed(silent));
  EXPECT_TRUE(closed(half));
  auto good = client(0);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(good->set("k", "v", soon()).ok());
}

TEST_F(Store, ServesMembers_WhileStrangersFillIt) {
  start();
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 600; ++i) strangers.push_back(raw());
  EXPECT_TRUE(closed(strangers.front()));  // the oldest makes room
  auto good = client(0);
  ASSERT_NE(good, nullptr);
  EXPECT_TRUE(good->set("k", "v", soon()).ok());
}

TEST_F(Store, BoundsKeysAndValues) {
  StoreServerOptions options;
  options.maxKeyBytes = 10;
  options.maxValueBytes = 100;
  options.maxKeys = 3;
  options.maxTotalBytes = 150;
  start(options);
  auto a = client(0);
  EXPECT_EQ(a->set(std::string(11, 'k'), "", soon()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a->set("k", std::string(101, 'v'), soon()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(a->set("1", std::string(100, 'v'), soon()).ok());
  EXPECT_EQ(a->set("2", std::string(100, 'v'), soon()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(a->set("1", "", soon()).ok());
  EXPECT_TRUE(a->set("2", std::string(100, 'v'), soon()).ok());
  EXPECT_TRUE(a->set("3", "", soon()).ok());
  EXPECT_EQ(a->set("4", "", soon()).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(Store, FailsForTheOthers_WhenAMemberVanishes) {
  start();
  auto a = client(0), b = client(3);
  absl::Status waiting;
  std::thread waiter([&] { waiting = a->get("never", soon()).status(); });
  std::this_thread::sleep_for(milliseconds(30));
  const auto begin = Clock::now();
  b.reset();
  waiter.join();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
  for (const absl::Status& status : {waiting, a->set("k", "v", soon()), client(1)->get("k", soon()).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    ASSERT_TRUE(peerOf(status).has_value()) << status;
    EXPECT_EQ(peerOf(status)->machine, 3);
    EXPECT_THAT(peerOf(status)->address, HasSubstr("127.0.0.1:"));
  }
}

TEST_F(Store, GoesOn_AfterAFarewell) {
  start();
  auto a = client(0), b = client(1);
  b->farewell();
  EXPECT_EQ(b->set("k", "v", soon()).code(), absl::StatusCode::kFailedPrecondition);
  b.reset();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(a->set("k", "v", soon()).ok());
}

TEST_F(Store, TellsItsClients_WhenItEnds) {
  start();
  auto a = client(1);
  absl::Status waiting;
  std::thread waiter([&] { waiting = a->get("never", soon()).status(); });
  std::this_thread::sleep_for(milliseconds(30));
  server_.reset();
  waiter.join();
  EXPECT_EQ(waiting.code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(peerOf(waiting).has_value());
  EXPECT_EQ(peerOf(waiting)->machine, 0);
  EXPECT_EQ(peerOf(waiting)->address, master_.text());
  EXPECT_THAT(std::string(waiting.message()), HasSubstr(master_.text()));
}

TEST(StoreClient, RetriesUntilTheMasterIsUp) {
  auto probe = listenTcp({"127.0.0.1", 0}, 4);
  const uint16_t port = *boundPort(probe->get());
  probe->reset();
  std::unique_ptr<StoreServer> server;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(100));
    auto listener = listenTcp({"127.0.0.1", port}, 4);
    ASSERT_TRUE(listener.ok()) << listener.status();
    StoreServerOptions options;
    options.jobId = "j";
    server = *StoreServer::start(*std::move(listener), options);
  });
  const HostPort master{"127.0.0.1", port};
  auto client = StoreClient::connect({master, "j", "", {0, 0, ""}}, soon());
  late.join();
  EXPECT_TRUE(client.ok()) << client.status();
}

TEST(StoreClient, SaysThatTheHostDoesNotResolve) {
  const HostPort nowhere{"no-such-host.invalid", 1};
  auto client = StoreClient::connect({nowhere, "j", "", {0, 0, ""}}, soon());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("no-such-host.invalid"));
}

TEST(StoreClient, SaysThatSomethingElseListens) {
  auto listener = listenTcp({"127.0.0.1", 0}, 4);
  std::thread other([&] {
    const Deadline until = soon(5000);
    int fd = -1;
    while (fd < 0 && !until.expired()) fd = ::accept(listener->get(), nullptr, nullptr);
    FileDescriptor accepted(fd);
    static_cast<void>(sendAll(fd, "SSH-2.0-OpenSSH_9.2\r\n", 21, soon()));
  });
  const HostPort master{"127.0.0.1", *boundPort(listener->get())};
  auto client = StoreClient::connect({master, "j", "", {0, 0, ""}}, soon());
  other.join();
  EXPECT_EQ(client.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("not a Farhop rendezvous store"));
}

TEST(StoreClient, GivesUpAtTheDeadline_WhenNobodyAnswers) {
  auto listener = listenTcp({"127.0.0.1", 0}, 4);
  const auto begin = Clock::now();
  auto client = StoreClient::connect({{"127.0.0.1", *boundPort(listener->get())}, "j", "", {0, 0, ""}}, soon(100));
  EXPECT_EQ(client.status().code(), absl::StatusCode::kDeadlineExceeded) << client.status();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3));
}

}  // namespace
}  // namespace farhop::rpc
