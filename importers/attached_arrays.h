// Node and edge features, seeds and labels that come as .npy files beside an edge list.
#pragma once

#include "base/status.h"
#include "importers/dataset_output.h"
#include "importers/import.h"

namespace farhop::importers {

// Copies them into `output`, whose description has the nodes and edges already. A node type whose number of nodes is not
// said gets as many as the rows of its features, where these are more than its largest id says. Row counts, dtypes and
// seeds that do not fit are errors that name the file.
absl::Status attachArrays(const ImportOptions& options, DatasetOutput* output);

}  // namespace farhop::importers
