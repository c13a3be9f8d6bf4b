// One process of `farhop-bench loader`: a machine of the graph that samples batches and pulls their features, and draws
// and gathers for the other machines meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/exchange_process.h"
#include "benchmarks/rmat_graph.h"

namespace farhop::benchmarks {

struct LoaderOptions {
  RmatOptions graph;
  int machines = 2;
  std::vector<int64_t> fanouts = {15, 10, 5};
  uint64_t batchSize = 1024;
  uint64_t batches = 40;  // per process
  int repetitions = 5;
  int underWay = 4;       // batches ahead of the consumer
  std::vector<std::string> transports = {"tensorpipe", "tcp"};  // or others that FARHOP_FABRIC may name
  uint64_t seed = 1;
  bool small = false;
};

// What an epoch does with its batches.
enum class LoaderWork { kSample, kPull, kBoth };
inline constexpr LoaderWork kLoaderWorks[] = {LoaderWork::kSample, LoaderWork::kPull, LoaderWork::kBoth};

// What one process did in one timed epoch. Sums, over the epoch.
struct LoaderPass {
  int64_t startNs = 0, endNs = 0;
  uint64_t batches = 0;
  uint64_t nodes = 0;
  uint64_t remoteRows = 0;
  uint64_t prefetched = 0;  // batches whose features were under way or there when they were handed out
  int64_t processorNs = 0;  // of all threads, until the last process was done
  int64_t systemNs = 0;     // of these, in the kernel
  uint64_t faults = 0;
  std::map<std::string, int64_t> threadsNs;
};

// One way for rows to come: "local" (all partitions are the process's own), then the transports.
struct LoaderCase {
  std::string name;
  std::vector<std::vector<LoaderPass>> passes;  // [as kLoaderWorks][repetition]
  uint64_t checksum = 0;                        // of the rows of all its batches
};

std::string encodeLoaderCases(const std::vector<LoaderCase>& cases);
absl::StatusOr<std::vector<LoaderCase>> decodeLoaderCases(const std::string& text);

// Runs the whole benchmark as machine `rank`, bound to `cpu`. Process 0 makes the graph where it is missing.
absl::StatusOr<std::vector<LoaderCase>> runLoaderMachine(const LoaderOptions& options, int rank, int cpu,
                                                         ProcessChannel& channel);

}  // namespace farhop::benchmarks
