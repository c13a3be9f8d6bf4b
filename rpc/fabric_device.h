// A bulk device over libfabric: reliable datagram endpoint, remote writes with completion data, remote reads.
//
// One endpoint and one completion queue. Progress is manual with tcp;ofi_rxm: things move while the queue is read,
// so the transport's thread reads it whenever the queue's descriptor says that there is something to do.
#pragma once

#include <memory>

#include "rpc/bulk_device.h"

namespace farhop::rpc {

absl::StatusOr<std::unique_ptr<BulkDevice>> makeFabricDevice(const FabricOptions& options);

}  // namespace farhop::rpc
