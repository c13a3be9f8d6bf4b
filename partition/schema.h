// What a graph consists of: node types, relations (edge types), their features.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/status.h"

namespace farhop::partition {

// A feature of a node type or relation: one row per node or edge.
struct FeatureSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<uint64_t> rowShape;  // without the first dimension; empty for one number per row

  size_t rowElements() const;
  size_t rowBytes() const { return rowElements() * dtypeBytes(dtype); }
};

struct NodeType {
  std::string name;
  uint64_t count = 0;
  std::vector<FeatureSpec> features;
  // The feature that says from when on a node is there (docs/store-format.md, "Times"); empty: always.
  std::string timeFeature = {};
};

// Edges run source -> destination; a node's neighbours are the sources of its in-edges.
struct Relation {
  std::string name;
  int source = 0;       // index into Schema::nodeTypes
  int destination = 0;  // index into Schema::nodeTypes
  uint64_t count = 0;
  int reverseOf = -1;                 // index of the forward relation, for relations named rev_NAME; else -1
  std::vector<FeatureSpec> features;  // stored with the forward relation only
  // Edge features declared for sampling; of a reverse relation: the forward relation's. Empty: none.
  std::string timeFeature = {};
  std::string weightFeature = {};
  // Edges of the data set, where parallel ones have been merged into `count`; 0: all were kept.
  uint64_t inputCount = 0;

  // Original edge ids are below this.
  uint64_t edgeIdBound() const { return inputCount == 0 ? count : inputCount; }
};

// Null when there is none of that name.
const FeatureSpec* findFeature(const std::vector<FeatureSpec>& features, absl::string_view name);

struct Schema {
  std::vector<NodeType> nodeTypes;
  std::vector<Relation> relations;

  // Index, or NotFound listing the names that exist.
  absl::StatusOr<int> nodeTypeIndex(const std::string& name) const;
  // By name, or by "source:name:destination" where the name alone is ambiguous.
  absl::StatusOr<int> relationIndex(const std::string& name) const;
  // "source:name:destination".
  std::string relationText(int relation) const;
  // Its edges have times: of their own, of their source nodes, or both. Then its rows are sorted by time, and every
  // partition has RelationShard::times.
  bool hasTimes(int relation) const;
  // Its edges have declared weights: RelationShard::weights.
  bool hasWeights(int relation) const { return !relations[relation].weightFeature.empty(); }
  // They lie in a file of their own, not in a feature's.
  bool storesWeights(int relation) const;
};

}  // namespace farhop::partition
