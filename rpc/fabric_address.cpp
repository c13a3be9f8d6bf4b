#include "rpc/fabric_address.h"

#include "rpc/byte_codec.h"

namespace farhop::rpc {
namespace {
constexpr uint8_t kAddressVersion = 1;
constexpr size_t kMaxFieldBytes = 256;
}  // namespace

std::string encodeFabricAddress(const FabricAddress& address) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u8(kAddressVersion);
  writer.string(address.provider);
  writer.string(address.bufferSize);
  writer.string(address.name);
  writer.u32(address.format);
  return bytes;
}

absl::StatusOr<FabricAddress> decodeFabricAddress(const std::string& bytes) {
  ByteReader reader(bytes);
  FabricAddress address;
  const uint8_t version = reader.u8();
  address.provider = std::string(reader.string(kMaxFieldBytes));
  address.bufferSize = std::string(reader.string(kMaxFieldBytes));
  address.name = std::string(reader.string(kMaxFieldBytes));
  address.format = reader.u32();
  if (!reader.ok() || version != kAddressVersion || reader.remaining() != 0 || address.name.empty()) {
    return absl::InvalidArgumentError("not the address of a libfabric endpoint of this version");
  }
  return address;
}

absl::Status checkFabricAddresses(const FabricAddress& own, const FabricAddress& peer) {
  const auto differs = [](absl::string_view what, absl::string_view a, absl::string_view b) {
    return absl::FailedPreconditionError(
        absl::StrCat("its ", what, " is \"", b, "\", here it is \"", a, "\"; set it alike in all processes"));
  };
  if (own.provider != peer.provider) return differs("provider (FARHOP_FABRIC)", own.provider, peer.provider);
  if (own.bufferSize != peer.bufferSize) return differs("FI_OFI_RXM_BUFFER_SIZE", own.bufferSize, peer.bufferSize);
  if (own.format != peer.format || own.name.size() != peer.name.size()) {
    return differs("kind of address (IPv4, IPv6)", absl::StrCat(own.format), absl::StrCat(peer.format));
  }
  return absl::OkStatus();
}

}  // namespace farhop::rpc
