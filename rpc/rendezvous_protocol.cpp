#include "rpc/rendezvous_protocol.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "rpc/byte_codec.h"
#include "rpc/wire.h"

namespace farhop::rpc {

std::string storeFrame(StoreOperation operation, std::string_view body) {
  std::string frame;
  ByteWriter writer(&frame);
  writer.u32(kStoreMagic);
  writer.u16(kStoreVersion);
  writer.u8(static_cast<uint8_t>(operation));
  writer.u8(0);
  writer.string(body);
  return frame;
}

absl::StatusOr<StorePrefix> parseStorePrefix(std::string_view bytes) {
  ByteReader in(bytes);
  const uint32_t magic = in.u32();
  StorePrefix prefix;
  prefix.version = in.u16();
  const uint8_t operation = in.u8();
  const uint8_t zero = in.u8();
  prefix.bodyBytes = in.u32();
  const bool known = operation >= static_cast<uint8_t>(StoreOperation::kHello) &&
                     operation <= static_cast<uint8_t>(StoreOperation::kReply);
  if (!in.ok() || magic != kStoreMagic || zero != 0 || !known) {
    return absl::InvalidArgumentError("not a frame of the rendezvous store");
  }
  prefix.operation = static_cast<StoreOperation>(operation);
  return prefix;
}

std::string encodeStoreHello(const StoreHello& hello) {
  std::string body;
  ByteWriter writer(&body);
  writer.string(hello.jobId);
  writer.string(hello.token);
  writer.u32(static_cast<uint32_t>(hello.machine));
  writer.u32(static_cast<uint32_t>(hello.proc));
  return body;
}

absl::StatusOr<StoreHello> decodeStoreHello(std::string_view body) {
  ByteReader in(body);
  StoreHello hello;
  hello.jobId = std::string(in.string(kMaxStoreHelloBytes));
  hello.token = std::string(in.string(kMaxStoreHelloBytes));
  hello.machine = static_cast<int>(in.u32());
  hello.proc = static_cast<int>(in.u32());
  if (!in.ok() || in.remaining() > 0) return absl::InvalidArgumentError("not a hello of the rendezvous store");
  return hello;
}

std::string encodeStoreReply(const absl::Status& status, std::string_view value) {
  std::string body;
  ByteWriter writer(&body);
  writer.u16(static_cast<uint16_t>(status.code()));
  writer.string(status.ok() ? std::string() : encodeStatus(status));
  writer.string(value);
  return body;
}

absl::StatusOr<std::string> decodeStoreReply(std::string_view body, size_t maxValueBytes) {
  ByteReader in(body);
  const auto code = static_cast<absl::StatusCode>(in.u16());
  const std::string_view text = in.string(kMaxTailBytes);
  const std::string_view value = in.string(maxValueBytes);
  if (!in.ok() || in.remaining() > 0 || code > absl::StatusCode::kUnauthenticated) {
    return absl::InvalidArgumentError("malformed reply of the rendezvous store");
  }
  if (code != absl::StatusCode::kOk) return decodeStatus(code, text);
  return std::string(value);
}

void noticeSilence(int socket) {
  const int on = 1, idleSeconds = 4, intervalSeconds = 2, probes = 3, userTimeoutMs = 10'000;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idleSeconds, sizeof(idleSeconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &intervalSeconds, sizeof(intervalSeconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &userTimeoutMs, sizeof(userTimeoutMs));
}

}  // namespace farhop::rpc
