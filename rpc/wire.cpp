#include "rpc/wire.h"

#include <algorithm>

#include "rpc/byte_codec.h"

namespace farhop::rpc {
namespace {

constexpr size_t kMaxStatusTextBytes = 8 * 1024;
constexpr size_t kMaxNameBytes = 1024;

absl::Status malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
}

// Reads one frame; the fields' meaning is checked by the caller.
absl::StatusOr<Frame> readFrame(ByteReader* in) {
  if (in->remaining() < kFrameHeaderBytes) return malformed("a header is cut short");
  if (in->u32() != kWireMagic) return malformed("not a Farhop message");
  const uint16_t version = in->u16();
  if (version != kWireVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the other side speaks protocol version ", version,
                                                      ", this one version ", kWireVersion,
                                                      "; run the same Farhop everywhere"));
  }
  Frame frame;
  const uint8_t kind = in->u8();
  if (kind < static_cast<uint8_t>(FrameKind::kHello) || kind > static_cast<uint8_t>(FrameKind::kFarewell)) {
    return malformed(absl::StrCat("unknown kind ", kind));
  }
  frame.kind = static_cast<FrameKind>(kind);
  frame.flags = in->u8();
  frame.id = in->u64();
  frame.method = in->u16();
  const uint16_t code = in->u16();
  if (code > static_cast<uint16_t>(absl::StatusCode::kUnauthenticated)) {
    return malformed(absl::StrCat("unknown status ", code));
  }
  frame.code = static_cast<absl::StatusCode>(code);
  frame.deadlineMs = in->u32();
  frame.arrays = in->u32();
  const uint32_t tailBytes = in->u32();
  if (tailBytes > kMaxTailBytes || tailBytes > in->remaining()) return malformed("a tail is too long");
  frame.tail = std::string(in->raw(tailBytes));
  return frame;
}

}  // namespace

void appendFrame(const Frame& frame, std::string* out) {
  ByteWriter writer(out);
  writer.u32(kWireMagic);
  writer.u16(kWireVersion);
  writer.u8(static_cast<uint8_t>(frame.kind));
  writer.u8(frame.flags);
  writer.u64(frame.id);
  writer.u16(frame.method);
  writer.u16(static_cast<uint16_t>(frame.code));
  writer.u32(frame.deadlineMs);
  writer.u32(frame.arrays);
  writer.string(frame.tail);
}

absl::StatusOr<std::vector<Frame>> parseFrames(std::string_view metadata, std::span<const size_t> arraySizes,
                                               const WireLimits& limits) {
  ByteReader in(metadata);
  std::vector<Frame> frames;
  size_t nextArray = 0, messageBytes = 0;
  do {
    if (frames.size() == kMaxFramesPerMessage) return malformed("too many frames");
    FARHOP_ASSIGN_OR_RETURN(Frame frame, readFrame(&in));
    if (frame.arrays > arraySizes.size() - nextArray) return malformed("fewer arrays than its headers say");
    if (frame.arrays > limits.maxFrameArrays) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a message of ", frame.arrays, " arrays exceeds the limit of ", limits.maxFrameArrays));
    }
    const bool mayHaveArrays = frame.kind == FrameKind::kRequest ||
                               (frame.kind == FrameKind::kReply && frame.code == absl::StatusCode::kOk);
    if (frame.arrays > 0 && !mayHaveArrays) return malformed("arrays where there can be none");
    size_t frameBytes = 0;
    for (uint32_t i = 0; i < frame.arrays; ++i) {
      const size_t bytes = arraySizes[nextArray++];
      if (bytes > limits.maxFrameBytes - frameBytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("a message exceeds the limit of ", limits.maxFrameBytes, " bytes"));
      }
      frameBytes += bytes;
    }
    messageBytes += frameBytes;
    frames.push_back(std::move(frame));
  } while (in.remaining() > 0);
  if (nextArray != arraySizes.size()) return malformed("more arrays than its headers say");
  // A sender puts together only what is small; see kCoalesceBytes.
  if (messageBytes > std::max(limits.maxFrameBytes, kCoalesceBytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("a message of ", messageBytes, " bytes is too long"));
  }
  return frames;
}

std::string encodeHello(const Hello& hello) {
  std::string tail;
  ByteWriter writer(&tail);
  writer.string(hello.jobId);
  writer.string(hello.token);
  writer.u32(static_cast<uint32_t>(hello.rank));
  writer.u32(static_cast<uint32_t>(hello.size));
  writer.u64(hello.maxMessageBytes);
  writer.u32(hello.maxArrays);
  writer.u64(hello.maxInflightBytes);
  writer.u32(hello.maxCalls);
  writer.u32(hello.peerTimeoutMs);
  return tail;
}

absl::StatusOr<Hello> decodeHello(std::string_view tail) {
  ByteReader in(tail);
  Hello hello;
  hello.jobId = std::string(in.string(kMaxNameBytes));
  hello.token = std::string(in.string(kMaxNameBytes));
  hello.rank = static_cast<int>(in.u32());
  hello.size = static_cast<int>(in.u32());
  hello.maxMessageBytes = in.u64();
  hello.maxArrays = in.u32();
  hello.maxInflightBytes = in.u64();
  hello.maxCalls = in.u32();
  hello.peerTimeoutMs = in.u32();
  if (!in.ok() || in.remaining() > 0) return malformed("not a hello");
  return hello;
}

std::string encodeStatus(const absl::Status& status) {
  const std::optional<PeerName> peer = peerOf(status);
  std::string tail;
  ByteWriter writer(&tail);
  writer.u8(peer ? 1 : 0);
  if (peer) {
    writer.u32(static_cast<uint32_t>(peer->machine));
    writer.u32(static_cast<uint32_t>(peer->proc));
    writer.string(std::string_view(peer->address).substr(0, kMaxNameBytes));
  }
  const absl::string_view message = status.message();
  writer.string(std::string_view(message.data(), std::min(message.size(), kMaxStatusTextBytes)));
  return tail;
}

absl::Status decodeStatus(absl::StatusCode code, std::string_view tail) {
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  ByteReader in(tail);
  PeerName peer;
  const bool hasPeer = in.u8() == 1;
  if (hasPeer) {
    peer.machine = static_cast<int>(in.u32());
    peer.proc = static_cast<int>(in.u32());
    peer.address = std::string(in.string(kMaxNameBytes));
  }
  const std::string message(in.string(kMaxStatusTextBytes));
  if (!in.ok() || in.remaining() > 0) return absl::Status(code, "(the error's text was malformed)");
  absl::Status status(code, message);
  return hasPeer ? withPeer(std::move(status), peer) : status;
}

}  // namespace farhop::rpc
