// The figures of a store that `farhop partition` and `farhop inspect` print.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "partition/graph_store.h"

namespace farhop::launcher {

struct PartitionFigures {
  uint64_t nodes = 0;
  uint64_t edges = 0;        // in-edges of its nodes, reverse relations included
  uint64_t remoteEdges = 0;  // those whose source another partition owns
  uint64_t haloNodes = 0;    // distinct sources of those
  uint64_t trainSeeds = 0;    // nodes, and edges by their destination
  uint64_t featureBytes = 0;  // node and edge features
};

struct StoreSummary {
  std::vector<PartitionFigures> partitions;
  uint64_t forwardEdges = 0;  // without reverse relations
  uint64_t cutEdges = 0;      // of those, between partitions

  PartitionFigures total() const;
};

StoreSummary summarizeStore(const partition::GraphStore& store);

// Largest over mean of one figure; 1 where the mean is 0.
double imbalance(const StoreSummary& summary, uint64_t PartitionFigures::*figure);

// What a relation's times are made of: "t", "nt of user", or the later of both; "-" where it has none.
std::string timesText(const partition::Schema& schema, int relation);

std::string summaryTable(const StoreSummary& summary);
nlohmann::ordered_json summaryJson(const StoreSummary& summary);

// What the partitions keep of each other's rows; the store has caches.
std::string cacheText(const partition::GraphStore& store);
nlohmann::ordered_json cacheJson(const partition::GraphStore& store);

}  // namespace farhop::launcher
