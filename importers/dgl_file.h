// DGL's binary files: dictionaries of tensors (dgl.data.utils.save_tensors) and graphs (dgl.save_graphs, format version 2).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "importers/array_view.h"

namespace farhop::importers {

using TensorMap = std::map<std::string, ArrayView>;

// Mapped, not read. DataLoss or InvalidArgument for what is no such file; never a crash.
absl::StatusOr<TensorMap> openDglTensors(const std::string& path);

// The edges of a graph of one node type and one relation, in whichever form the file has: pairs, or rows of in- or out-edges.
struct DglGraph {
  uint64_t numNodes = 0;
  ArrayView indptr;   // of rows; without dimensions where edges are pairs
  ArrayView first;    // pairs: sources; rows: the other ends
  ArrayView second;   // pairs: destinations
  ArrayView edgeIds;  // by position; empty: the position itself
  bool rowsAreDestinations = false;
  TensorMap nodes, edges;  // their data

  // Calls onEdge(source, destination, edge) for each until an error. OutOfRange where the file's numbers do not fit.
  template <typename OnEdge>
  absl::Status eachEdge(const OnEdge& onEdge) const {
    if (indptr.shape.empty()) {
      for (uint64_t i = 0; i < first.rows(); ++i) {
        FARHOP_RETURN_IF_ERROR(onEdge(first.integerAt(i), second.integerAt(i), edgeAt(i)));
      }
      return absl::OkStatus();
    }
    for (uint64_t row = 0; row + 1 < indptr.rows(); ++row) {
      const uint64_t end = indptr.integerAt(row + 1);
      if (end > first.rows() || end < indptr.integerAt(row)) return absl::OutOfRangeError(absl::StrCat(indptr.origin, ": rows do not ascend"));
      for (uint64_t i = indptr.integerAt(row); i < end; ++i) {
        const uint64_t other = first.integerAt(i);
        FARHOP_RETURN_IF_ERROR(rowsAreDestinations ? onEdge(other, row, edgeAt(i)) : onEdge(row, other, edgeAt(i)));
      }
    }
    return absl::OkStatus();
  }

 private:
  uint64_t edgeAt(uint64_t position) const {
    return edgeIds.shape.empty() || edgeIds.rows() == 0 ? position : edgeIds.integerAt(position);
  }
};
absl::StatusOr<DglGraph> openDglGraph(const std::string& path);

}  // namespace farhop::importers
