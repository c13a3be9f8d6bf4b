// Gloo meets through Farhop's store and works; a member that dies ends Gloo's waiting with an error.
#include "rpc/gloo_store.h"

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace farhop::rpc {
namespace {

using std::chrono::milliseconds;

Deadline soon(int ms = 20'000) { return Deadline::after(milliseconds(ms)); }

struct Fixture {
  Fixture() {
    StoreServerOptions options;
    options.jobId = "job";
    server = *StoreServer::start(*listenTcp({"127.0.0.1", 0}, 16), options);
  }
  std::unique_ptr<StoreClient> client(int machine) {
    return *StoreClient::connect({{"127.0.0.1", server->port()}, "job", "", {machine, 0, ""}}, soon());
  }
  std::unique_ptr<StoreServer> server;
};

TEST(GlooStore, ConnectsAFullMesh) {
  Fixture fixture;
  std::vector<int> sums(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      auto client = fixture.client(rank);
      GlooStore store(client.get(), "gloo/0/", milliseconds(10'000), soon());
      ::gloo::transport::tcp::attr attributes("127.0.0.1");
      std::shared_ptr<::gloo::transport::Device> device = ::gloo::transport::tcp::CreateDevice(attributes);
      auto context = std::make_shared<::gloo::rendezvous::Context>(rank, 3);
      context->connectFullMesh(store, device);
      int value = 1 << rank;
      ::gloo::AllreduceOptions options(context);
      options.setOutput(&value, 1);
      options.setReduceFunction([](void* out, const void* a, const void* b, size_t n) {
        for (size_t i = 0; i < n; ++i) {
          static_cast<int*>(out)[i] = static_cast<const int*>(a)[i] + static_cast<const int*>(b)[i];
        }
      });
      ::gloo::allreduce(options);
      sums[static_cast<size_t>(rank)] = value;
      client->farewell();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, (std::vector<int>{7, 7, 7}));
}

TEST(GlooStore, ThrowsTheStatus_WhenAMemberVanishes) {
  Fixture fixture;
  auto a = fixture.client(0), b = fixture.client(1);
  GlooStore store(a.get(), "gloo/", milliseconds(10'000), soon());
  std::thread dying([&] {
    std::this_thread::sleep_for(milliseconds(30));
    b.reset();
  });
  try {
    store.wait({"never"}, milliseconds(10'000));
    ADD_FAILURE() << "nothing thrown";
  } catch (const GlooStoreError& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kUnavailable);
    ASSERT_TRUE(peerOf(error.status()).has_value());
    EXPECT_EQ(peerOf(error.status())->machine, 1);
  }
  dying.join();
}

TEST(GlooStore, KeepsPrefixesApart_AndEndsAtItsDeadline) {
  Fixture fixture;
  auto client = fixture.client(0);
  GlooStore a(client.get(), "a/", milliseconds(50), soon()), b(client.get(), "b/", milliseconds(50), soon());
  a.set("k", {'1'});
  EXPECT_EQ(a.get("k"), std::vector<char>{'1'});
  EXPECT_THROW(b.get("k"), GlooStoreError);
}

}  // namespace
}  // namespace farhop::rpc
