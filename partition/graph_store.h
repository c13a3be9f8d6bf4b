// A graph store on disk, opened: its description, and its partitions as mapped arrays.
//
// Format version 1: docs/store-format.md. A directory with graph.json and part-NNNNN/..., one .npy per array.
// Everything here is read-only and thread-safe once opened.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/status.h"
#include "partition/manifest.h"
#include "partition/partition_book.h"
#include "partition/schema.h"

namespace farhop::partition {

// Types with fewer nodes than this have their gids stored as u32.
inline constexpr uint64_t kSmallNodeCount = uint64_t{1} << 32;

// The in-edges of one relation whose destinations one partition owns, as CSR over local destination indices.
// Exactly one of neighbors32 and neighbors64 is non-empty when there are edges.
struct RelationShard {
  std::span<const uint64_t> indptr;       // [rows + 1]
  std::span<const uint32_t> neighbors32;  // [edges] source gids, where the source type has < 2^32 nodes
  std::span<const uint64_t> neighbors64;
  std::span<const uint64_t> edgeIds;  // [edges] original edge ids (row in the user's edge file)

  uint64_t rows() const { return indptr.empty() ? 0 : indptr.size() - 1; }
  uint64_t edges() const { return indptr.empty() ? 0 : indptr.back(); }
};

// Rows of one feature, mapped.
struct FeatureTable {
  FeatureSpec spec;
  uint64_t rows = 0;
  const std::byte* data = nullptr;

  const std::byte* row(uint64_t index) const { return data + index * spec.rowBytes(); }
};

// One partition, mapped. Movable.
class GraphShard {
 public:
  int index() const { return index_; }
  const RelationShard& relation(int relation) const { return relations_[relation]; }
  // Original ids of the nodes that this partition owns, by local index.
  std::span<const uint64_t> originalIds(int nodeType) const { return originalIds_[nodeType]; }
  // Null when the type has no such feature.
  const FeatureTable* nodeFeature(int nodeType, const std::string& name) const;
  // By position in the relation's CSR. Reverse relations have none: look up the forward edge.
  const FeatureTable* edgeFeature(int relation, const std::string& name) const;
  // Gids of this partition's seeds of a split, ascending by original id (a seed listed twice stays twice);
  // empty when there is none. "val" and "valid" mean "validation".
  std::span<const uint64_t> split(const std::string& name, int nodeType) const;

 private:
  friend class GraphStore;
  int index_ = 0;
  std::vector<NpyArray> files_;
  std::vector<RelationShard> relations_;
  std::vector<std::span<const uint64_t>> originalIds_;
  std::vector<std::map<std::string, FeatureTable>> nodeFeatures_;
  std::vector<std::map<std::string, FeatureTable>> edgeFeatures_;
  std::map<std::pair<std::string, int>, std::span<const uint64_t>> splits_;
};

class GraphStore {
 public:
  // Reads and checks graph.json: version, schema, ranges. Errors name the file.
  static absl::StatusOr<std::shared_ptr<const GraphStore>> open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  // Counts per partition, number of classes, and all else that graph.json says.
  const Manifest& manifest() const { return manifest_; }
  const Schema& schema() const { return manifest_.schema; }
  const PartitionBook& book() const { return book_; }
  int numPartitions() const { return book_.numPartitions(); }
  const std::vector<SplitInfo>& splits() const { return manifest_.splits; }
  // Which of `machines` owns partition k: contiguous shares, first machines take the remainder. Every machine
  // computes the same. InvalidArgument when K < machines.
  absl::StatusOr<std::vector<int>> assign(int machines) const;
  // Identifies the content: the checksum of graph.json. Peers compare it before they exchange gids.
  uint64_t fingerprint() const { return fingerprint_; }

  // Maps one partition; checks file presence, sizes, dtypes and shapes (not checksums: `inspect --verify`).
  absl::StatusOr<GraphShard> openPartition(int partition) const;

  // global/TYPE/gid.npy: original id -> gid. Mapped on first use and kept.
  absl::StatusOr<std::span<const uint64_t>> gidsByOriginalId(int nodeType) const;

  // global/TYPE/split/NAME.npy: original ids of a split's seeds over all partitions, ascending. Mapped on first
  // use and kept.
  absl::StatusOr<std::span<const uint64_t>> splitOriginalIds(const std::string& name, int nodeType) const;

  // Checks every checksum and every invariant of the format; OK or the first problems found, each naming its
  // file. `report` gets a line per check where given.
  absl::Status verify(std::vector<std::string>* report = nullptr) const;

 private:
  GraphStore() = default;
  absl::StatusOr<RelationShard> openRelation(int partition, int relation, std::vector<NpyArray>* files) const;

  std::string directory_;
  Manifest manifest_;
  PartitionBook book_;
  uint64_t fingerprint_ = 0;
  mutable std::mutex mutex_;
  absl::StatusOr<std::span<const uint64_t>> openGlobal(const std::string& path, uint64_t elements) const;

  mutable std::map<std::string, NpyArray> globals_;  // by path; guarded by mutex_
};

}  // namespace farhop::partition
