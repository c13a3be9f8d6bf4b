// graph.json: what a store holds. docs/store-format.md, "graph.json".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/cache_options.h"
#include "partition/schema.h"

namespace farhop::partition {

inline constexpr int kStoreFormatVersion = 2;
// Manifest::order where the nodes of a partition ascend with their original ids.
inline constexpr char kOrderById[] = "id";
inline constexpr char kStoreFormatName[] = "farhop-graph-store";
// What parseManifest() reads at most. 2^16 partitions of a hundred arrays stay below it.
inline constexpr size_t kMaxManifestBytes = size_t{1} << 30;

struct SplitInfo {
  std::string name;
  int nodeType = 0;
  uint64_t count = 0;  // over all partitions
  std::vector<uint64_t> partitionCounts;
};

// A split whose seeds are edges of one relation, or pairs that could be some.
struct EdgeSplitInfo {
  std::string name;
  int relation = 0;    // not a reverse one
  uint64_t count = 0;  // over all partitions
  std::vector<uint64_t> partitionCounts;  // a seed belongs to the partition that owns its destination
  std::optional<FeatureSpec> labels;      // of its labels, where the data set has some
};

// Copies of other partitions' feature rows that every partition keeps. What was asked for, and what was chosen.
struct CacheInfo {
  CachePolicy policy = CachePolicy::kVip;
  double fraction = 0;
  std::vector<int64_t> fanouts;
  uint64_t batch = 0;
  struct Type {
    int nodeType = 0;
    std::vector<std::string> features;  // names, in the order of the node type's
    std::vector<uint64_t> counts;       // [K] rows
  };
  std::vector<Type> types;
  // [K] by VIP: remote rows of these types in a batch of the partition's seeds, and those of them that it keeps. Empty
  // where the data set has no split "train".
  std::vector<double> expectedRows;
  std::vector<double> expectedHits;

  // Null where nothing of the node type is kept.
  const Type* find(int nodeType) const;
};

struct StoredFile {
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3-64 of the whole file
};

struct Manifest {
  std::string dataset;
  std::string task;
  int64_t numClasses = 0;
  std::string method;  // how the nodes were assigned: "metis", "random", ...
  uint64_t seed = 0;
  std::string order = kOrderById;  // how the nodes of a partition follow each other: "id" or "degree"
  Schema schema;
  std::vector<std::vector<uint64_t>> offsets;         // [node type][K + 1], as PartitionBook
  std::vector<std::vector<uint64_t>> partitionEdges;  // [relation][K]: edges whose destination k owns
  std::vector<std::vector<uint64_t>> remoteEdges;  // [relation][K]: those of them whose source k does not own
  std::vector<uint64_t> haloNodes;                 // [K]: distinct sources of those, over all relations
  std::vector<SplitInfo> splits;
  std::vector<EdgeSplitInfo> edgeSplits;
  std::optional<CacheInfo> cache;
  std::map<std::string, StoredFile> files;  // by path relative to the store

  int numPartitions() const { return static_cast<int>(haloNodes.size()); }
};

// The text of graph.json, with its own checksum in it.
std::string formatManifest(const Manifest& manifest);

// Parses and checks: format and version, the file's own checksum, types, ranges and sums. Hostile input is an
// error, never a crash (fuzzed). Messages do not name the file: the caller does.
absl::StatusOr<Manifest> parseManifest(absl::string_view text);

// Puts the right checksum into a manifest's text; NotFound when it has no place for one.
absl::StatusOr<std::string> sealManifest(std::string text);

// Counts, ranges and references of a manifest agree with each other, and `files` lists exactly the files that
// the schema calls for. Part of parseManifest().
absl::Status checkManifest(const Manifest& manifest);

}  // namespace farhop::partition
