#include "sampler/batch_exclusion.h"

#include <algorithm>
#include <tuple>

namespace farhop::sampler {

void BatchExclusion::reset() {
  for (std::vector<ExcludedEdge>& edges : edges_) edges.clear();
}

void BatchExclusion::sort() {
  for (std::vector<ExcludedEdge>& edges : edges_) {
    std::sort(edges.begin(), edges.end(), [](const ExcludedEdge& a, const ExcludedEdge& b) {
      return std::tie(a.row, a.source) < std::tie(b.row, b.source);
    });
    const auto same = [](const ExcludedEdge& a, const ExcludedEdge& b) { return a.row == b.row && a.source == b.source; };
    edges.erase(std::unique(edges.begin(), edges.end(), same), edges.end());
  }
}

void BatchExclusion::bucket(int relation, uint32_t first, std::span<const uint16_t> partitionOfRow) {
  std::vector<std::vector<ExcludedEdge>>& buckets = buckets_[relation];
  for (std::vector<ExcludedEdge>& bucket : buckets) bucket.clear();
  const std::vector<ExcludedEdge>& edges = edges_[relation];
  if (edges.empty()) return;
  auto next = std::partition_point(edges.begin(), edges.end(), [&](const ExcludedEdge& e) { return e.row < first; });
  std::fill(counts_.begin(), counts_.end(), 0);
  for (size_t i = 0; i < partitionOfRow.size() && next != edges.end(); ++i) {
    const uint16_t partition = partitionOfRow[i];
    for (; next != edges.end() && next->row == first + i; ++next) {
      buckets[partition].push_back({0, counts_[partition], next->source});
    }
    ++counts_[partition];
  }
}

}  // namespace farhop::sampler
