#include "rpc/bulk_regions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"

namespace farhop::rpc {
namespace {

bool sameOwner(const std::weak_ptr<const void>& a, const std::shared_ptr<const void>& b) {
  return !a.owner_before(b) && !b.owner_before(a) && b != nullptr;
}

}  // namespace

class BulkRegions::Handle : public BulkRegion {
 public:
  Handle(std::shared_ptr<BulkRegions> table, Registration* registration)
      : table_(std::move(table)),
        registration_(registration),
        memory_(registration->memory),
        device_(registration->device) {}
  ~Handle() override { table_->dropHandle(registration_); }

  std::span<std::byte> memory() const override { return memory_; }
  RemoteRegion remote() const override { return {device_.key, device_.address, memory_.size()}; }
  BulkRegions* table() const { return table_.get(); }
  Registration* registration() const { return registration_; }

 private:
  const std::shared_ptr<BulkRegions> table_;
  Registration* const registration_;
  const std::span<std::byte> memory_;
  const DeviceRegion device_;
};

BulkRegions::Registration* BulkRegions::registrationOf(const std::shared_ptr<BulkRegion>& region) const {
  auto* handle = dynamic_cast<Handle*>(region.get());
  return handle != nullptr && handle->table() == this ? handle->registration() : nullptr;
}

absl::StatusOr<std::shared_ptr<BulkRegion>> BulkRegions::add(std::span<std::byte> memory, BulkAccess access,
                                                             std::shared_ptr<const void> owner) {
  if (memory.data() == nullptr || memory.empty()) {
    return absl::InvalidArgumentError("no memory to register: a region has at least one byte");
  }
  Released released;
  absl::Status room;
  Registration* cached = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return absl::FailedPreconditionError("the bulk transport is closed");
    cached = findCached(memory, access, owner);
    if (cached != nullptr) {
      ++cached->handles;
    } else {
      room = makeRoom(memory.size(), &released);
      if (room.ok()) ++pending_;
    }
  }
  finish(std::move(released));
  if (cached != nullptr) return std::make_shared<Handle>(shared_from_this(), cached);
  FARHOP_RETURN_IF_ERROR(room);

  auto registration = std::make_unique<Registration>();
  Registration* made = registration.get();
  made->memory = memory;
  made->access = access;
  made->ownerIdentity = owner;
  made->owner = std::move(owner);
  made->handles = 1;
  // Held until the registration is in the table: closing must see it there, or come first.
  std::lock_guard deviceLock(deviceMutex_);
  absl::StatusOr<DeviceRegion> device = absl::FailedPreconditionError("the bulk transport is closed");
  if (!deviceGone_) device = device_->registerMemory(memory, access);
  if (device.ok()) made->device = *device;
  bool closed;
  {
    std::lock_guard lock(mutex_);
    closed = closed_;
    --pending_;
    if (!device.ok() || closed) {
      bytes_ -= memory.size();
    } else {
      table_.emplace(made, std::move(registration));
    }
  }
  FARHOP_RETURN_IF_ERROR(device.status());
  if (closed) {
    device_->unregisterMemory(*device);
    return absl::FailedPreconditionError("the bulk transport is closed");
  }
  return std::make_shared<Handle>(shared_from_this(), made);
}

BulkRegions::Registration* BulkRegions::findCached(std::span<std::byte> memory, BulkAccess access,
                                                   const std::shared_ptr<const void>& owner) {
  if (owner == nullptr) return nullptr;
  for (auto& [registration, unused] : table_) {
    if (registration->memory.data() != memory.data() || registration->memory.size() != memory.size() ||
        registration->draining || !includes(registration->access, access) ||
        !sameOwner(registration->ownerIdentity, owner)) {
      continue;
    }
    if (registration->idle) {
      idle_.erase(registration->idlePlace);
      idleBytes_ -= memory.size();
      registration->idle = false;
      registration->owner = owner;
    }
    return registration;
  }
  return nullptr;
}

// Counts `bytes` as registered, letting idle registrations go as far as needed.
absl::Status BulkRegions::makeRoom(size_t bytes, Released* released) {
  evictIdle(released);
  while (!idle_.empty() && (bytes_ + bytes > limits_.maxBytes || table_.size() + pending_ >= limits_.maxRegions)) {
    erase(idle_.front(), released);
  }
  if (bytes > limits_.maxBytes || bytes_ + bytes > limits_.maxBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot register ", bytes, " bytes for transfers: ", bytes_, " of ",
                                                     limits_.maxBytes, " are registered and in use"));
  }
  if (table_.size() + pending_ >= limits_.maxRegions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot register memory for transfers: ", limits_.maxRegions, " regions are in use"));
  }
  bytes_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<BulkRegions::Registration*> BulkRegions::beginTransfer(const std::shared_ptr<BulkRegion>& region,
                                                                      BulkAccess access) {
  Registration* registration = registrationOf(region);
  if (registration == nullptr) {
    return absl::InvalidArgumentError("the transfer's memory is no region of this transport");
  }
  std::lock_guard lock(mutex_);
  if (closed_) return absl::FailedPreconditionError("the bulk transport is closed");
  if (registration->draining) return absl::FailedPreconditionError("the region has been drained");
  if (!includes(registration->access, access)) {
    return absl::InvalidArgumentError("the region was not registered for this use");
  }
  ++registration->transfers;
  return registration;
}

void BulkRegions::endTransfer(Registration* registration) {
  Released released;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    --registration->transfers;
    settle(registration, &released);
  }
  finish(std::move(released));
}

