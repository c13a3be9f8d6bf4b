// Which of libfabric's providers a group's bulk transport uses.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "rpc/bulk_transport.h"
#include "rpc/fabric_library.h"

namespace farhop::rpc {

struct FreeFabricInfo {
  const FabricLibrary* library = nullptr;
  void operator()(fi_info* info) const { library->freeInfo(info); }
};
using FabricInfo = std::unique_ptr<fi_info, FreeFabricInfo>;

// The provider's offer to open. Without a choice: the first of verbs;ofi_rxm, efa, psm2 and tcp;ofi_rxm that
// offers remote writes with completion data on the group's interface; where FI_PROVIDER restricts libfabric to
// others, the first of those. Unavailable, listing what there is, when nothing fits.
absl::StatusOr<FabricInfo> chooseFabricProvider(const FabricLibrary* library, const FabricOptions& options);

// The provider's name of an offer.
std::string providerName(const fi_info& info);

}  // namespace farhop::rpc
