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

void ExcludedBuckets::reset(size_t partitions) {
  edges.resize(partitions);
  for (std::vector<ExcludedEdge>& bucket : edges) bucket.clear();
  rows.assign(partitions, 0);
}

void bucketExcluded(std::span<const ExcludedEdge> edges, uint32_t first, std::span<const uint16_t> partitionOfRow,
                    ExcludedBuckets* buckets) {
  auto next = std::partition_point(edges.begin(), edges.end(), [&](const ExcludedEdge& e) { return e.row < first; });
  for (size_t i = 0; i < partitionOfRow.size() && next != edges.end(); ++i) {
    const uint16_t partition = partitionOfRow[i];
    for (; next != edges.end() && next->row == first + i; ++next) {
      buckets->edges[partition].push_back({0, buckets->rows[partition], next->source});
    }
    ++buckets->rows[partition];
  }
}

}  // namespace farhop::sampler
