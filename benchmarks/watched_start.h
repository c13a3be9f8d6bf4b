// One start of a job by `farhop run`, watched from outside: when it was ready, and what the kernel says of its trainers'
// memory, descriptors and connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace farhop::benchmarks {

struct WatchedStartOptions {
  std::string farhop;   // the programs
  std::string trainer;
  std::string graph;    // may be empty
  std::string start;    // --start
  int machines = 2;
  int procs = 8;
  std::chrono::milliseconds interval{50};    // between two looks at the memory
  std::chrono::milliseconds settled{5'000};  // after all are ready
  std::chrono::milliseconds longest{120'000};  // until all are ready
};

// Memory is the sum over the trainers of what is theirs in proportion, without pages of files.
struct WatchedStart {
  double readySeconds = 0;     // from the launch until the last trainer had opened its graph
  uint64_t peakBytes = 0;      // highest until then
  uint64_t settledBytes = 0;   // the median of some looks from `settled` after that on
  int looks = 0;               // until ready
  int descriptors = 0;         // of the trainer that has most
  int connections = 0;         // TCP, likewise, both ends of one on this machine being two trainers'
};

// Nothing of the job is left afterwards, also after an error.
absl::StatusOr<WatchedStart> watchStart(const WatchedStartOptions& options);

}  // namespace farhop::benchmarks
