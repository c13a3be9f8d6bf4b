// A graph store on disk, opened: its description, and its partitions as mapped arrays.
//
// docs/store-format.md. A directory with graph.json and part-NNNNN/..., one .npy per array.
// Everything here is read-only and thread-safe once opened.
#pragma once

#include <cstdint>
#include <functional>
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
  // [edges] from when on each edge is visible: the later of its own time and its source node's. Rows ascend by it.
  // Empty unless Schema::hasTimes().
  std::span<const int64_t> times;
  // [edges] declared weights: finite, not negative. Empty unless Schema::hasWeights().
  std::span<const float> weights;

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

// Ids by index, as wide as the file has them.
struct IdArray {
  std::span<const uint32_t> narrow;  // where the type has < 2^32 nodes, else empty
  std::span<const uint64_t> wide;

  uint64_t size() const { return narrow.size() + wide.size(); }
  uint64_t operator[](uint64_t index) const { return narrow.empty() ? wide[index] : narrow[index]; }
};

// Seeds that are edges, or pairs of nodes that could be some.
struct EdgeSeeds {
  std::span<const uint64_t> ends;  // [2 * seeds]: source and destination of seed i at 2 i and 2 i + 1
  FeatureTable labels;             // by seed; no data where the data set gives none

  uint64_t size() const { return ends.size() / 2; }
  uint64_t source(uint64_t seed) const { return ends[2 * seed]; }
  uint64_t destination(uint64_t seed) const { return ends[2 * seed + 1]; }
};

// Copies of rows of other partitions' nodes of one type.
struct NodeCache {
  IdArray gids;                                  // ascending, none of them the partition's own; checked when opened
  std::map<std::string, FeatureTable> features;  // row i belongs to gids[i]
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
  // Null where the store keeps none of the type.
  const NodeCache* cache(int nodeType) const;
  // By position in the relation's CSR. Reverse relations have none: look up the forward edge.
  const FeatureTable* edgeFeature(int relation, const std::string& name) const;
  // Gids of this partition's seeds of a split, ascending by original id (a seed listed twice stays twice);
  // empty when there is none. "val" and "valid" mean "validation".
  std::span<const uint64_t> split(const std::string& name, int nodeType) const;
  // Seed edges of a split whose destinations this partition owns, as gids, in the order of the data set; empty when
  // there are none. "val" and "valid" mean "validation".
  EdgeSeeds edgeSplit(const std::string& name, int relation) const;

 private:
  friend class GraphStore;
  int index_ = 0;
  std::vector<NpyArray> files_;
  std::vector<RelationShard> relations_;
  std::vector<std::span<const uint64_t>> originalIds_;
  std::vector<std::map<std::string, FeatureTable>> nodeFeatures_;
  std::vector<std::map<std::string, FeatureTable>> edgeFeatures_;
  std::map<int, NodeCache> caches_;  // by node type
  std::map<std::pair<std::string, int>, std::span<const uint64_t>> splits_;
  std::map<std::pair<std::string, int>, EdgeSeeds> edgeSplits_;
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
  const std::vector<EdgeSplitInfo>& edgeSplits() const { return manifest_.edgeSplits; }
  // Which of `machines` owns partition k: contiguous shares, first machines take the remainder. Every machine
  // computes the same. InvalidArgument when K < machines.
  absl::StatusOr<std::vector<int>> assign(int machines) const;
  // Identifies the content: the checksum of graph.json. Peers compare it before they exchange gids.
  uint64_t fingerprint() const { return fingerprint_; }

  // Maps one partition; checks presence, sizes, dtypes and shapes of its files, and reads `indptr`, the splits and the
  // gids of its cache once: rows lie inside the edges, seeds inside the partition, cached nodes outside. Other values are not read: a damaged neighbour or
  // id can be out of range unless verifyChecksums() or verify() has passed.
  absl::StatusOr<GraphShard> openPartition(int partition) const;

