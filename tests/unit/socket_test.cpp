#include "base/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace farhop {
namespace {

using std::chrono::milliseconds;

TEST(Socket, ConnectsAndExchangesBytes) {
  auto listener = listenTcp({"127.0.0.1", 0}, 4);
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto port = boundPort(listener->get());
  ASSERT_TRUE(port.ok());
  auto client = connectTcp({"127.0.0.1", *port}, Deadline::after(milliseconds(2000)), false);
  ASSERT_TRUE(client.ok()) << client.status();
  int accepted = ::accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK);
  ASSERT_GE(accepted, 0);
  FileDescriptor server(accepted);
  std::string big(5'000'000, 'x');
  std::thread sender([&] { EXPECT_TRUE(sendAll(client->get(), big.data(), big.size(), Deadline::after(milliseconds(10'000))).ok()); });
  std::string got(big.size(), ' ');
  EXPECT_TRUE(receiveAll(server.get(), got.data(), got.size(), Deadline::after(milliseconds(10'000))).ok());
  sender.join();
  EXPECT_TRUE(got == big);
  client->reset();
  char c;
  EXPECT_EQ(receiveAll(server.get(), &c, 1, Deadline::after(milliseconds(1000))).code(), absl::StatusCode::kUnavailable);
}

TEST(Socket, NamesThePort_WhenItIsInUse) {
  auto listener = listenTcp({"127.0.0.1", 0}, 4);
  auto port = boundPort(listener->get());
  auto second = listenTcp({"127.0.0.1", *port}, 4);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find(std::to_string(*port)), std::string::npos);
}

TEST(Socket, SaysWhichHostDoesNotResolve_WithoutRetrying) {
  const auto start = Clock::now();
  auto client = connectTcp({"no-such-host.invalid", 1}, Deadline::after(milliseconds(30'000)), true);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(client.status().message().find("no-such-host.invalid"), std::string::npos);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(25));
}

TEST(Socket, RetriesUntilTheListenerIsThere) {
  const std::string name = "farhop-test-" + std::to_string(::getpid());
  FileDescriptor listener;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(100));
    auto opened = listenAbstract(name, 1);
    ASSERT_TRUE(opened.ok());
    listener = *std::move(opened);
  });
  auto client = connectAbstract(name, Deadline::after(milliseconds(5000)), true);
  EXPECT_TRUE(client.ok()) << client.status();
  late.join();
}

TEST(Socket, GivesUpAtTheDeadline) {
  auto client = connectAbstract("farhop-nobody", Deadline::after(milliseconds(50)), true);
  EXPECT_FALSE(client.ok());
}

}  // namespace
}  // namespace farhop
