// One function per kind of source. Each describes what it writes in `output`, and leaves committing it to importDataset().
#pragma once

#include <string>

#include "base/status.h"
#include "importers/dataset_output.h"
#include "importers/import.h"

namespace farhop::importers {

absl::Status importEdges(const ImportOptions& options, DatasetOutput* output);
absl::Status importOgb(const std::string& directory, const ImportOptions& options, DatasetOutput* output);
absl::Status importGraphBolt(const std::string& source, const ImportOptions& options, DatasetOutput* output);
absl::Status importPyg(const std::string& directory, const ImportOptions& options, DatasetOutput* output);
absl::Status importGraphLearn(const std::string& directory, const ImportOptions& options, DatasetOutput* output);
absl::Status importDgl(const std::string& source, const ImportOptions& options, DatasetOutput* output);

}  // namespace farhop::importers