  // Checks the XXH3 of the files that these partitions and global/ consist of; DataLoss or NotFound names the first
  // that is not as written. The processes of a machine share the reading: share `share` of `shares` is a fixed part
  // of the files, about equal in bytes, the same on each process; all shares together are all files. Without
  // `features`, feature files are left out (values that no index depends on). `progress`, where given, is called
  // with the bytes read so far and the bytes of this share, after each piece of at most a megabyte; its error ends the
  // reading and is returned as it is. Needs a megabyte; what it reads stays in the page cache.
  // InvalidArgument when a partition or a share does not exist.
  absl::Status verifyChecksums(const std::vector<int>& partitions, int share, int shares, bool features,
                               const std::function<absl::Status(uint64_t done, uint64_t total)>& progress) const;

  // global/TYPE/gid.npy: original id -> gid. Mapped on first use and kept. Values are not checked: a damaged one can
  // be out of range unless verifyChecksums() or verify() has passed.
  absl::StatusOr<std::span<const uint64_t>> gidsByOriginalId(int nodeType) const;

  // global/TYPE/split/NAME.npy: original ids of a split's seeds over all partitions, below the node count and
  // ascending (checked). "val" and "valid" mean "validation". Mapped on first use and kept.
  absl::StatusOr<std::span<const uint64_t>> splitOriginalIds(const std::string& name, int nodeType) const;

  // global/TYPE/orig_ids.npy: gid -> original id, the inverse of gidsByOriginalId(). Mapped on first use and kept;
  // values are not checked.
  absl::StatusOr<IdArray> originalIdsByGid(int nodeType) const;

  // Number of in-edges by original id of the destination, and of out-edges by original id of the source; 2^32 - 1
  // stands for that many or more. Also of reverse relations, where the one is the forward relation's other. Mapped on
  // first use and kept; values are not checked.
  absl::StatusOr<std::span<const uint32_t>> inDegrees(int relation) const;
  absl::StatusOr<std::span<const uint32_t>> outDegrees(int relation) const;

  // Seed edges of a split over all partitions as original ids, in the order of the data set; in range (checked).
  // "val" and "valid" mean "validation". NotFound lists the edge splits that exist. Mapped on first use and kept.
  absl::StatusOr<EdgeSeeds> edgeSplitOriginalIds(const std::string& name, int relation) const;

  // Checks every checksum and every invariant of the format; OK or the first problems found, each naming its
  // file. `report` gets a line per check where given.
  absl::Status verify(std::vector<std::string>* report = nullptr) const;

 private:
  GraphStore() = default;
  absl::StatusOr<RelationShard> openRelation(int partition, int relation, std::vector<NpyArray>* files) const;
  absl::StatusOr<NodeCache> openCache(int partition, const CacheInfo::Type& type, std::vector<NpyArray>* files) const;
  absl::Status checkSplit(const SplitInfo& split, int partition, std::span<const uint64_t> seeds) const;
  absl::Status checkEdgeSplit(const EdgeSplitInfo& split, int partition, std::span<const uint64_t> ends) const;
  // `check`, where given, reads the array when it is mapped. The array is kept.
  using ArrayCheck = std::function<absl::Status(const NpyArray&)>;
  absl::StatusOr<const NpyArray*> openGlobal(const std::string& path, DType dtype,
                                             const std::vector<uint64_t>& shape, const ArrayCheck& check) const;
  absl::StatusOr<std::span<const uint32_t>> openDegrees(int forward, bool in) const;

  std::string directory_;
  Manifest manifest_;
  PartitionBook book_;
  uint64_t fingerprint_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::string, NpyArray> globals_;  // by path; guarded by mutex_
};

// The machine that serves a partition: contiguous shares, first machines take the remainder. 1 <= machines <= partitions.
int machineOfPartition(int partition, int partitions, int machines);

}  // namespace farhop::partition
