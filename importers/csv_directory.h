// Directories of tables of numbers, each a csv, as OGB lays out its data sets.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "importers/array_view.h"
#include "importers/dataset_output.h"
#include "importers/import.h"

namespace farhop::importers {

// Names a table by directory and stem: "STEM.csv", "STEM.csv.gz" or "STEM.csv.zst", whichever is there. Borrows both
// arguments. Not thread-safe.
class CsvDirectory {
 public:
  CsvDirectory(const ImportOptions& options, DatasetOutput* output) : options_(options), output_(*output) {}

  // The file; empty where there is none.
  std::string find(const std::string& directory, const std::string& stem) const;
  // Stems of the tables in a directory, ascending.
  std::vector<std::string> list(const std::string& directory) const;
  // A table of numbers, mapped from a file that has no name any more; none where there is no such table. A single column has
  // one dimension.
  absl::StatusOr<std::optional<ArrayView>> numbers(const std::string& directory, const std::string& stem) const;
  // The one number in the first field of a table with one row; NotFound where there is no such table.
  absl::StatusOr<uint64_t> single(const std::string& directory, const std::string& stem) const;
  // A small table of text, by row and column.
  absl::StatusOr<std::vector<std::vector<std::string>>> text(const std::string& directory, const std::string& stem) const;
  // A table with `rows` rows becomes an array of the output and a feature. Its path is set here.
  absl::Status addFeature(const std::string& directory, const std::string& stem, DatasetDescription::Feature feature,
                          uint64_t rows) const;

 private:
  const ImportOptions& options_;
  DatasetOutput& output_;
};

}  // namespace farhop::importers
