// The tasks of a metadata.yaml: their sets become splits, and labels inside them a feature.
#pragma once

#include <string>

#include "base/status.h"
#include "partition/dataset.h"
#include "partition/yaml_reader.h"

namespace farhop::partition {

// Reads one task of `root` into dataset->splits, task, numClasses and, where the type has no feature "label"
// yet, that feature. `task` as in DatasetReadOptions.
absl::Status readTasks(const YamlReader& root, const std::string& directory, const std::string& task,
                       Dataset* dataset);

}  // namespace farhop::partition
