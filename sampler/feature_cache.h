// The copies of hot remote rows that a machine's partitions keep, looked up by gid. docs/store-format.md, "Caches".
//
// The copies stay where they are mapped. What is private to a process is one open-addressed table per node type that
// leads from a gid to its copy: 8 bytes per cached row (twice as many slots as rows, 4 bytes each). A slot holds the
// copy's position and, in the bits that positions leave over, a part of the gid's hash, so that a miss seldom reads the
// mapped gids. Rows that the machine owns itself, and second copies, are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "partition/graph_store.h"

namespace farhop::sampler {

// Immutable once made; thread-safe.
class FeatureCache {
 public:
  // Nothing is cached.
  FeatureCache() = default;
  // Borrows the shards, which are the machine's own where they have a value: by partition.
  FeatureCache(const partition::Schema& schema, const partition::PartitionBook& book,
               std::span<const std::optional<partition::GraphShard>> shards);

  // True where every cached row of the type has a copy of this feature of the store's.
  bool has(int nodeType, uint32_t feature) const;
  // Rows that can be found.
  uint64_t rows(int nodeType) const;
  // Of the tables.
  size_t privateBytes() const;

  // Rows of a partition's own (as gids) that are wanted, and where each goes.
  struct Bucket {
    uint64_t firstGid = 0;
    std::vector<uint32_t>* rows = nullptr;
    std::vector<uint32_t>* slots = nullptr;
  };
  // Copies that one partition of this machine keeps, and where each goes.
  struct Hits {
    int partition = 0;
    std::vector<uint32_t> rows;
    std::vector<uint32_t> slots;
  };
  // One for every own partition that keeps copies; to be filled by take().
  std::vector<Hits> noHits(int nodeType) const;
  // Moves what is cached from the bucket to the hits; the rest keeps its order.
  void take(int nodeType, const Bucket& bucket, std::vector<Hits>* hits) const;

  // Where the copies are that a partition keeps of a feature that has() names.
  const partition::FeatureTable& table(int nodeType, uint32_t feature, int partition) const;

 private:
  struct Part {
    int partition = 0;
    uint32_t first = 0;  // position of its first copy
    const partition::NodeCache* cache = nullptr;
  };
  struct Table {
    std::vector<Part> parts;
    std::vector<uint32_t> slots;  // 0: empty; else tag above positionBits, position + 1 below
    std::vector<const partition::FeatureTable*> features;  // [part * features of the type + feature]; null: not cached
    int positionBits = 1;
    uint64_t rows = 0;
    size_t numFeatures = 0;

    size_t partOf(uint32_t position) const;
    uint64_t gidAt(uint32_t position) const;
    uint64_t slotOf(uint64_t hash) const;
    uint32_t tagOf(uint64_t hash) const;
    void insert(uint64_t gid, uint32_t position);
    // Asks for the memory that find() will probably compare.
    void prefetchGid(uint64_t hash) const;
    // The position of a gid's copy, from its slot on; kMissing where there is none.
    uint32_t find(uint64_t gid, uint64_t hash) const;
  };
  static Table makeTable(const partition::Schema& schema, int nodeType, const partition::PartitionBook& book,
                         std::span<const std::optional<partition::GraphShard>> shards);

  std::vector<Table> tables_;  // by node type
};

}  // namespace farhop::sampler
