// `farhop-bench limits`: what this machine's memory can do.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "benchmarks/machine.h"
#include "benchmarks/pinned_worker.h"
#include "benchmarks/report.h"
#include "benchmarks/rmat_graph.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Measures random reads of arrays as large as a graph, a bit per repetition, so that a limit is taken under
// the same conditions as what is compared with it. Lives on one worker's core.
class ReadLimit {
 public:
  // Allocates twice `bytes` and finds the window that is fastest here.
  static absl::StatusOr<std::unique_ptr<ReadLimit>> create(PinnedWorker* worker, uint64_t bytes,
                                                           uint64_t reads);

  // One repetition.
  void measure();
  // Reads per second over memory in pages of 4 KiB, and in huge pages where the kernel gives them.
  const Series& smallPages() const { return small_; }
  const Series& hugePages() const { return huge_; }
  // The better of the two medians: what samplers are compared with.
  double best() const;
  uint64_t checksum() const { return checksum_; }
  void addRows(Report* report) const;

 private:
  ReadLimit(PinnedWorker* worker, uint64_t bytes, uint64_t reads);

  PinnedWorker* worker_;
  uint64_t reads_;
  std::unique_ptr<TouchedMemory> smallMemory_, hugeMemory_;
  size_t smallWindow_ = 0, hugeWindow_ = 0;
  Series small_, huge_;
  uint64_t checksum_ = 0;
};

// Adds the subcommand; what it returns is stored in `status`.
void addLimitsBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
