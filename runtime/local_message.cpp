#include "runtime/local_message.h"

#include <cstring>

namespace farhop::runtime {
namespace {

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void appendString(std::string& out, const std::string& text) {
  append(out, static_cast<uint32_t>(text.size()));
  out.append(text);
}

// Reads from a frame's body; once it runs past the end it stays failed.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    T value{};
    if (bytes_.size() < sizeof(T)) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }

  std::string string() {
    const uint32_t size = number<uint32_t>();
    if (!ok_ || bytes_.size() < size) {
      ok_ = false;
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }

  bool done() const { return ok_ && bytes_.empty(); }

 private:
  absl::string_view bytes_;
  bool ok_ = true;
};

constexpr size_t kMinBodyBytes = 1 + 3 * sizeof(int32_t) + 3 * sizeof(uint32_t);

}  // namespace

std::string encodeLocalMessage(const LocalMessage& message) {
  std::string frame(sizeof(uint32_t), '\0');
  append(frame, static_cast<uint8_t>(message.type));
  append(frame, message.machine);
  append(frame, message.proc);
  append(frame, message.code);
  appendString(frame, message.key);
  appendString(frame, message.value);
  appendString(frame, message.text);
  const uint32_t body = static_cast<uint32_t>(frame.size() - sizeof(uint32_t));
  std::memcpy(frame.data(), &body, sizeof(body));
  return frame;
}

absl::StatusOr<std::optional<LocalMessage>> takeLocalMessage(std::string& buffer) {
  uint32_t body = 0;
  if (buffer.size() < sizeof(body)) return std::nullopt;
  std::memcpy(&body, buffer.data(), sizeof(body));
  if (body < kMinBodyBytes || body > kMaxLocalFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of ", body, " bytes is none of the local channel's"));
  }
  if (buffer.size() < sizeof(body) + body) return std::nullopt;

  Reader reader(absl::string_view(buffer).substr(sizeof(body), body));
  LocalMessage message;
  const uint8_t type = reader.number<uint8_t>();
  message.type = static_cast<LocalMessage::Type>(type);
  message.machine = reader.number<int32_t>();
  message.proc = reader.number<int32_t>();
  message.code = reader.number<int32_t>();
  message.key = reader.string();
  message.value = reader.string();
  message.text = reader.string();
  if (!reader.done() || type < static_cast<uint8_t>(LocalMessage::Type::kHello) ||
      type > static_cast<uint8_t>(LocalMessage::Type::kGet)) {
    return absl::InvalidArgumentError("a malformed frame on the local channel");
  }
  buffer.erase(0, sizeof(body) + body);
  return message;
}

LocalMessage lossMessage(const absl::Status& failure) {
  LocalMessage message;
  message.type = LocalMessage::Type::kLost;
  message.code = static_cast<int32_t>(failure.code());
  message.text = std::string(failure.message().substr(0, 4'096));
  if (const std::optional<PeerName> peer = peerOf(failure)) {
    message.machine = peer->machine;
    message.proc = peer->proc;
    message.key = peer->address;
  }
  return message;
}

absl::Status failureOf(const LocalMessage& loss) {
  absl::Status failure(static_cast<absl::StatusCode>(loss.code), loss.text);
  if (failure.ok()) failure = absl::UnavailableError(loss.text);
  if (loss.machine >= 0) failure = withPeer(failure, {loss.machine, loss.proc, loss.key});
  return failure;
}

}  // namespace farhop::runtime
