// A command for each of several hosts, a bounded number of them at once.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "launcher/process.h"

namespace farhop::launcher {

struct HostCommand {
  std::vector<std::string> argv;       // argv[0] is a path
  const std::string* input = nullptr;  // for its standard input; outlives the call
};

struct HostAnswer {
  ProcessEnd end;
  std::string out;     // at most kMaxAnswerBytes
  std::string errors;  // its last lines, joined
};

inline constexpr size_t kMaxAnswerBytes = size_t{64} << 20;
inline constexpr size_t kCommandsAtOnce = 16;

struct HostCommandsOptions {
  std::chrono::milliseconds timeout{24L * 3'600'000};  // of each command
  FileDescriptor* signals = nullptr;                   // as openSignals() makes them; borrowed
};

// Runs all to their ends and returns their answers in order; `onEnd`, where given, is called as each ends. Cancelled when a
// signal comes: what runs is killed. An answer that is too long, or a command that takes too long, fails that command
// alone.
absl::StatusOr<std::vector<absl::StatusOr<HostAnswer>>> runOnHosts(
    const std::vector<HostCommand>& commands, const HostCommandsOptions& options,
    const std::function<void(size_t, const absl::StatusOr<HostAnswer>&)>& onEnd = {});

}  // namespace farhop::launcher
