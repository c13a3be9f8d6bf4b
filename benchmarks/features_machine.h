// One process of `farhop-bench features`: process 0 pulls, process 1 serves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmarks/exchange_process.h"

namespace farhop::benchmarks {

struct FeaturesOptions {
  std::vector<uint64_t> floats = {100, 128, 1024, 50'000};  // of a row; one store each
  uint64_t tableBytes = uint64_t{128} << 20;                // of each process
  uint64_t batchRows = 100'000;
  uint64_t batchBytes = uint64_t{64} << 20;                 // fewer rows where these would be more
  int repetitions = 7;
  uint64_t seed = 1;
  bool small = false;
  std::string provider;   // of the bulk transport, as FARHOP_FABRIC names it
  std::string directory;  // for the stores
};

// Bytes per second, per repetition.
struct WidthResult {
  uint64_t floats = 0, rows = 0;
  uint64_t checksum = 0;  // of the pulled bytes, the same however they came
  std::vector<double> own, ownLimit;
  std::vector<double> fabric, agent, remoteLimit;  // all rows remote
  std::vector<double> fabricReads;                 // the same, read by the puller; empty for narrow rows
  std::vector<double> fabricMixed, agentMixed;     // every second row
  std::vector<double> fabricMixedLimit;            // the slower half of them alone
};

std::string encodeWidthResults(const std::vector<WidthResult>& results);
absl::StatusOr<std::vector<WidthResult>> decodeWidthResults(const std::string& text);

// Runs the whole benchmark as process `rank`, bound to `cpu`. Process 1 has no results.
absl::StatusOr<std::vector<WidthResult>> runFeaturesMachine(const FeaturesOptions& options, int rank, int cpu,
                                                            ProcessChannel& channel);

}  // namespace farhop::benchmarks
