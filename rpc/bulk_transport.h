// Moves large pieces of memory between the processes of a group, straight into their place: the sender names
// the receiver's memory by a key, and the receiver's program does nothing but count what has arrived.
// Implementations: libfabric (fabric_device.h) and memory copies within one process, for tests and as reference.
//
// Memory takes part as a region. A region keeps its owner, so that no memory is freed while a network may still
// touch it: registered memory is let go when no handle, no transfer and no grant is left. A grant says that a peer
// knows the region's key and may write to it or read from it; the receiver ends it when its protocol shows that
// the peer is done (all that was announced has arrived), or by failPeer() when the peer is lost.
//
// Thread-safe. Callbacks run on the transport's thread, or on the caller's inside a call that cannot be served;
// they may only count and post, and must not call close().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace farhop::rpc {

class BulkDevice;

struct BulkOptions {
  // This process's rank in its group and the group's size.
  int rank = 0;
  int size = 1;
  // Who the peers are, for messages; address is filled in at connect(). Same length as `size`.
  std::vector<PeerName> peers;
  // Under way to one peer; what exceeds it waits in line (one longer transfer may go alone).
  size_t maxInFlightPerPeer = 32;
  size_t maxInFlightBytesPerPeer = size_t{32} << 20;
  // Waiting for one peer; one more is ResourceExhausted.
  size_t maxQueuedPerPeer = 16'384;
  // Of one transfer.
  size_t maxTransferBytes = size_t{1} << 30;
  // Registered at a time; beyond it a registration is ResourceExhausted.
  size_t maxRegisteredBytes = size_t{1} << 40;
  size_t maxRegions = 65'536;
  // Registrations that nobody uses and that are kept for the next use of the same memory (none that peers may
  // write to).
  size_t maxIdleBytes = size_t{1} << 30;
  size_t maxIdleRegions = 64;
};

// What a peer must know of a region. Plain numbers; travels in requests.
struct RemoteRegion {
  uint64_t key = 0;
  uint64_t address = 0;  // of the first byte, as the peer must name it
  uint64_t bytes = 0;
};

