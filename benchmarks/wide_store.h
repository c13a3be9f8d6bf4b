// The store of `farhop-bench memory`: few nodes with a very wide feature, made once and reused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "partition/graph_store.h"

namespace farhop::benchmarks {

struct WideStoreOptions {
  uint64_t nodes = 20'000;
  uint64_t floats = 50'000;  // of the feature "x", float32
  uint64_t degree = 128;     // in-edges of every node, from random ones
  int parts = 2;
  std::string cacheDirectory = "build/bench-cache";

  uint64_t featureBytes() const { return nodes * floats * sizeof(float); }
};

// The directory of the store, which is made when the cache has none with these parameters. All nodes are the split
// "train". A row of "x" begins with its node's original id; the other numbers are 0, and take disk space all the same.
absl::StatusOr<std::string> wideStore(const WideStoreOptions& options);

}  // namespace farhop::benchmarks
