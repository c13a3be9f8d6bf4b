#include "partition/edge_counts.h"

#include <algorithm>
#include <array>
#include <limits>

#include "partition/parallel.h"

namespace farhop::partition {
namespace {

constexpr uint64_t kEdgesAtOnce = 4096;

template <typename Count>
absl::StatusOr<std::vector<uint64_t>> countAs(const IdColumn& ids, uint64_t nodes, const std::vector<bool>* kept,
                                              const WriterResources& resources) {
  const uint64_t tables = std::clamp<uint64_t>(resources.workingBytes / 2 / std::max<uint64_t>(1, nodes * sizeof(Count)),
                                               1, static_cast<uint64_t>(resources.threads));
  std::vector<uint64_t> total(nodes, 0);
  std::vector<std::vector<Count>> counts(tables);
  const uint64_t edges = ids.size();
  FARHOP_RETURN_IF_ERROR(runInParallel(static_cast<int>(tables), tables, [&](uint64_t part, int) {
    std::vector<Count>& own = counts[part];
    own.assign(nodes, 0);
    std::array<uint64_t, kEdgesAtOnce> chunk;
    const uint64_t end = edges / tables * (part + 1) + (part + 1 == tables ? edges % tables : 0);
    for (uint64_t first = edges / tables * part; first < end; first += kEdgesAtOnce) {
      const uint64_t n = std::min(kEdgesAtOnce, end - first);
      ids.copy(first, n, chunk.data());
      for (uint64_t i = 0; i < n; ++i) {
        if (kept == nullptr || (*kept)[first + i]) ++own[chunk[i]];
      }
      resources.advance(n);
    }
    return absl::OkStatus();
  }));
  for (std::vector<Count>& own : counts) {
    for (uint64_t id = 0; id < nodes; ++id) total[id] += own[id];
    own = {};
  }
  return total;
}

}  // namespace

absl::StatusOr<std::vector<uint64_t>> countIds(const IdColumn& ids, uint64_t nodes, const std::vector<bool>* kept,
                                               const WriterResources& resources) {
  return ids.size() <= std::numeric_limits<uint32_t>::max() ? countAs<uint32_t>(ids, nodes, kept, resources)
                                                            : countAs<uint64_t>(ids, nodes, kept, resources);
}

}  // namespace farhop::partition
