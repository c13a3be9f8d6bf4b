// farhop export: a graph store back to a directory with a metadata.yaml, by original ids.
#pragma once

#include <string>

#include "base/status.h"
#include "importers/dataset_output.h"

namespace farhop::importers {

struct ExportOptions {
  std::string store;
  std::string directory;
  bool force = false;
  ProgressReport progress;  // in bytes of what is written
};

// Edges lie in the order of their original ids, features bit for bit as they were, seeds of nodes ascending; the assignment to
// partitions is written as import writes it. Reverse relations and caches are left out: they are made of the rest. Complete or
// absent. DataLoss names what in the store is out of range.
absl::StatusOr<DatasetDescription> exportStore(const ExportOptions& options);

}  // namespace farhop::importers
