#include "partition/store_relation.h"

#include <algorithm>
#include <utility>

namespace farhop::partition {
namespace {

// counts[i + 1] holds the number of i's; makes counts[i] the first position of i.
void toOffsets(std::vector<uint64_t>* counts) {
  for (size_t i = 1; i < counts->size(); ++i) (*counts)[i] += (*counts)[i - 1];
}

}  // namespace

RelationCsr buildRelationCsr(const IdColumn& source, uint64_t numSources, const IdColumn& destination,
                             std::span<const uint64_t> destinationGids) {
  const uint64_t edges = source.size();
  // Stable, so that within a source the edges stay in order of their id.
  std::vector<uint64_t> bySource(edges);
  {
    std::vector<uint64_t> next(numSources + 1, 0);
    for (uint64_t e = 0; e < edges; ++e) ++next[source[e] + 1];
    toOffsets(&next);
    for (uint64_t e = 0; e < edges; ++e) bySource[next[source[e]]++] = e;
  }
  RelationCsr csr;
  csr.indptr.assign(destinationGids.size() + 1, 0);
  for (uint64_t e = 0; e < edges; ++e) ++csr.indptr[destinationGids[destination[e]] + 1];
  toOffsets(&csr.indptr);
  csr.edgeIds.resize(edges);
  std::vector<uint64_t> next(csr.indptr.begin(), csr.indptr.end() - 1);
  for (uint64_t e : bySource) csr.edgeIds[next[destinationGids[destination[e]]]++] = e;
  return csr;
}

void sortRowsByTime(const VisibleTimes& times, RelationCsr* csr) {
  std::vector<std::pair<int64_t, uint64_t>> row;  // (time, edge id)
  for (size_t i = 0; i + 1 < csr->indptr.size(); ++i) {
    const uint64_t begin = csr->indptr[i], end = csr->indptr[i + 1];
    row.clear();
    for (uint64_t e = begin; e < end; ++e) row.emplace_back(times(csr->edgeIds[e]), csr->edgeIds[e]);
    // Stable: edges of one time stay in order of (source, edge id).
    std::stable_sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (uint64_t e = begin; e < end; ++e) csr->edgeIds[e] = row[e - begin].second;
  }
}

}  // namespace farhop::partition
