// GraphBolt's FusedCSCSamplingGraph, as torch.save writes it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "importers/dgl_file.h"

namespace farhop::importers {

// In-edges by node, over all types: a node's number is behind those of the types before its own.
struct FusedGraph {
  DglGraph graph;                        // rows are destinations; its `nodes` and `edges` are the attributes
  std::vector<uint64_t> typeOffsets;     // [types + 1]; empty without types
  ArrayView typePerEdge;                 // without dimensions where there are no types
  std::vector<std::string> nodeTypes;    // by number
  std::vector<std::string> edgeTypes;    // "source:relation:destination", by number
};
absl::StatusOr<FusedGraph> openFusedGraph(const std::string& path);

}  // namespace farhop::importers
