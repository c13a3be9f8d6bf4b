// Lines over a program's standard input and output, with deadlines and bounds: how `farhop doctor` talks to itself on
// another machine.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "launcher/process.h"

namespace farhop::launcher {

inline constexpr size_t kMaxLineBytes = size_t{4} << 20;

// Of two descriptors that are non-blocking. Not thread-safe.
class LineChannel {
 public:
  LineChannel(FileDescriptor in, FileDescriptor out) : in_(std::move(in)), out_(std::move(out)) {}

  // `line` has no newline in it.
  absl::Status send(const std::string& line, Deadline deadline);
  // Without its newline. Unavailable at the end of the stream, InvalidArgument for a line that is too long.
  absl::StatusOr<std::string> receive(Deadline deadline);

 private:
  FileDescriptor in_, out_;
  std::string received_;
};

}  // namespace farhop::launcher
