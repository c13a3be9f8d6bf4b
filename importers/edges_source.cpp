// Edge lists that a user names one by one, as text or .npy.
#include <filesystem>

#include "importers/attached_arrays.h"
#include "importers/edge_list.h"
#include "importers/sources.h"
#include "partition/dataset.h"
#include "partition/layout.h"

namespace farhop::importers {
namespace {

// PATH or source:relation:destination=PATH.
absl::StatusOr<EdgeListFile> parseFile(const std::string& text, bool several) {
  EdgeListFile file{text, partition::kHomogeneousNodeType, partition::kHomogeneousRelation,
                    partition::kHomogeneousNodeType};
  const size_t equals = text.find('=');
  std::error_code error;
  // A path may hold an equals sign itself.
  const bool typed = equals != std::string::npos && !std::filesystem::exists(text, error);
  if (!typed) {
    if (!several) return file;
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': with several files each needs its relation: source:relation:destination=PATH"));
  }
  const std::string type = text.substr(0, equals);
  const size_t first = type.find(':'), second = first == std::string::npos ? first : type.find(':', first + 1);
  if (second == std::string::npos || type.find(':', second + 1) != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is neither a file nor of the form source:relation:destination=PATH"));
  }
  file = {text.substr(equals + 1), type.substr(0, first), type.substr(first + 1, second - first - 1), type.substr(second + 1)};
  for (const std::string* name : {&file.sourceType, &file.relation, &file.destinationType}) {
    FARHOP_RETURN_IF_ERROR(partition::checkName(absl::StrCat("a part of '", type, "'"), *name));
  }
  return file;
}

}  // namespace

absl::Status importEdges(const ImportOptions& options, DatasetOutput* output) {
  std::vector<EdgeListFile> files;
  for (const std::string& source : options.sources) {
    FARHOP_ASSIGN_OR_RETURN(EdgeListFile file, parseFile(source, options.sources.size() > 1));
    files.push_back(std::move(file));
  }
  EdgeListOptions edges = options.edges;
  edges.threads = options.threads;
  FARHOP_RETURN_IF_ERROR(importEdgeLists(files, edges, options.progress, output));
  return attachArrays(options, output);
}

}  // namespace farhop::importers
