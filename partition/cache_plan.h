// Chooses the remote nodes whose feature rows a partition keeps copies of.
//
// VIP, vertex inclusion probability: T. Kaler, A.-S. Iliopoulos, P. Murzynowski, T. B. Schardl, C. E. Leiserson,
// J. Chen, "Communication-Efficient Graph Neural Networks with Probabilistic Neighborhood Expansion Analysis and
// Caching", MLSys 2023 (arXiv 2305.03152), section 3. Here over all relations of a heterogeneous graph:
//
//   p_0(v) = 1 - (1 - min(1, batch / seeds))^c   where v is c times among the partition's train seeds
//   p_h(v) = 1 - prod over edges v -> u of (1 - min(1, f_h / indegree(u)) p_{h-1}(u))
//   score  = 1 - prod over h of (1 - p_h(v))
//
// indegree(u) counts the in-edges of u in the edge's relation. For seeds that are edges, c counts both ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/cache_options.h"
#include "partition/dataset.h"
#include "partition/graph_store.h"
#include "partition/manifest.h"

namespace farhop::partition {

// InvalidArgument for options that make no sense; NotFound for features that no node type has, listing those that exist;
// FailedPrecondition where kVip lacks a split "train".
absl::Status checkCacheOptions(const Dataset& dataset, const CacheOptions& options);

struct PartitionCachePlan {
  std::vector<std::vector<uint64_t>> gids;  // [node type] ascending; empty where the type keeps no feature
  // Remote rows of these types in a batch of the partition, and those of them that are kept, as VIP expects. Negative
  // where there is no split "train".
  double expectedRows = -1;
  double expectedHits = -1;
};

// Reads a store's arrays from its files, so that it also works on one that is not finished. Not thread-safe.
class CachePlanner {
 public:
  // Borrows directory and manifest, which lists all files but those of caches. `types`: node types that keep rows.
  CachePlanner(const std::string& directory, const Manifest& manifest, CacheOptions options, std::vector<int> types);

  // The hottest nodes that other partitions own: at most fraction * N / K of a type, none with a score of 0; the same
  // score: lower original id first. Takes 24 bytes per node of all types, and 16 per node of the largest. Reads all
  // edges once per hop.
  absl::StatusOr<PartitionCachePlan> plan(int partition) const;

  // Score by VIP of every node: [node type][gid]. Exactly rounded operations in a fixed order: the same bits anywhere.
  absl::StatusOr<std::vector<std::vector<double>>> inclusion(int partition) const;

 private:
  using Values = std::vector<std::vector<double>>;  // [node type][gid]
  Values zeros() const;
  bool hasTrainSeeds() const;
  absl::Status startFromSeeds(int partition, Values* probability) const;
  absl::Status expand(int64_t fanout, const Values& before, Values* after) const;
  absl::StatusOr<Values> outDegrees() const;
  absl::StatusOr<std::vector<uint64_t>> hottest(int partition, int nodeType, const std::vector<double>& scores) const;

  const std::string& directory_;
  const Manifest& manifest_;
  CacheOptions options_;
  std::vector<int> types_;
  PartitionBook book_;
};

}  // namespace farhop::partition