// What a region's memory is used for; values may be or-ed.
enum class BulkAccess : uint32_t {
  kSource = 1,       // own writes read from it
  kTarget = 2,       // own reads write to it
  kRemoteWrite = 4,  // peers write to it
  kRemoteRead = 8,   // peers read from it
};
constexpr BulkAccess operator|(BulkAccess a, BulkAccess b) {
  return static_cast<BulkAccess>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool includes(BulkAccess all, BulkAccess some) {
  return (static_cast<uint32_t>(all) & static_cast<uint32_t>(some)) == static_cast<uint32_t>(some);
}

// A handle on registered memory. May outlive its transport.
class BulkRegion {
 public:
  virtual ~BulkRegion() = default;
  virtual std::span<std::byte> memory() const = 0;
  virtual RemoteRegion remote() const = 0;
};

struct BulkTransfer {
  int peer = -1;
  std::shared_ptr<BulkRegion> local;  // may be null when bytes is 0
  size_t localOffset = 0;
  size_t bytes = 0;
  RemoteRegion remote;
  uint64_t remoteOffset = 0;
  uint32_t data = 0;  // of a write: told to the peer when all bytes are there
  Deadline deadline;
};

struct BulkTraffic {
  uint64_t bytesWritten = 0;  // of completed own transfers
  uint64_t bytesRead = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;
  uint64_t arrivals = 0;
};

class BulkTransport {
 public:
  // Ends one transfer, exactly once. OK: a write's memory may be changed again (its bytes need not have arrived:
  // that is what the peer's arrival says), a read's bytes are there. On an error the region may still be touched
  // until drain() says that it is not.
  using Done = std::function<void(absl::Status)>;
  // A peer's write is complete in this process's memory. Writes overtake each other.
  using Arrival = std::function<void(uint32_t data)>;

  virtual ~BulkTransport() = default;

  // "tcp;ofi_rxm", "in process", ...
  virtual std::string provider() const = 0;
  // Whether a peer's memory is read and written by the network alone, without a thread of the peer's: RDMA hardware.
  virtual bool isOneSided() const = 0;
  // Opaque bytes by which the group's other processes reach this one.
  virtual std::string address() const = 0;
  // Set before connect().
  virtual void onArrival(Arrival callback) = 0;
  // Makes the peers known, in rank order (the own address is ignored); sends nothing. Once. InvalidArgument for
  // bytes that are no address, FailedPrecondition, naming the peer, when its transport does not fit this one.
  virtual absl::Status connect(const std::vector<std::string>& addresses) = 0;

  // Registers memory, or finds the registration that the same owner's memory already has. `owner` keeps the
  // memory valid; without one the caller does, until drain() or close(). ResourceExhausted when limits do not
  // allow it (the message says which), InvalidArgument for no memory.
  virtual absl::StatusOr<std::shared_ptr<BulkRegion>> registerMemory(std::span<std::byte> memory, BulkAccess access,
                                                                     std::shared_ptr<const void> owner) = 0;

  // Copies local bytes to the peer's region, or the peer's bytes here. Never blocks. Completes with
  // InvalidArgument (out of a region's range), DeadlineExceeded (naming the peer), Unavailable (peer lost, or the
  // fabric's error; naming the peer), ResourceExhausted (too many in line), FailedPrecondition (not connected,
  // region drained), or close()'s reason.
  virtual void write(BulkTransfer transfer, Done done) = 0;
  virtual void read(BulkTransfer transfer, Done done) = 0;

  // From now until revoke() the peer may touch the region. Counted. Grant before the peer learns of the key.
  virtual absl::Status grant(const std::shared_ptr<BulkRegion>& region, int peer) = 0;
  virtual void revoke(const std::shared_ptr<BulkRegion>& region, int peer) = 0;

  // Takes the region out of use: no new transfer or grant; OK as soon as the last one has ended, with the memory
  // unregistered and its owner let go. DeadlineExceeded says who may still touch it: it is then kept, and drain()
  // may be called again.
  virtual void drain(const std::shared_ptr<BulkRegion>& region, Deadline deadline, Done done) = 0;

  // Gives a peer up: its transfers fail with `reason`, the connection is closed, its grants end as soon as it
  // provably touches nothing any more (at once with most providers, else at close()).
  virtual void failPeer(int peer, absl::Status reason) = 0;

  // Closes the port that peers connect to. Once all have met (bulk_meeting.h): a connection that breaks afterwards is
  // not made again. Where the provider has no port of its own there is nothing to close.
  virtual void stopListening(Done done) = 0;

  virtual BulkTraffic traffic() const = 0;

  // Fails everything under way with `reason`, lets all memory go, joins the thread. Idempotent; the destructor
  // does it too. Not from a callback.
  virtual void close(absl::Status reason) = 0;
};

// A transport over libfabric. See docs/bulk-transport.md for the choice of provider.
struct FabricOptions {
  // Numeric address of the group's network interface.
  std::string bindAddress = "127.0.0.1";
  // "tcp", "verbs", "efa", "psm2", "shm", a provider's full name, "none"; empty: the best that works.
  std::string choice;
  // Memory registration modes (FI_MR_...) to use though the provider does not demand them; for tests.
  uint64_t forcedRegistrationModes = 0;
};
// What FARHOP_FABRIC says, for FabricOptions::choice.
std::string fabricChoiceFromEnvironment();

// Loads libfabric, which makeFabricTransport() else does. It sets what the library reads from the environment when it
// starts, where the user has not: to be called before other threads read the environment. Unavailable where there is no
// libfabric.
absl::Status loadFabric();

// Unavailable where there is no fitting provider (the message lists what there is) or no libfabric.
absl::StatusOr<std::unique_ptr<BulkTransport>> makeFabricTransport(BulkOptions options, const FabricOptions& fabric);
// Copies within this process.
absl::StatusOr<std::unique_ptr<BulkTransport>> makeInProcessBulkTransport(BulkOptions options);
// Over any device.
absl::StatusOr<std::unique_ptr<BulkTransport>> makeBulkTransport(BulkOptions options,
                                                                 std::unique_ptr<BulkDevice> device);

}  // namespace farhop::rpc
