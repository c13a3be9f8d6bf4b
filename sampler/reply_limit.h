// What a reply to another machine may hold, looked at while its rows are drawn and not when all of it is in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "rpc/agent.h"
#include "sampler/kernels.h"

namespace farhop::sampler {

// What fits a message.
inline constexpr uint64_t kMaxReplyBytes = rpc::kMaxMessageBytes;
// Edges that are drawn or looked through between two looks at the size, unless one row has more.
inline constexpr uint64_t kEdgesAtOnce = uint64_t{1} << 20;

// How many of `rows` (not empty) to take together: one at least, more while they have at most kEdgesAtOnce edges, no more
// than `mostOfRow` counted of each.
template <typename Id>
size_t rowsTogether(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t mostOfRow) {
  uint64_t edges = 0;
  size_t count = 0;
  for (; count < rows.size(); ++count) {
    edges += std::min(view.indptr[rows[count] + 1] - view.indptr[rows[count]], mostOfRow);
    if (edges > kEdgesAtOnce && count > 0) break;
  }
  return count;
}

}  // namespace farhop::sampler
