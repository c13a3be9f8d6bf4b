// A graph as users have it: edges, features and splits by original id, before partitioning.
//
// Read from a directory with the metadata.yaml of GraphBolt's OnDiskDataset (docs/store-format.md, "Input"):
// https://www.dgl.ai/dgl_docs/stochastic_training/ondisk-dataset-specification.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/id_column.h"
#include "partition/schema.h"

namespace farhop::partition {

// Names that a homogeneous graph's only node type and relation get.
inline constexpr char kHomogeneousNodeType[] = "_N";
inline constexpr char kHomogeneousRelation[] = "_E";
inline constexpr char kLabelFeature[] = "label";
// What the labels of edge seeds are called.
inline constexpr char kLabelsName[] = "labels";

// One relation's edges; edge i (its original edge id) runs source[i] -> destination[i].
struct EdgeList {
  IdColumn source;
  IdColumn destination;
  std::string origin;  // the file, for messages
};

// Rows of a feature, by original node or edge id; described by the schema's FeatureSpec at the same index.
struct FeatureColumn {
  const std::byte* data = nullptr;  // rows back to back, C order
  uint64_t rows = 0;
  std::shared_ptr<const void> owner;
  std::string origin;
};

struct SplitSeeds {
  std::string name;  // "train", "validation" or "test"
  int nodeType = 0;
  std::vector<uint64_t> ids;  // original ids, ascending; a seed listed twice stays twice
};

// Seeds that are edges of a relation, or pairs of nodes that could be some; seed i is source[i] -> destination[i].
struct EdgeSplitSeeds {
  std::string name;  // as SplitSeeds
  int relation = 0;
  IdColumn source;       // original ids, in the order of the data set
  IdColumn destination;
  std::string origin;  // the file, for messages
  // Where the data set has labels: a row per seed; named kLabelsName.
  std::optional<FeatureSpec> labelSpec;
  FeatureColumn labels;
};

// Copies share the arrays.
struct Dataset {
  std::string name;
  std::string task;             // the task whose sets became `splits`; empty without one
  int64_t numClasses = 0;       // of that task; 0 where not said
  Schema schema;                // no reverse relations
  std::vector<EdgeList> edges;  // by relation
  std::vector<std::vector<FeatureColumn>> nodeFeatures;  // by node type, as in its NodeType::features
  std::vector<std::vector<FeatureColumn>> edgeFeatures;  // by relation, as in its Relation::features
  std::vector<SplitSeeds> splits;                        // at most one per (name, node type)
  std::vector<EdgeSplitSeeds> edgeSplits;                // at most one per (name, relation)
};

// Says what is wrong with a data set and in which file: endpoints and seeds out of range, row counts that
// differ from the node or edge count, names taken twice, and times and weights that are none (sampling_features.h).
// Reads every edge once.
absl::Status checkDataset(const Dataset& dataset);

// Both ends of seed edges are nodes of the relation's types; OutOfRange names `origin` and the row.
absl::Status checkSeedEnds(const Schema& schema, int relation, const IdColumn& source, const IdColumn& destination,
                           const std::string& origin);

struct DatasetReadOptions {
  // The task whose sets are read. Empty: the first. "none" (where no task is called so): no splits.
  std::string task;
};

// Reads and checks a data set. `path` is the directory or its metadata.yaml. Arrays stay mapped, not copied
// (csv and labels excepted). Errors name the file, and the line where it is text.
absl::StatusOr<Dataset> readDataset(const std::string& path, const DatasetReadOptions& options = {});

}  // namespace farhop::partition