absl::Status BulkRegions::grant(const std::shared_ptr<BulkRegion>& region, int peer) {
  Registration* registration = registrationOf(region);
  if (registration == nullptr) return absl::InvalidArgumentError("no region of this transport");
  std::lock_guard lock(mutex_);
  if (closed_) return absl::FailedPreconditionError("the bulk transport is closed");
  if (registration->draining) return absl::FailedPreconditionError("the region has been drained");
  ++registration->grants[peer];
  return absl::OkStatus();
}

void BulkRegions::revoke(const std::shared_ptr<BulkRegion>& region, int peer) {
  Registration* registration = registrationOf(region);
  if (registration == nullptr) return;
  Released released;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    auto grant = registration->grants.find(peer);
    if (grant == registration->grants.end()) return;  // ended with its peer
    if (--grant->second == 0) registration->grants.erase(grant);
    settle(registration, &released);
  }
  finish(std::move(released));
}

void BulkRegions::revokeAll(int peer) {
  Released released;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    std::vector<Registration*> concerned;
    for (auto& [registration, unused] : table_) {
      if (registration->grants.erase(peer) > 0) concerned.push_back(registration);
    }
    for (Registration* registration : concerned) settle(registration, &released);
  }
  finish(std::move(released));
}

void BulkRegions::dropHandle(Registration* registration) {
  Released released;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    --registration->handles;
    settle(registration, &released);
  }
  finish(std::move(released));
}

void BulkRegions::settle(Registration* registration, Released* released) {
  if (registration->transfers > 0 || !registration->grants.empty()) return;
  if (registration->draining) {
    // The handle stays valid, without a registration behind it, until it is dropped.
    if (registration->device.handle != nullptr) {
      released->regions.push_back(std::exchange(registration->device, {}));
      bytes_ -= registration->memory.size();
    }
    released->owners.push_back(std::move(registration->owner));
    for (Registration::Drain& drain : registration->drains) {
      released->calls.emplace_back(std::move(drain.done), absl::OkStatus());
    }
    registration->drains.clear();
    if (registration->handles == 0) table_.erase(registration);
    return;
  }
  if (registration->handles > 0) return;
  // What peers could write to without being expected is not kept either.
  const bool kept = registration->owner != nullptr && registration->owner.use_count() > 1 &&
                    !includes(registration->access, BulkAccess::kRemoteWrite);
  released->owners.push_back(std::exchange(registration->owner, nullptr));
  registration->idle = true;
  registration->idlePlace = idle_.insert(idle_.end(), registration);
  idleBytes_ += registration->memory.size();
  // Memory that ends here is not going to be registered again.
  if (!kept) erase(registration, released);
  evictIdle(released);
}

void BulkRegions::evictIdle(Released* released) {
  for (auto place = idle_.begin(); place != idle_.end();) {
    Registration* registration = *place++;
    // Memory that nobody owns (any more) may be gone; its registration is of no use.
    if (registration->ownerIdentity.expired()) erase(registration, released);
  }
  while (!idle_.empty() && (idle_.size() > limits_.maxIdleRegions || idleBytes_ > limits_.maxIdleBytes)) {
    erase(idle_.front(), released);
  }
}

void BulkRegions::erase(Registration* registration, Released* released) {
  idle_.erase(registration->idlePlace);
  idleBytes_ -= registration->memory.size();
  bytes_ -= registration->memory.size();
  released->regions.push_back(registration->device);
  table_.erase(registration);
}

void BulkRegions::drain(const std::shared_ptr<BulkRegion>& region, Deadline deadline, Done done) {
  Registration* registration = registrationOf(region);
  if (registration == nullptr) {
    done(absl::InvalidArgumentError("no region of this transport"));
    return;
  }
  Released released;
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      released.calls.emplace_back(std::move(done), absl::OkStatus());
    } else {
      registration->draining = true;
      registration->drains.push_back({deadline, std::move(done)});
      settle(registration, &released);
    }
  }
  finish(std::move(released));
}

Clock::time_point BulkRegions::expireDrains(Clock::time_point now) {
  Clock::time_point next = Clock::time_point::max();
  Released released;
  {
    std::lock_guard lock(mutex_);
    for (auto& [registration, unused] : table_) {
      auto& drains = registration->drains;
      for (auto drain = drains.begin(); drain != drains.end();) {
        if (drain->deadline.at() > now) {
          next = std::min(next, drain->deadline.at());
          ++drain;
          continue;
        }
        std::vector<int> peers;
        for (const auto& [peer, count] : registration->grants) peers.push_back(peer);
        released.calls.emplace_back(
            std::move(drain->done),
            absl::DeadlineExceededError(absl::StrCat(
                "a region of ", registration->memory.size(), " bytes is still in use at the deadline: ",
                registration->transfers, " own transfers, granted to machines [", absl::StrJoin(peers, ", "), "]")));
        drain = drains.erase(drain);
      }
    }
  }
  finish(std::move(released));
  return next;
}

void BulkRegions::closeAll() {
  Released released;
  Table dropped;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (auto& [registration, unused] : table_) {
      if (registration->device.handle != nullptr) released.regions.push_back(registration->device);
      released.owners.push_back(std::move(registration->owner));
      for (Registration::Drain& drain : registration->drains) {
        released.calls.emplace_back(std::move(drain.done), absl::OkStatus());
      }
    }
    dropped.swap(table_);
    idle_.clear();
    idleBytes_ = 0;
  }
  finish(std::move(released));
  std::lock_guard lock(deviceMutex_);
  deviceGone_ = true;
}

// Unregisters before owners go: a registration must not outlive its memory.
void BulkRegions::finish(Released released) {
  if (!released.regions.empty()) {
    std::lock_guard lock(deviceMutex_);
    for (const DeviceRegion& region : released.regions) {
      if (!deviceGone_) device_->unregisterMemory(region);
    }
  }
  released.owners.clear();
  for (auto& [done, status] : released.calls) done(status);
}

}  // namespace farhop::rpc
