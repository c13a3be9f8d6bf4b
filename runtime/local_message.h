// The messages of the machine's local channel, as bytes.
//
// A frame is a little-endian u32 length of what follows, then: type u8, machine i32, proc i32, code i32, and
// three strings, each with a u32 length in front. Bounded; what does not parse ends the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace farhop::runtime {

inline constexpr uint32_t kLocalProtocolVersion = 2;
inline constexpr size_t kMaxLocalFrameBytes = size_t{1} << 20;

struct LocalMessage {
  enum class Type : uint8_t {
    kHello = 1,    // client: machine, proc, code = version, key = job id, value = token, text = group address
    kWelcome = 2,  // hub: the client belongs to the job; the state so far follows
    kRefused = 3,  // hub: code = status code, text = why
    kAddress = 4,  // proc has the group address `text`
    kReady = 5,    // proc is ready
    kDead = 6,     // hub: proc has ended without a farewell; text = its address
    kLost = 7,     // some process of the machine lost a peer: machine, proc (-1: unknown), key = address,
                   // code = status code, text = message
    kLeave = 8,    // proc says farewell
    kSet = 9,      // key = value: to the hub, or its answer
    kGet = 10,     // client: the hub is to answer with kSet of `key`, once it is set
  };
  Type type = Type::kHello;
  int32_t machine = -1;
  int32_t proc = -1;
  int32_t code = 0;
  std::string key;
  std::string value;
  std::string text;
};

std::string encodeLocalMessage(const LocalMessage& message);

// Takes the first whole frame off the front of `buffer`. nullopt when more bytes are needed; InvalidArgument
// for anything that is no frame. Hostile input costs no more memory than it has bytes.
absl::StatusOr<std::optional<LocalMessage>> takeLocalMessage(std::string& buffer);

// A failure as a kLost message, and back. Long texts are cut.
LocalMessage lossMessage(const absl::Status& failure);
absl::Status failureOf(const LocalMessage& loss);

}  // namespace farhop::runtime
