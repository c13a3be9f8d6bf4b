#include "base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

namespace farhop {
namespace {

TEST(Executor, RunsEverythingPostedBeforeShutdown) {
  std::atomic<int> ran{0};
  Executor executor("test", 3);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(executor.post([&] { ++ran; }));
  executor.shutdown();
  EXPECT_EQ(ran, 1000);
  EXPECT_FALSE(executor.post([&] { ++ran; }));
  EXPECT_EQ(ran, 1000);
}

TEST(Executor, KeepsTheOrderOfPosting_WithOneThread) {
  std::vector<int> order;
  Executor executor("test", 1);
  for (int i = 0; i < 100; ++i) executor.post([&order, i] { order.push_back(i); });
  executor.shutdown();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(Executor, ReleasesWorkBeforeTheNextStarts) {
  auto token = std::make_shared<int>(1);
  std::weak_ptr<int> watch = token;
  Executor executor("test", 1);
  executor.post([token = std::move(token)] {});
  std::atomic<bool> gone{false};
  executor.post([&] { gone = watch.expired(); });
  executor.shutdown();
  EXPECT_TRUE(gone);
}

TEST(Executor, GoesOn_WhenWorkThrows) {
  Executor executor("test", 1);
  auto token = std::make_shared<int>(1);
  std::weak_ptr<int> watch = token;
  executor.post([token = std::move(token)] { throw std::bad_alloc(); });
  std::atomic<bool> ran{false};
  executor.post([&] { ran = watch.expired(); });
  executor.shutdown();
  EXPECT_TRUE(ran);
}

TEST(Executor, MayBeDestroyedByItsOwnWork) {
  struct Owner {
    std::unique_ptr<Executor> executor = std::make_unique<Executor>("test", 2);
    std::shared_ptr<std::atomic<bool>> gone;
    ~Owner() {
      executor.reset();
      *gone = true;
    }
  };
  auto gone = std::make_shared<std::atomic<bool>>(false);
  auto owner = std::make_shared<Owner>();
  owner->gone = gone;
  Executor* executor = owner->executor.get();
  std::atomic<bool> released{false};
  executor->post([owner, &released] {
    while (!released) std::this_thread::yield();
  });
  owner.reset();
  released = true;  // the work's copy is the last one now
  for (int i = 0; i < 2000 && !*gone; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(*gone);
}

}  // namespace
}  // namespace farhop
