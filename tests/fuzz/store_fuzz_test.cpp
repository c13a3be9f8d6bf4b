// Strangers of all kinds at the rendezvous store, while a member works undisturbed. Bounded and seeded.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "rpc/byte_codec.h"
#include "rpc/rendezvous.h"
#include "rpc/rendezvous_protocol.h"

namespace farhop::rpc {
namespace {

using std::chrono::milliseconds;

std::string validHello(const std::string& token) {
  return storeFrame(StoreOperation::kHello, encodeStoreHello({"job", token, 1, 0}));
}

// A stranger's session: it never knows the token, so nothing it does may fail the store for the members.
std::string session(std::mt19937& random) {
  std::string bytes;
  switch (random() % 4) {
    case 0:
      for (uint32_t i = 0, n = random() % 200; i < n; ++i) bytes += static_cast<char>(random());
      return bytes;
    case 1: return "GET /" + std::string(random() % 5000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n";
    case 2: bytes = validHello("wrong"); break;
    default: {
      std::string body;
      ByteWriter writer(&body);
      writer.string("key");
      writer.string("value");
      bytes = validHello("wrong") + storeFrame(StoreOperation::kSet, body);
    }
  }
  for (uint32_t i = 0, edits = random() % 5; i < edits; ++i) {
    bytes[random() % bytes.size()] = static_cast<char>(random());
  }
  return bytes.substr(0, random() % (bytes.size() + 1));
}

TEST(StoreFuzz, ServesItsMembers_WhateverStrangersSend) {
  const uint32_t seed = 20'240'603;
  RecordProperty("seed", static_cast<int>(seed));
  StoreServerOptions options;
  options.jobId = "job";
  options.token = "secret";
  options.helloTimeout = milliseconds(200);
  auto server = StoreServer::start(*listenTcp({"127.0.0.1", 0}, 1024), options);
  ASSERT_TRUE(server.ok());
  const HostPort master{"127.0.0.1", (*server)->port()};
  auto soon = [] { return Deadline::after(std::chrono::seconds(20)); };
  auto member = *StoreClient::connect({master, "job", "secret", {0, 0, ""}}, soon());

  std::atomic<bool> done{false};
  std::atomic<int> operations{0};
  std::thread strangers([&] {
    std::mt19937 random(seed);
    std::vector<FileDescriptor> halfOpen;
    // Until some operations have been served meanwhile, each of which has a deadline.
    for (int round = 0; round < 2000 || (operations <= 10 && !done); ++round) {
      auto fd = connectTcp(master, soon(), true);
      if (!fd.ok()) continue;
      const std::string bytes = session(random);
      static_cast<void>(::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
      if (random() % 4 == 0) halfOpen.push_back(*std::move(fd));
      if (halfOpen.size() > 100) halfOpen.clear();
    }
    done = true;
  });
  const absl::Cleanup end = [&] {
    done = true;
    if (strangers.joinable()) strangers.join();
  };
  while (!done) {
    ASSERT_TRUE(member->set("k", std::to_string(operations), soon()).ok());
    ASSERT_EQ(*member->get("k", soon()), std::to_string(operations));
    if (operations % 50 == 0) {
      auto other = StoreClient::connect({master, "job", "secret", {1, 0, ""}}, soon());
      ASSERT_TRUE(other.ok()) << other.status();
      ASSERT_TRUE((*other)->add("n", 1, soon()).ok());
      (*other)->farewell();
    }
    ++operations;
  }
  EXPECT_GT(operations, 10);
}

// Members that break the protocol: the server closes their connections and answers the others.
TEST(StoreFuzz, SurvivesBrokenMembers) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    StoreServerOptions options;
    options.jobId = "job";
    options.token = "secret";
    auto server = StoreServer::start(*listenTcp({"127.0.0.1", 0}, 16), options);
    ASSERT_TRUE(server.ok());
    const HostPort master{"127.0.0.1", (*server)->port()};
    const Deadline soon = Deadline::after(std::chrono::seconds(20));
    auto fd = connectTcp(master, soon, false);
    ASSERT_TRUE(fd.ok());
    std::string bytes = validHello("secret");
    for (int i = 0; i < 4; ++i) {
      std::string body;
      ByteWriter writer(&body);
      writer.string("key");
      if (random() % 2 == 0) writer.string("value");
      if (random() % 2 == 0) writer.u32(random() % 3);
      if (random() % 4 == 0) body[random() % body.size()] = static_cast<char>(random());
      bytes += storeFrame(static_cast<StoreOperation>(1 + random() % 6), body);
    }
    static_cast<void>(::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    char byte;
    static_cast<void>(receiveAll(fd->get(), &byte, 1, soon).ok());
    fd->reset();
    auto good = StoreClient::connect({master, "job", "secret", {0, 0, ""}}, soon);
    ASSERT_TRUE(good.ok()) << good.status();
    const absl::Status status = (*good)->set("k", "v", soon);
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
}

}  // namespace
}  // namespace farhop::rpc
