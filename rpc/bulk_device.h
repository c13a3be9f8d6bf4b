// What a bulk transport needs of a network: registered memory, posted transfers, completions.
//
// The transport (bulk_transport.cpp) brings queues, bounds, deadlines and the care for memory; a device brings
// only what differs. registerMemory(), unregisterMemory() and wake() come from any thread, addPeer() from connect()'s
// before anything is posted, everything else from the transport's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "rpc/bulk_transport.h"

namespace farhop::rpc {

struct DeviceRegion {
  uint64_t key = 0;
  uint64_t address = 0;     // as a peer names the first byte
  void* handle = nullptr;   // the device's own
};

struct DeviceTransfer {
  uint64_t id = 0;  // told back in the completion
  bool isRead = false;
  int peer = -1;
  std::byte* local = nullptr;
  size_t bytes = 0;
  void* regionHandle = nullptr;  // null when bytes is 0
  uint64_t remoteAddress = 0;
  uint64_t remoteKey = 0;
  uint32_t data = 0;
};

struct DeviceCompletion {
  bool isArrival = false;
  uint64_t id = 0;    // of an own transfer
  uint32_t data = 0;  // of an arrival
  absl::Status status;
};

class BulkDevice {
 public:
  virtual ~BulkDevice() = default;

  virtual std::string provider() const = 0;
  virtual std::string address() const = 0;
  // Whether the network reads and writes a peer's memory by itself, without a thread of the peer's.
  virtual bool isOneSided() const { return false; }
  // How many transfers may be posted and not complete.
  virtual size_t maxPosted() const = 0;
  // Makes a peer known; returns its address for people.
  virtual absl::StatusOr<std::string> addPeer(int peer, const std::string& address) = 0;

  virtual absl::StatusOr<DeviceRegion> registerMemory(std::span<std::byte> memory, BulkAccess access) = 0;
  virtual void unregisterMemory(const DeviceRegion& region) = 0;

  // Starts a transfer; false: not now, try again. Every started transfer gets one completion, except that none
  // need come after dropPeer() has returned true.
  virtual absl::StatusOr<bool> post(const DeviceTransfer& transfer) = 0;
  // Appends what has completed. Returns at once.
  virtual void poll(std::vector<DeviceCompletion>* completions) = 0;
  // Sleeps until poll() may bring something, wake(), or the time-out (negative: none).
  virtual void wait(int timeoutMs) = 0;
  virtual void wake() = 0;

  // Takes no more connections from peers; those that exist stay.
  virtual absl::Status stopListening() { return absl::OkStatus(); }
  // Closes the connection to a peer. True: nothing of that peer's touches memory here any more, nor do own
  // transfers to it.
  virtual bool dropPeer(int peer) = 0;
  // Whether no peer can touch memory whose registration has been closed.
  virtual bool unregisteringIsFinal() const = 0;

  // Nothing touches any memory once it returns; registrations may still be closed after it.
  virtual void close() = 0;
};

}  // namespace farhop::rpc
