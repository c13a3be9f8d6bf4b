// Writes a partitioned data set as a graph store (docs/store-format.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "partition/cache_options.h"
#include "partition/dataset.h"
#include "partition/partitioner.h"

namespace farhop::partition {

struct StoreWriterOptions {
  std::string directory;
  bool force = false;       // replace a finished store of that name
  bool addReverse = false;  // a relation rev_NAME for every relation NAME
  // Recorded in graph.json: how the assignment came about.
  std::string method;
  uint64_t seed = 0;
  CacheOptions cache;  // copies of hot remote rows that each partition keeps
  // Called with one line before each long step; may be empty.
  std::function<void(const std::string&)> progress;
};

// All or nothing: the store is written beside `directory`, synced, and renamed. Needs about 16 bytes per edge
// of the largest relation, 16 per node and 8 per seed edge in memory, and for relations with
// times 32 per edge of the largest row; then for caches what CachePlanner::plan() says. The same arguments give the same bytes.
absl::Status writeStore(const Dataset& dataset, const PartitionAssignment& assignment,
                        const StoreWriterOptions& options);

}  // namespace farhop::partition
