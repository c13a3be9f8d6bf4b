// What processes tell each other of their endpoints, so that endpoints that cannot talk say so at connect().
//
// Bytes: u8 version, then length-prefixed: provider, buffer size setting, endpoint name; and u32 address format.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace farhop::rpc {

struct FabricAddress {
  std::string provider;
  std::string bufferSize;  // FI_OFI_RXM_BUFFER_SIZE; endpoints over ofi_rxm refuse each other when it differs
  uint32_t format = 0;     // FI_SOCKADDR_IN, ...
  std::string name;        // as fi_getname() gives it
};

std::string encodeFabricAddress(const FabricAddress& address);
absl::StatusOr<FabricAddress> decodeFabricAddress(const std::string& bytes);
// FailedPrecondition, saying what differs, when endpoints of these addresses cannot talk to each other.
absl::Status checkFabricAddresses(const FabricAddress& own, const FabricAddress& peer);

}  // namespace farhop::rpc
