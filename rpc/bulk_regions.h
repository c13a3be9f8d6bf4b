// The registered memory of one bulk transport: who uses it, what is kept for the next use, when it may go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "rpc/bulk_device.h"

namespace farhop::rpc {

// Thread-safe. Shared by the transport and the region handles, which may outlive it.
class BulkRegions : public std::enable_shared_from_this<BulkRegions> {
 public:
  struct Limits {
    size_t maxBytes = 0;
    size_t maxRegions = 0;
    size_t maxIdleBytes = 0;
    size_t maxIdleRegions = 0;
  };
  using Done = std::function<void(absl::Status)>;

  // One registration. Fields are guarded by the table's mutex unless said otherwise.
  struct Registration {
    std::span<std::byte> memory;                        // constant
    BulkAccess access = BulkAccess::kSource;            // constant
    DeviceRegion device;                                // constant
    std::shared_ptr<const void> owner;                  // while in use
    std::weak_ptr<const void> ownerIdentity;            // tells whether idle memory still exists
    size_t handles = 0;
    size_t transfers = 0;
    std::map<int, size_t> grants;                       // by peer
    bool draining = false;                              // no new use; never idle
    struct Drain {
      Deadline deadline;
      Done done;
    };
    std::vector<Drain> drains;
    std::list<Registration*>::iterator idlePlace;       // in idle_ while `idle`
    bool idle = false;
  };

  BulkRegions(BulkDevice* device, Limits limits) : device_(device), limits_(limits) {}
  BulkRegions(const BulkRegions&) = delete;
  BulkRegions& operator=(const BulkRegions&) = delete;

  absl::StatusOr<std::shared_ptr<BulkRegion>> add(std::span<std::byte> memory, BulkAccess access,
                                                  std::shared_ptr<const void> owner);

  // Counts a transfer on the region; FailedPrecondition when it is drained or of another transport.
  absl::StatusOr<Registration*> beginTransfer(const std::shared_ptr<BulkRegion>& region, BulkAccess access);
  void endTransfer(Registration* registration);

  absl::Status grant(const std::shared_ptr<BulkRegion>& region, int peer);
  void revoke(const std::shared_ptr<BulkRegion>& region, int peer);
  // Ends all grants of one peer.
  void revokeAll(int peer);

  void drain(const std::shared_ptr<BulkRegion>& region, Deadline deadline, Done done);
  // Fails drains whose time is over; returns when the next one's is.
  Clock::time_point expireDrains(Clock::time_point now);

  // After the device has been closed: everything goes, whoever uses it. Drains end OK.
  void closeAll();

 private:
  class Handle;
  // What must happen after the mutex is released.
  struct Released {
    std::vector<DeviceRegion> regions;
    std::vector<std::shared_ptr<const void>> owners;
    std::vector<std::pair<Done, absl::Status>> calls;
  };
  using Table = std::map<Registration*, std::unique_ptr<Registration>>;

  Registration* registrationOf(const std::shared_ptr<BulkRegion>& region) const;
  Registration* findCached(std::span<std::byte> memory, BulkAccess access, const std::shared_ptr<const void>& owner);
  absl::Status makeRoom(size_t bytes, Released* released);
  void dropHandle(Registration* registration);
  // Lets the registration go, or keeps it idle, when nothing uses it any more.
  void settle(Registration* registration, Released* released);
  void erase(Registration* registration, Released* released);
  void evictIdle(Released* released);
  void finish(Released released);

  BulkDevice* const device_;
  const Limits limits_;
  mutable std::mutex mutex_;
  Table table_;                     // guarded by mutex_
  std::list<Registration*> idle_;   // guarded by mutex_; the longest unused first
  size_t bytes_ = 0;                // guarded by mutex_
  size_t pending_ = 0;              // guarded by mutex_; registrations being made
  size_t idleBytes_ = 0;            // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_

  // Held while the device registers or unregisters, so that closing waits for it.
  std::mutex deviceMutex_;
  bool deviceGone_ = false;  // guarded by deviceMutex_
};

}  // namespace farhop::rpc
