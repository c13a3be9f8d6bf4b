#include "sampler/wire_parts.h"

#include <algorithm>

namespace farhop::sampler {

absl::Status checkOwnPartition(uint32_t partition, const PartitionedGraph& graph) {
  if (partition >= static_cast<uint32_t>(graph.book().numPartitions())) {
    return absl::InvalidArgumentError(absl::StrCat("partition ", partition, " does not exist"));
  }
  if (graph.isOwn(static_cast<int>(partition))) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("partition ", partition, " is not served by machine ", graph.machine(),
                                                    "; all processes must open the same store"));
}

absl::Status checkRuns(std::span<const PartitionRun> runs, std::span<const uint32_t> rows, int nodeType,
                       const PartitionedGraph& graph) {
  for (const PartitionRun& run : runs) {
    FARHOP_RETURN_IF_ERROR(checkOwnPartition(run.partition, graph));
    if (run.count > rows.size()) return absl::InvalidArgumentError("fewer rows than the runs say");
    const uint64_t known = graph.book().count(nodeType, static_cast<int>(run.partition));
    const std::span<const uint32_t> own = rows.first(run.count);
    if (std::any_of(own.begin(), own.end(), [known](uint32_t row) { return row >= known; })) {
      return absl::InvalidArgumentError(absl::StrCat("a row beyond the ", known, " of partition ", run.partition));
    }
    rows = rows.subspan(run.count);
  }
  return rows.empty() ? absl::OkStatus() : absl::InvalidArgumentError("more rows than the runs say");
}

}  // namespace farhop::sampler
