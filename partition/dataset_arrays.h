// The files that a metadata.yaml points at: edges, ids and features, from .npy or csv.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/dataset.h"

namespace farhop::partition {

// Edges of format "numpy" (an integer array of shape (2, E), or (E, 2); of shape (2, 2) the first is meant)
// or "csv" (lines "source,destination"; a first line that begins with a letter is taken as a heading).
absl::StatusOr<EdgeList> readEdges(const std::string& path, const std::string& format);

// Seeds of a set: node ids of one dimension, or pairs (source, destination) of shape (n, 2).
struct SeedArray {
  IdColumn nodes;  // node seeds, or the pairs' sources
  IdColumn destinations;
  bool isPairs = false;
  std::string origin;  // the file, for messages
};
// From an integer .npy.
absl::StatusOr<SeedArray> readSeeds(const std::string& path, const std::string& format);

struct FeatureArray {
  FeatureSpec spec;
  FeatureColumn column;
};
// A .npy of at least one dimension in C order; its first dimension counts rows. `name` becomes the spec's.
absl::StatusOr<FeatureArray> readFeature(const std::string& path, const std::string& format,
                                         const std::string& name);

}  // namespace farhop::partition
