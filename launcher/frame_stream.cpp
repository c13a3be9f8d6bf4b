#include "launcher/frame_stream.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/byte_codec.h"

namespace farhop::launcher {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr size_t kReadBytes = size_t{64} << 10;

bool isKind(uint8_t kind) {
  return (kind >= 1 && kind <= 9) || (kind >= 32 && kind <= 37) || kind == 64;
}

size_t limitOf(FrameKind kind) {
  return kind == FrameKind::kOrders ? kMaxFrameBytes : 2 * kMaxOutputFrameBytes;
}

}  // namespace

FrameStream::FrameStream(FileDescriptor in, FileDescriptor out, Opening opening)
    : in_(std::move(in)), out_(std::move(out)), opening_(opening) {}

void FrameStream::sendMagic() {
  outgoing_.append(kAgentMagic, sizeof(kAgentMagic) - 1);
}

void FrameStream::abandon() {
  abandoned_ = true;
  in_.reset();
  out_.reset();
  outgoing_.clear();
  sent_ = 0;
}

void FrameStream::send(FrameKind kind, absl::string_view payload) {
  if (abandoned_) return;
  if (sent_ > 0 && sent_ * 2 >= outgoing_.size()) {
    outgoing_.erase(0, sent_);
    sent_ = 0;
  }
  ByteWriter writer(&outgoing_);
  writer.u32(static_cast<uint32_t>(payload.size()));
  writer.u8(static_cast<uint8_t>(kind));
  outgoing_.append(payload.data(), payload.size());
}

absl::Status FrameStream::writeSome() {
  while (pending()) {
    const ssize_t n = ::write(out_.get(), outgoing_.data() + sent_, pendingBytes());
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return absl::OkStatus();
    } else if (errno != EINTR) {
      return absl::UnavailableError(std::string(errnoStatus("writing", errno).message()));
    }
  }
  outgoing_.clear();
  sent_ = 0;
  return absl::OkStatus();
}

absl::Status FrameStream::readSome() {
  std::vector<char> bytes(kReadBytes);
  ssize_t n = 0;
  do {
    n = ::read(in_.get(), bytes.data(), bytes.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
  if (n < 0) return absl::UnavailableError(std::string(errnoStatus("reading", errno).message()));
  if (n == 0) return absl::UnavailableError("the connection was closed");
  if (taken_ > 0) {
    incoming_.erase(0, taken_);
    taken_ = 0;
  }
  incoming_.append(bytes.data(), static_cast<size_t>(n));
  return absl::OkStatus();
}

bool FrameStream::passMagic() {
  const size_t at = incoming_.find(kAgentMagic, 0, sizeof(kAgentMagic) - 1);
  if (at == std::string::npos) return false;
  incoming_.erase(0, at + sizeof(kAgentMagic) - 1);
  opening_ = Opening::kNone;
  return true;
}

absl::StatusOr<std::optional<Frame>> FrameStream::next() {
  if (opening_ == Opening::kExpectMagic && !passMagic()) {
    if (incoming_.size() <= kMaxBannerBytes) return std::optional<Frame>();
    return absl::InvalidArgumentError("something else than a farhop agent answered");
  }
  const size_t available = incoming_.size() - taken_;
  if (available < kHeaderBytes) return std::optional<Frame>();
  ByteReader reader(std::string_view(incoming_).substr(taken_, kHeaderBytes));
  const size_t bytes = reader.u32();
  const uint8_t kind = reader.u8();
  if (!isKind(kind) || bytes > limitOf(static_cast<FrameKind>(kind))) {
    return absl::InvalidArgumentError("bytes came that are no frame of the agents' protocol");
  }
  if (available - kHeaderBytes < bytes) return std::optional<Frame>();
  Frame frame{static_cast<FrameKind>(kind), incoming_.substr(taken_ + kHeaderBytes, bytes)};
  taken_ += kHeaderBytes + bytes;
  return std::optional<Frame>(std::move(frame));
}

}  // namespace farhop::launcher
