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

// A one-dimensional integer .npy.
absl::StatusOr<IdColumn> readIds(const std::string& path, const std::string& format);

struct FeatureArray {
  FeatureSpec spec;
  FeatureColumn column;
};
// A .npy of at least one dimension in C order; its first dimension counts rows. `name` becomes the spec's.
absl::StatusOr<FeatureArray> readFeature(const std::string& path, const std::string& format,
                                         const std::string& name);

}  // namespace farhop::partition
