// farhop import: from the formats in which people have graphs to a directory with a metadata.yaml.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "importers/dataset_output.h"
#include "importers/edge_list.h"

namespace farhop::importers {

// What a source is. docs/importing.md describes each.
enum class SourceKind { kAuto, kEdges, kGraphBolt, kOgb, kDgl, kGraphLearn, kPyg };
// "auto", "edges", "graphbolt", "ogb", "dgl", "graphlearn" or "pyg".
absl::StatusOr<SourceKind> parseSourceKind(absl::string_view name);
absl::string_view sourceKindName(SourceKind kind);

// What is there tells it. InvalidArgument for a directory of no known kind.
absl::StatusOr<SourceKind> tellSourceKind(const std::vector<std::string>& sources);

// An array of the user's that goes with edge lists.
struct AttachedArray {
  std::string type;  // node type or relation; empty where there is one
  std::string name;  // of the feature
  std::string path;  // a .npy, one row per node or edge
};

struct ImportOptions {
  // For edge lists: files of text or .npy, each PATH or "source:relation:destination=PATH". Otherwise one directory or file.
  std::vector<std::string> sources;
  std::string directory;
  bool force = false;
  SourceKind kind = SourceKind::kAuto;
  std::string name;  // of the data set; empty: the source's
  EdgeListOptions edges;
  std::vector<AttachedArray> nodeFeatures;
  std::vector<AttachedArray> edgeFeatures;
  // Seeds by split ("train", ...), and labels of all nodes of their type. AttachedArray::name is the split; of labels empty.
  std::vector<AttachedArray> seeds;
  std::optional<AttachedArray> labels;
  int threads = 1;
  ProgressReport progress;
};

// Imports, checks and puts the data set at `directory`: complete or absent. Returns what it consists of.
absl::StatusOr<DatasetDescription> importDataset(const ImportOptions& options);

}  // namespace farhop::importers
