// Counts edges by node, on several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "partition/id_column.h"
#include "partition/writer_resources.h"

namespace farhop::partition {

// How often each id below `nodes` is in the column; edges for which `kept` (where given, by edge) is false do not
// count. Every thread counts its own part of the edges, as many threads as there is memory for 4 or 8 bytes per node.
absl::StatusOr<std::vector<uint64_t>> countIds(const IdColumn& ids, uint64_t nodes, const std::vector<bool>* kept,
                                               const WriterResources& resources);

}  // namespace farhop::partition
