// One process of `farhop-bench exchange`: a machine of the graph with its agent, service and streams.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/exchange_process.h"
#include "benchmarks/rmat_graph.h"

namespace farhop::benchmarks {

struct ExchangeOptions {
  RmatOptions graph;
  int machines = 2;
  std::vector<int64_t> fanouts = {15, 10, 5};
  uint64_t batchSize = 1024;
  uint64_t batches = 40;  // per process
  int repetitions = 5;
  std::vector<int> underWay = {1, 2, 4, 8};  // one case each
  uint64_t seed = 1;
  bool small = false;
  uint64_t limitReads = 5'000'000;
};

// What one process did in one timed epoch. Sums, over the epoch.
struct ExchangePass {
  int64_t startNs = 0, endNs = 0;  // by the machine's one steady clock
  uint64_t batches = 0;
  uint64_t edges = 0;
  uint64_t remoteEdges = 0;
  uint64_t payloadBytes = 0;  // of requests sent and replies received
  uint64_t bytesSent = 0;     // by the agent, headers too
  uint64_t messagesSent = 0;  // by the transport: each has one or more requests or replies
  uint64_t requestsSent = 0;
  int64_t processorNs = 0;                   // of all threads, until the last process was done
  uint64_t faults = 0;                       // page faults of the process
  std::vector<int64_t> stagesNs;             // [Stage]
  std::map<std::string, int64_t> threadsNs;  // processor time by thread name

  double seconds() const { return static_cast<double>(endNs - startNs) * 1e-9; }
};

struct MachineResult {
  std::vector<std::vector<ExchangePass>> passes;  // [case as in underWay][repetition]
  uint64_t checksum = 0;                          // of its batches, the same through the exchange and locally
  // Of process 0, per repetition.
  std::vector<double> localEdgesPerSecond, localEdgesPerProcessorSecond;
  std::vector<double> smallPageReads, hugePageReads;
  uint64_t limitChecksum = 0;
};

std::string encodeMachineResult(const MachineResult& result);
absl::StatusOr<MachineResult> decodeMachineResult(const std::string& text);

// Runs the whole benchmark as machine `rank`, bound to `cpu`. Process 0 makes the graph where it is missing,
// and measures the limit and local sampling while the others wait.
absl::StatusOr<MachineResult> runExchangeMachine(const ExchangeOptions& options, int rank, int cpu,
                                                 ProcessChannel& channel);

}  // namespace farhop::benchmarks
