// The transport over any device: queues, bounds, deadlines. One thread owns the device's data path and sleeps when
// nothing is to be done.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rpc/bulk_device.h"
#include "rpc/bulk_regions.h"
#include "rpc/bulk_transport.h"

namespace farhop::rpc {

class BulkEngine : public BulkTransport {
 public:
  BulkEngine(BulkOptions options, std::unique_ptr<BulkDevice> device);
  ~BulkEngine() override { close(absl::CancelledError("the bulk transport was closed")); }

  std::string provider() const override { return device_->provider(); }
  bool isOneSided() const override { return device_->isOneSided(); }
  std::string address() const override { return address_; }
  void onArrival(Arrival callback) override {
    std::lock_guard lock(mutex_);
    arrival_ = std::move(callback);
  }
  absl::Status connect(const std::vector<std::string>& addresses) override;

  absl::StatusOr<std::shared_ptr<BulkRegion>> registerMemory(std::span<std::byte> memory, BulkAccess access,
                                                             std::shared_ptr<const void> owner) override {
    return regions_->add(memory, access, std::move(owner));
  }
  void write(BulkTransfer transfer, Done done) override { submit(std::move(transfer), false, std::move(done)); }
  void read(BulkTransfer transfer, Done done) override { submit(std::move(transfer), true, std::move(done)); }

  absl::Status grant(const std::shared_ptr<BulkRegion>& region, int peer) override;
  void revoke(const std::shared_ptr<BulkRegion>& region, int peer) override { regions_->revoke(region, peer); }
  void drain(const std::shared_ptr<BulkRegion>& region, Deadline deadline, Done done) override {
    regions_->drain(region, deadline, std::move(done));
    wakeThread();  // to learn of the deadline
  }
  void failPeer(int peer, absl::Status reason) override;
  void stopListening(Done done) override;
  BulkTraffic traffic() const override {
    std::lock_guard lock(mutex_);
    return traffic_;
  }
  void close(absl::Status reason) override;

 private:
  // A device that cannot take a transfer now is asked again after its next completion, or after this long.
  static constexpr std::chrono::milliseconds kFirstRetry{1};
  static constexpr std::chrono::milliseconds kLastRetry{32};

  struct Transfer {
    BulkTransfer what;
    bool isRead = false;
    BulkRegions::Registration* registration = nullptr;
    Done done;  // empty once it has run
  };
  using Queue = std::deque<Transfer>;
  struct Peer {
    // Guarded by mutex_.
    Queue submitted;
    size_t inLine = 0;       // submitted, or taken and not yet posted
    absl::Status lost;       // not OK: nothing is sent any more
    bool dropRequested = false;
    // Of the thread's own.
    Queue waiting;
    size_t inFlight = 0;
    size_t inFlightBytes = 0;
    bool dropped = false;
  };
  struct Posted {
    Transfer transfer;
    int peer = -1;
  };

  absl::Status check(const BulkTransfer& transfer) const;
  void submit(BulkTransfer transfer, bool isRead, Done done);
  PeerName peerName(int peer) const;
  absl::Status named(const absl::Status& status, int peer, const Transfer& transfer) const;

  // On the thread.
  void run();
  bool takeSubmitted();
  bool handleCompletions();
  bool postWaiting();
  bool postOne(Peer& peer, int number);
  void dropRequestedPeers();
  void stopListeningIfAsked();
  void failWaiting(int number, const absl::Status& reason);
  void dropPeer(int number, const absl::Status& reason);
  void expire(Clock::time_point now);
  void finishPosted(std::unordered_map<uint64_t, Posted>::iterator posted, absl::Status status);
  void end(Transfer transfer, absl::Status status);
  int sleepMs(Clock::time_point now) const;
  void failEverything(const absl::Status& reason);
  void wakeThread() {
    if (!wakePending_.exchange(true)) device_->wake();
  }

  const BulkOptions options_;
  const std::unique_ptr<BulkDevice> device_;
  const std::string address_;
  size_t maxPerPeer_ = 1;

  mutable std::mutex mutex_;
  std::vector<PeerName> names_;     // guarded by mutex_; filled by connect()
  std::vector<std::string> toAdd_;  // guarded by mutex_
  bool connected_ = false;          // guarded by mutex_
  bool stopping_ = false;           // guarded by mutex_
  absl::Status closeReason_;        // guarded by mutex_
  std::vector<Done> listeningEnds_;  // guarded by mutex_; who asked for it
  Arrival arrival_;                 // guarded by mutex_; constant after connect()
  BulkTraffic traffic_;             // guarded by mutex_
  std::vector<Peer> peers_;         // see Peer

  std::atomic<bool> wakePending_{false};
  const std::shared_ptr<BulkRegions> regions_;

  // Of the thread's own.
  std::unordered_map<uint64_t, Posted> posted_;
  uint64_t nextId_ = 1;
  std::vector<DeviceCompletion> completions_;
  bool retry_ = false;
  std::chrono::milliseconds retryDelay_ = kFirstRetry;
  Clock::time_point nextDeadline_ = Clock::time_point::max();

  std::mutex closeMutex_;  // one close() at a time
  std::thread thread_;     // guarded by closeMutex_
};

}  // namespace farhop::rpc
