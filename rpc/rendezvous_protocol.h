// The rendezvous store's frames: docs/rendezvous-protocol.md. Shared by server and client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace farhop::rpc {

inline constexpr uint32_t kStoreMagic = 0x56524846;  // "FHRV"
inline constexpr uint16_t kStoreVersion = 1;
inline constexpr size_t kStorePrefixBytes = 12;      // magic, version, operation, zero, body length

enum class StoreOperation : uint8_t { kHello = 1, kSet = 2, kGet = 3, kAdd = 4, kFarewell = 5, kReply = 6 };

struct StorePrefix {
  uint16_t version = 0;
  StoreOperation operation = StoreOperation::kHello;
  uint32_t bodyBytes = 0;
};

// A whole frame.
std::string storeFrame(StoreOperation operation, std::string_view body);
// The 12 bytes before a body. InvalidArgument when they are no frame's.
absl::StatusOr<StorePrefix> parseStorePrefix(std::string_view bytes);

struct StoreHello {
  std::string jobId;
  std::string token;
  int machine = -1;
  int proc = -1;
};
inline constexpr size_t kMaxStoreHelloBytes = 4096;

std::string encodeStoreHello(const StoreHello& hello);
absl::StatusOr<StoreHello> decodeStoreHello(std::string_view body);

// A reply's body: the status, and on OK the value.
std::string encodeStoreReply(const absl::Status& status, std::string_view value);
absl::StatusOr<std::string> decodeStoreReply(std::string_view body, size_t maxValueBytes);

// Makes the kernel give up on a peer that has not answered for about 10 s, and send small frames at once.
void noticeSilence(int socket);

}  // namespace farhop::rpc
