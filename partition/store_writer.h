// Writes a partitioned data set as a graph store (docs/store-format.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "partition/cache_options.h"
#include "partition/dataset.h"
#include "partition/node_order.h"
#include "partition/partitioner.h"
#include "partition/progress_meter.h"

namespace farhop::partition {

struct StoreWriterOptions {
  std::string directory;
  bool force = false;       // replace a finished store of that name
  bool addReverse = false;  // a relation rev_NAME for every relation NAME
  // Recorded in graph.json: how the assignment came about.
  std::string method;
  uint64_t seed = 0;
  CacheOptions cache;  // copies of hot remote rows that each partition keeps
  // How the nodes inside a partition follow each other.
  NodeOrder order = NodeOrder::kOriginalId;
  // Of edges of a relation between the same two nodes only the first is kept; relations with edge times keep all.
  bool mergeParallel = false;

  // What follows does not change what is written.
  uint64_t memoryBytes = 0;  // anonymous memory to stay below, beside what the data set takes; 0: half of what is free
  int threads = 0;           // 0: one per core
  // Goes on where a run for the same data set and options was killed.
  bool resume = false;
  // Edges or rows that are sorted at a time, 0: as many as memory allows. Small ones let tests come to many.
  uint64_t maxBucketItems = 0;
  // Called with one line before each long step; may be empty.
  std::function<void(const std::string&)> progress = {};
  ProgressMeter* meter = nullptr;  // what a step has done so far; may be null
};

// All or nothing: the store is written beside `directory`, synced, and renamed; after an error nothing is left, and
// what a killed run leaves is taken over or removed by the next one for the same name. FailedPrecondition when another
// run is writing a store of that name; ResourceExhausted when memoryBytes are too few, saying how many are needed, or
// the disk is full. The same data set, assignment and options give the same bytes.
//
// Memory: 12 bytes per node, 24 per node of the largest relation's types, and buckets: the rest of memoryBytes. Edges
// and feature rows wait in temporary space on the store's disk, 12 to 28 bytes per edge of the largest relation. For
// caches what CachePlanner::plan() says comes on top.
absl::Status writeStore(const Dataset& dataset, const PartitionAssignment& assignment,
                        const StoreWriterOptions& options);

// assignPartitions() and writeStore(), as one run that can be gone on with. `seconds`, where given, gets the time that
// the assignment took, 0 when an earlier run had made it.
absl::Status partitionStore(const Dataset& dataset, const PartitionOptions& how, const StoreWriterOptions& options,
                            double* assignSeconds = nullptr);

}  // namespace farhop::partition
