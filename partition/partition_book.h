// Who owns which gid: per node type, K contiguous ranges. A few numbers, the same on every process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace farhop::partition {

class PartitionBook {
 public:
  PartitionBook() = default;
  // offsets[type] has K + 1 entries: partition k owns gids [offsets[type][k], offsets[type][k + 1]).
  explicit PartitionBook(std::vector<std::vector<uint64_t>> offsets) : offsets_(std::move(offsets)) {}

  int numPartitions() const { return offsets_.empty() ? 0 : static_cast<int>(offsets_[0].size()) - 1; }
  uint64_t numNodes(int type) const { return offsets_[type].back(); }
  uint64_t begin(int type, int partition) const { return offsets_[type][partition]; }
  uint64_t end(int type, int partition) const { return offsets_[type][partition + 1]; }
  uint64_t count(int type, int partition) const { return end(type, partition) - begin(type, partition); }
  const std::vector<uint64_t>& offsets(int type) const { return offsets_[type]; }

  // A gid of numNodes(type) or more, as only a damaged store has, counts as the last partition's: a valid index,
  // and the row is past that partition's end. Linear for the few partitions that are usual, binary beyond.
  int partitionOf(int type, uint64_t gid) const {
    const std::vector<uint64_t>& offsets = offsets_[type];
    if (offsets.size() <= 9) {
      const size_t last = offsets.size() - 2;
      size_t partition = 0;
      while (partition < last && gid >= offsets[partition + 1]) ++partition;
      return static_cast<int>(partition);
    }
    const auto first = offsets.begin() + 1;
    return static_cast<int>(std::upper_bound(first, offsets.end() - 1, gid) - first);
  }

 private:
  std::vector<std::vector<uint64_t>> offsets_;
};

}  // namespace farhop::partition
