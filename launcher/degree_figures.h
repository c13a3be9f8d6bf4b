// How many edges the nodes of a store have: histograms, largest degrees, nodes without any.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "partition/graph_store.h"

namespace farhop::launcher {

// The degrees of one node type in one relation, in one direction.
struct DegreeFigures {
  // Degrees are stored in 32 bits: 0, and one bucket per power of two.
  static constexpr size_t kBuckets = 33;

  std::array<uint64_t, kBuckets> buckets{};  // nodes: [0] without edges, [b] with 2^(b-1) to 2^b - 1 of them
  uint64_t nodes = 0;
  uint64_t edges = 0;        // over all nodes
  uint64_t largest = 0;      // 2^32 - 1 stands for that many or more
  uint64_t largestNode = 0;  // original id, the lowest of those with that many; meaningless where largest is 0

  void add(uint64_t node, uint32_t degree);
  // Figures of other nodes of the same type, with higher ids.
  void merge(const DegreeFigures& later);
  // Buckets up to the last that has nodes; at least 1.
  size_t usedBuckets() const;
  double mean() const { return nodes == 0 ? 0 : static_cast<double>(edges) / static_cast<double>(nodes); }
};

struct RelationDegrees {
  int relation = 0;   // index into the schema; never a reverse relation, whose degrees are these exchanged
  DegreeFigures in;   // of the destinations
  DegreeFigures out;  // of the sources
};

struct StoreDegrees {
  std::vector<RelationDegrees> relations;
  std::vector<uint64_t> isolated;  // [node types] nodes without any edge, in either direction, over all relations
};

// One pass over the mapped degrees (docs/store-format.md, in_degree.npy), 8 bytes per node and relation, on `threads`
// threads; 0: one per core.
absl::StatusOr<StoreDegrees> countDegrees(const partition::GraphStore& store, int threads = 0);

// First and last degree of a bucket.
std::pair<uint64_t, uint64_t> degreeRange(size_t bucket);
// "0", "1", "2-3", "4-7", ...
std::string degreeRangeText(size_t bucket);

std::string degreeTables(const partition::Schema& schema, const StoreDegrees& degrees);
nlohmann::ordered_json degreesJson(const partition::Schema& schema, const StoreDegrees& degrees);

// A picture for browsers: a panel per relation and direction, nodes per bucket on a logarithmic scale.
std::string degreesSvg(const partition::Schema& schema, const StoreDegrees& degrees);

}  // namespace farhop::launcher
