// Frames of agent_protocol.h over two descriptors, neither of which ever blocks.
#pragma once

#include <optional>
#include <string>

#include "base/socket.h"
#include "base/status.h"
#include "launcher/agent_protocol.h"

namespace farhop::launcher {

// Not thread-safe. Bounds: what is received and not taken yet is at most one frame of kMaxFrameBytes and one read;
// what is sent is bounded by those who send (output by its window, the rest by the number of trainers).
class FrameStream {
 public:
  enum class Opening { kNone, kExpectMagic };
  // Both non-blocking; they may be the same socket, duplicated.
  FrameStream(FileDescriptor in, FileDescriptor out, Opening opening);

  int inFd() const { return in_.get(); }
  int outFd() const { return out_.get(); }

  void sendMagic();
  void send(FrameKind kind, absl::string_view payload = "");
  bool pending() const { return pendingBytes() > 0; }
  size_t pendingBytes() const { return outgoing_.size() - sent_; }
  // Writes what fits now. Unavailable when the other side is gone.
  absl::Status writeSome();

  // The other side is gone for good: nothing is read any more, and what is sent is nothing.
  void abandon();
  bool abandoned() const { return abandoned_; }

  // Reads once. Unavailable at the end of the stream.
  absl::Status readSome();
  // The next frame that is there as a whole. InvalidArgument for bytes that are no frame, or no magic where one must
  // come first.
  absl::StatusOr<std::optional<Frame>> next();
  // What came in place of the magic, as far as it goes.
  std::string banner() const { return opening_ == Opening::kExpectMagic ? incoming_ : std::string(); }

 private:
  bool passMagic();

  FileDescriptor in_, out_;
  bool abandoned_ = false;
  Opening opening_;
  std::string incoming_;
  size_t taken_ = 0;
  std::string outgoing_;
  size_t sent_ = 0;
};

}  // namespace farhop::launcher
