// The objects that make up a libfabric endpoint: opened together, closed in the right order.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "rpc/bulk_device.h"
#include "rpc/fabric_library.h"
#include "rpc/fabric_provider.h"

namespace farhop::rpc {

struct CloseFid {
  template <typename Fid>
  void operator()(Fid* object) const {
    fi_close(&object->fid);
  }
};
template <typename Fid>
using Owned = std::unique_ptr<Fid, CloseFid>;

// Closed from the last to the first.
struct FabricObjects {
  Owned<fid_fabric> fabric;
  Owned<fid_domain> domain;
  Owned<fid_av> addresses;
  Owned<fid_cq> queue;
  Owned<fid_ep> endpoint;
  int queueFd = -1;  // the queue's own; -1 where the provider has none
};

// Whether a provider moves bytes by sockets: no memory is locked, and closing a registration stops nothing that
// has begun.
bool isSocketProvider(const std::string& name);

// Whether a provider's hardware reads a peer's memory without the peer's processor.
bool isOneSidedProvider(const std::string& name);

absl::StatusOr<FabricObjects> openFabricObjects(const FabricLibrary& library, fi_info* info, size_t queueEntries);
absl::StatusOr<std::string> endpointName(const FabricLibrary& library, const FabricObjects& objects);

// ResourceExhausted, naming the limit, where locked memory is used up.
absl::StatusOr<DeviceRegion> registerFabricMemory(const FabricLibrary& library, const fi_info& info,
                                                  const FabricObjects& objects, std::span<std::byte> memory,
                                                  BulkAccess access);

}  // namespace farhop::rpc
