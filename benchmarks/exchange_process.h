// The processes of a benchmark that needs several: forked children that meet through their parent.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"

namespace farhop::benchmarks {

// A child's end of the channel to the parent. Not thread-safe.
class ProcessChannel {
 public:
  ProcessChannel(FileDescriptor socket, std::chrono::milliseconds roundTimeout)
      : socket_(std::move(socket)), roundTimeout_(roundTimeout) {}

  // Every process calls this equally often. Returns all processes' texts, by rank, when the last one has
  // called. Unavailable when one of them has failed.
  absl::StatusOr<std::vector<std::string>> gather(const std::string& text);

 private:
  friend class ProcessCrew;
  FileDescriptor socket_;
  std::chrono::milliseconds roundTimeout_;
};

// What process `rank` does, and its result.
using ProcessBody = std::function<absl::StatusOr<std::string>(int rank, ProcessChannel& channel)>;

// Forks `count` processes and returns their results by rank. The calling process must have one thread only. A
// child leaves by _exit and runs none of the caller's destructors. The first failure, a child's death, or a
// round that takes longer than `roundTimeout` ends them all; none outlives this call, nor the caller's death.
absl::StatusOr<std::vector<std::string>> runProcesses(int count, std::chrono::milliseconds roundTimeout,
                                                      const ProcessBody& body);

}  // namespace farhop::benchmarks
