// One relation's edges in the order in which a store keeps them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "partition/id_column.h"
#include "partition/sampling_features.h"

namespace farhop::partition {

// CSR over all destination gids of a relation. Partition k's part is the rows of its gid range.
struct RelationCsr {
  std::vector<uint64_t> indptr;   // [destinations + 1]
  std::vector<uint64_t> edgeIds;  // [edges], within a row ascending by (original source id, edge id)
};

// `destinationGids`: original destination id -> gid. Two counting sorts; 16 bytes per edge at the peak.
RelationCsr buildRelationCsr(const IdColumn& source, uint64_t numSources, const IdColumn& destination,
                             std::span<const uint64_t> destinationGids);

// Sorts each row by (visible time, original source id, edge id). Needs 32 bytes per edge of the largest row.
void sortRowsByTime(const VisibleTimes& times, RelationCsr* csr);

}  // namespace farhop::partition
