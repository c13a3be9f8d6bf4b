// Edge lists as text: csv, tab- or blank-separated, with comments and headings, packed or not; SNAP's files as they are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/status.h"
#include "importers/dataset_output.h"

namespace farhop::importers {

enum class IdKind { kAuto, kInteger, kString };
enum class Heading { kAuto, kYes, kNo };

// A column that becomes an edge feature.
struct EdgeColumn {
  std::string column;  // its heading, or its number from 0
  std::string feature;
  DType dtype = DType::kFloat32;
  bool isWeight = false;  // must be finite and not negative
};

struct EdgeListOptions {
  std::optional<char> delimiter;  // told by the first line if not given: a tab, a comma, a semicolon, else blanks
  std::string comments = "#%";
  Heading heading = Heading::kAuto;
  IdKind ids = IdKind::kAuto;
  // Integer ids are numbered densely, too.
  bool renumber = false;
  std::string sourceColumn = "0";
  std::string destinationColumn = "1";
  std::vector<EdgeColumn> columns;
  // Number of nodes by type, where not what the largest id says. With dictionaries: at least so many.
  std::map<std::string, uint64_t> nodeCounts;
  bool allowEmpty = false;  // arrays without edges
  int threads = 1;
};

// A file with the edges of one relation.
struct EdgeListFile {
  std::string path;
  std::string sourceType;
  std::string relation;
  std::string destinationType;
};

// Streams the files into `output`, each a relation of its own; node types are shared between them. Errors name file and
// line. Memory: a few blocks of text, and the dictionaries where ids are strings or renumbered.
absl::Status importEdgeLists(const std::vector<EdgeListFile>& files, const EdgeListOptions& options,
                             const ProgressReport& progress, DatasetOutput* output);

// How one file is read: what was not said is told from its first two lines. Part of importEdgeLists().
struct EdgeListLayout {
  char delimiter = 0;
  bool heading = false;
  IdKind ids = IdKind::kInteger;
  // Number of the column, from 0.
  size_t source = 0;
  size_t destination = 1;
  std::vector<size_t> columns;  // as EdgeListOptions::columns
};
absl::StatusOr<EdgeListLayout> tellLayout(const std::string& path, const EdgeListOptions& options);

}  // namespace farhop::importers
