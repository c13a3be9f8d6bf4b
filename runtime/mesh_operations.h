// Collective operations over one mesh: the textbook ring, dissemination and root algorithms.
//
// All ranks call the same operations in the same order. An operation starts by comparing, round the ring, what is
// being called; a mismatch is InvalidArgument naming the neighbour, before any data moves (Gloo would otherwise
// end the process). Any error breaks the mesh. Not thread-safe.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "runtime/gloo_mesh.h"

namespace farhop::runtime {

// The largest byte string that gather and broadcast carry.
inline constexpr uint64_t kMaxCollectiveBytes = uint64_t{1} << 32;

// Part `part` of `parts` of `elements`: [first, second).
std::pair<size_t, size_t> sliceOf(size_t elements, int parts, int part);

// Everyone has called it when it returns.
absl::Status meshBarrier(GlooMesh& mesh, Deadline deadline);

// T: float, double, int64_t, uint64_t. The same length on all ranks.
// reduceScatter leaves the sum over all ranks in slice `rank` of `data`, and garbage in the others; allGather,
// which follows a reduceScatter of as much data, takes slice `rank` from each rank to all. Each slice is summed by one rank, in ring order, so that after
// both all ranks hold the same bits.
template <typename T>
absl::Status meshReduceScatter(GlooMesh& mesh, std::span<T> data, Deadline deadline);
template <typename T>
absl::Status meshAllGather(GlooMesh& mesh, std::span<T> data, Deadline deadline);

// Byte strings of any length, by rank. gather gives them to `root` alone; the others get an empty vector.
absl::StatusOr<std::vector<std::string>> meshGather(GlooMesh& mesh, int root, const std::string& value,
                                                    Deadline deadline);
absl::StatusOr<std::vector<std::string>> meshAllGatherStrings(GlooMesh& mesh, const std::string& value,
                                                              Deadline deadline);
// The value that `root` passes; the others' is ignored.
absl::StatusOr<std::string> meshBroadcast(GlooMesh& mesh, int root, const std::string& value, Deadline deadline);

}  // namespace farhop::runtime
