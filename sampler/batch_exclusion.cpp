#include "sampler/batch_exclusion.h"

#include <algorithm>
#include <tuple>

namespace farhop::sampler {

void sortExcluded(std::vector<ExcludedEdge>* edges) {
  std::sort(edges->begin(), edges->end(), [](const ExcludedEdge& a, const ExcludedEdge& b) {
    return std::tie(a.row, a.source) < std::tie(b.row, b.source);
  });
  const auto same = [](const ExcludedEdge& a, const ExcludedEdge& b) { return a.row == b.row && a.source == b.source; };
  edges->erase(std::unique(edges->begin(), edges->end(), same), edges->end());
}

void bucketExcluded(std::span<const ExcludedEdge> edges, uint32_t first, std::span<const uint16_t> partitionOfRow,
                    std::vector<std::vector<ExcludedEdge>>* buckets) {
  for (std::vector<ExcludedEdge>& bucket : *buckets) bucket.clear();
  auto next = std::partition_point(edges.begin(), edges.end(), [&](const ExcludedEdge& e) { return e.row < first; });
  std::vector<uint32_t> counts(buckets->size());
  for (size_t i = 0; i < partitionOfRow.size() && next != edges.end(); ++i) {
    const uint16_t partition = partitionOfRow[i];
    for (; next != edges.end() && next->row == first + i; ++next) {
      (*buckets)[partition].push_back({0, counts[partition], next->source});
    }
    ++counts[partition];
  }
}

}  // namespace farhop::sampler
