#include "partition/store_relation.h"

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

}  // namespace farhop::partition
