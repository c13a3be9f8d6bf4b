// The wire format of RPC messages: docs/rpc-wire-format.md.
//
// A message's metadata is one or more frames; a frame is a fixed 32-byte little-endian header and a short
// tail. The message's payloads are the arrays of all its frames, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace farhop::rpc {

inline constexpr uint32_t kWireMagic = 0x50524846;  // "FHRP"
inline constexpr uint16_t kWireVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr size_t kMaxTailBytes = 16 * 1024;
inline constexpr size_t kMaxFramesPerMessage = 128;
// What a sender puts together into one message: frames are added while it stays below both.
inline constexpr size_t kCoalesceBytes = size_t{1} << 20;
inline constexpr size_t kCoalesceArrays = 256;

enum class FrameKind : uint8_t { kHello = 1, kRequest = 2, kReply = 3, kHeartbeat = 4, kFarewell = 5 };

// Flags of a hello: absent from the dialling side's; the answer has exactly one.
inline constexpr uint8_t kFlagWelcome = 1;
inline constexpr uint8_t kFlagRejected = 2;
// Flag of a farewell: acknowledges the other side's.
inline constexpr uint8_t kFlagAcknowledge = 1;

struct Frame {
  FrameKind kind = FrameKind::kHeartbeat;
  uint8_t flags = 0;
  uint16_t method = 0;
  absl::StatusCode code = absl::StatusCode::kOk;  // replies and rejections
  uint64_t id = 0;
  uint32_t deadlineMs = 0;  // what is left of a request's deadline when it is sent
  uint32_t arrays = 0;
  std::string tail;
};

struct WireLimits {
  size_t maxFrameBytes = 0;   // sum of one frame's arrays
  size_t maxFrameArrays = 0;
};

void appendFrame(const Frame& frame, std::string* out);

// The frames of a message whose payloads have the given sizes. InvalidArgument for anything that is not
// exactly well formed, ResourceExhausted for what exceeds the limits, FailedPrecondition for another version.
// Allocates no more than the metadata's own size.
absl::StatusOr<std::vector<Frame>> parseFrames(std::string_view metadata, std::span<const size_t> arraySizes,
                                               const WireLimits& limits);

// The first message of a pipe, in both directions.
struct Hello {
  std::string jobId;
  std::string token;
  int rank = 0;
  int size = 0;
  // What this side accepts; the other side sends no more.
  uint64_t maxMessageBytes = 0;
  uint32_t maxArrays = 0;
  uint64_t maxInflightBytes = 0;
  uint32_t maxCalls = 0;
  // How long this side waits for a sign of life; the other side's heartbeats are four times as frequent.
  uint32_t peerTimeoutMs = 0;
};

std::string encodeHello(const Hello& hello);
absl::StatusOr<Hello> decodeHello(std::string_view tail);

// A non-OK status as a tail: message (shortened where need be) and peer; the code travels in the header.
std::string encodeStatus(const absl::Status& status);
absl::Status decodeStatus(absl::StatusCode code, std::string_view tail);

}  // namespace farhop::rpc
