#include "rpc/bulk_in_process.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace farhop::rpc {
namespace {

constexpr char kPrefix[] = "inproc-bulk:";

// What other devices of the process may touch of one; outlives it as long as somebody knows its address.
struct Endpoint {
  struct Memory {
    std::byte* data = nullptr;
    size_t bytes = 0;
    BulkAccess access = BulkAccess::kSource;
  };

  std::mutex mutex;  // held while a peer copies, so that unregistering waits for it
  std::condition_variable changed;
  std::map<uint64_t, Memory> memory;           // guarded by mutex; by key
  uint64_t nextKey = 1;                        // guarded by mutex
  std::vector<DeviceCompletion> completions;   // guarded by mutex
  bool woken = false;                          // guarded by mutex
  bool closed = false;                         // guarded by mutex
};

class Registry {
 public:
  uint64_t add(const std::shared_ptr<Endpoint>& endpoint) {
    std::lock_guard lock(mutex_);
    endpoints_[++last_] = endpoint;
    return last_;
  }
  std::shared_ptr<Endpoint> find(uint64_t number) {
    std::lock_guard lock(mutex_);
    auto found = endpoints_.find(number);
    return found == endpoints_.end() ? nullptr : found->second.lock();
  }
  void remove(uint64_t number) {
    std::lock_guard lock(mutex_);
    endpoints_.erase(number);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Endpoint>> endpoints_;  // guarded by mutex_
  uint64_t last_ = 0;                                      // guarded by mutex_
};

Registry& registry() {
  static auto* one = new Registry;  // never destroyed: devices may end late
  return *one;
}

class InProcessDevice : public BulkDevice {
 public:
  InProcessDevice() : number_(registry().add(own_)) {}
  ~InProcessDevice() override {
    close();
    registry().remove(number_);
  }

  std::string provider() const override { return "in process"; }
  std::string address() const override { return absl::StrCat(kPrefix, number_); }
  size_t maxPosted() const override { return 1024; }

  absl::StatusOr<std::string> addPeer(int peer, const std::string& address) override {
    absl::string_view text = address;
    uint64_t number = 0;
    if (!absl::ConsumePrefix(&text, kPrefix) || !absl::SimpleAtoi(text, &number)) {
      return absl::InvalidArgumentError("not the address of a bulk transport within this process");
    }
    if (peers_.size() <= static_cast<size_t>(peer)) peers_.resize(static_cast<size_t>(peer) + 1);
    peers_[static_cast<size_t>(peer)] = registry().find(number);
    return address;
  }

  absl::StatusOr<DeviceRegion> registerMemory(std::span<std::byte> memory, BulkAccess access) override {
    std::lock_guard lock(own_->mutex);
    const uint64_t key = own_->nextKey++;
    own_->memory[key] = {memory.data(), memory.size(), access};
    return DeviceRegion{key, 0, reinterpret_cast<void*>(static_cast<uintptr_t>(key))};
  }

  void unregisterMemory(const DeviceRegion& region) override {
    std::lock_guard lock(own_->mutex);
    own_->memory.erase(region.key);
  }

  absl::StatusOr<bool> post(const DeviceTransfer& transfer) override {
    const std::shared_ptr<Endpoint> peer = peers_[static_cast<size_t>(transfer.peer)];
    DeviceCompletion completion{.isArrival = false, .id = transfer.id, .data = 0, .status = copy(peer.get(), transfer)};
    std::lock_guard lock(own_->mutex);
    own_->completions.push_back(std::move(completion));
    return true;
  }

  void poll(std::vector<DeviceCompletion>* completions) override {
    std::lock_guard lock(own_->mutex);
    for (DeviceCompletion& one : own_->completions) completions->push_back(std::move(one));
    own_->completions.clear();
  }

  void wait(int timeoutMs) override {
    std::unique_lock lock(own_->mutex);
    const auto ready = [this] { return own_->woken || !own_->completions.empty(); };
    if (timeoutMs < 0) {
      own_->changed.wait(lock, ready);
    } else {
      own_->changed.wait_until(lock, Clock::now() + std::chrono::milliseconds(timeoutMs), ready);
    }
    own_->woken = false;
  }

  void wake() override {
    std::lock_guard lock(own_->mutex);
    own_->woken = true;
    own_->changed.notify_one();
  }

  bool dropPeer(int peer) override {
    peers_[static_cast<size_t>(peer)] = nullptr;
    return true;
  }
  // A peer copies under the lock that unregistering takes.
  bool unregisteringIsFinal() const override { return true; }

  void close() override {
    std::lock_guard lock(own_->mutex);
    own_->closed = true;
    own_->memory.clear();
  }

 private:
  static absl::Status copy(Endpoint* peer, const DeviceTransfer& transfer) {
    if (peer == nullptr) return absl::UnavailableError("the peer is gone");
    std::lock_guard lock(peer->mutex);
    if (peer->closed) return absl::UnavailableError("the peer has closed");
    if (transfer.bytes > 0) {
      auto found = peer->memory.find(transfer.remoteKey);
      const BulkAccess wanted = transfer.isRead ? BulkAccess::kRemoteRead : BulkAccess::kRemoteWrite;
      if (found == peer->memory.end() || !includes(found->second.access, wanted) ||
          transfer.remoteAddress > found->second.bytes ||
          transfer.bytes > found->second.bytes - transfer.remoteAddress) {
        return absl::UnavailableError("the peer's memory is not registered for this");
      }
      std::byte* const remote = found->second.data + transfer.remoteAddress;
      std::memcpy(transfer.isRead ? transfer.local : remote, transfer.isRead ? remote : transfer.local, transfer.bytes);
    }
    if (!transfer.isRead) {
      peer->completions.push_back({.isArrival = true, .id = 0, .data = transfer.data, .status = absl::OkStatus()});
      peer->changed.notify_one();
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<Endpoint> own_ = std::make_shared<Endpoint>();
  const uint64_t number_;
  std::vector<std::shared_ptr<Endpoint>> peers_;
};

}  // namespace

std::unique_ptr<BulkDevice> makeInProcessBulkDevice() { return std::make_unique<InProcessDevice>(); }

absl::StatusOr<std::unique_ptr<BulkTransport>> makeInProcessBulkTransport(BulkOptions options) {
  return makeBulkTransport(std::move(options), makeInProcessBulkDevice());
}

}  // namespace farhop::rpc
