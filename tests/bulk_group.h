// A group of bulk transports in one process, for tests: peers as threads.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rpc/bulk_transport.h"

namespace farhop::rpc::testing {

using std::chrono::milliseconds;

inline Deadline bulkSoon(int ms = 20'000) { return Deadline::after(milliseconds(ms)); }

inline BulkOptions bulkOptions(int rank, int size) {
  BulkOptions options;
  options.rank = rank;
  options.size = size;
  for (int i = 0; i < size; ++i) options.peers.push_back({i, 0, ""});
  return options;
}

// Memory with a count of how often it was let go.
struct Block {
  explicit Block(size_t bytes, std::byte fill = std::byte{0}) : bytes_(bytes, fill) {}
  std::span<std::byte> span() { return bytes_; }
  std::vector<std::byte> bytes_;
};
inline std::shared_ptr<Block> makeBlock(size_t bytes, int fill = 0) {
  return std::make_shared<Block>(bytes, static_cast<std::byte>(fill));
}

// A completion to wait for.
class BulkEnd {
 public:
  BulkTransport::Done done() {
    return [state = state_](absl::Status status) { state->set_value(std::move(status)); };
  }
  bool ready(int ms = 0) { return future_.wait_for(milliseconds(ms)) == std::future_status::ready; }
  absl::Status wait() {
    if (!ready(60'000)) return absl::InternalError("the completion never ran");
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<absl::Status>> state_ = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> future_ = state_->get_future();
};

// Counts what arrives, by its data.
class Arrivals {
 public:
  BulkTransport::Arrival callback() {
    return [this](uint32_t data) {
      std::lock_guard lock(mutex_);
      ++counts_[data];
      ++total_;
      changed_.notify_all();
    };
  }
  bool await(size_t total, int ms = 20'000) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, Clock::now() + milliseconds(ms), [&] { return total_ >= total; });
  }
  std::map<uint32_t, int> counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }
  size_t total() const {
    std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, int> counts_;
  size_t total_ = 0;
};

struct Member {
  // Outlives the transport, which counts into it.
  std::shared_ptr<Arrivals> arrivals = std::make_shared<Arrivals>();
  std::unique_ptr<BulkTransport> transport;
};

inline void connectMembers(std::vector<Member>& members) {
  std::vector<std::string> addresses;
  for (Member& member : members) addresses.push_back(member.transport->address());
  for (Member& member : members) {
    member.transport->onArrival(member.arrivals->callback());
    const absl::Status status = member.transport->connect(addresses);
    ASSERT_TRUE(status.ok()) << status;
  }
}

inline std::shared_ptr<BulkRegion> registered(BulkTransport& transport, const std::shared_ptr<Block>& block) {
  auto region = transport.registerMemory(block->span(),
                                         BulkAccess::kSource | BulkAccess::kTarget | BulkAccess::kRemoteWrite |
                                             BulkAccess::kRemoteRead,
                                         block);
  EXPECT_TRUE(region.ok()) << region.status();
  return region.ok() ? *region : nullptr;
}

// The same, for peers to write to and read from until the transport is closed.
inline std::shared_ptr<BulkRegion> exposed(BulkTransport& transport, const std::shared_ptr<Block>& block,
                                           const std::vector<int>& peers = {0}) {
  auto region = registered(transport, block);
  for (int peer : peers) EXPECT_TRUE(transport.grant(region, peer).ok());
  return region;
}

}  // namespace farhop::rpc::testing
