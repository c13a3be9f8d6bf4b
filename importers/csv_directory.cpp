#include "importers/csv_directory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "importers/byte_source.h"
#include "importers/delimited.h"
#include "importers/number_table.h"

namespace farhop::importers {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kEndings[] = {".csv.gz", ".csv.zst", ".csv"};
constexpr size_t kMaxTextBytes = size_t{64} << 20;

}  // namespace

std::string CsvDirectory::find(const std::string& directory, const std::string& stem) const {
  for (const absl::string_view ending : kEndings) {
    std::string path = absl::StrCat(directory, "/", stem, ending);
    if (pathExists(path)) return path;
  }
  return "";
}

std::vector<std::string> CsvDirectory::list(const std::string& directory) const {
  std::vector<std::string> stems;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    for (const absl::string_view ending : kEndings) {
      if (name.size() <= ending.size() || name.substr(name.size() - ending.size()) != std::string(ending)) continue;
      stems.push_back(name.substr(0, name.size() - ending.size()));
      break;
    }
  }
  std::sort(stems.begin(), stems.end());
  return stems;
}

absl::StatusOr<std::optional<ArrayView>> CsvDirectory::numbers(const std::string& directory, const std::string& stem) const {
  const std::string path = find(directory, stem);
  if (path.empty()) return std::optional<ArrayView>();
  const std::string converted = output_.pathOf(output_.newFile({"table", stem}));
  NumberTableOptions how;
  how.squeeze = true;
  how.threads = options_.threads;
  FARHOP_RETURN_IF_ERROR(convertNumberTable(path, converted, how, options_.progress).status());
  FARHOP_ASSIGN_OR_RETURN(ArrayView view, openNpy(converted));
  ::unlink(converted.c_str());
  view.origin = path;
  return std::optional<ArrayView>(std::move(view));
}

absl::StatusOr<uint64_t> CsvDirectory::single(const std::string& directory, const std::string& stem) const {
  FARHOP_ASSIGN_OR_RETURN(const std::optional<ArrayView> table, numbers(directory, stem));
  if (!table) return absl::NotFoundError(absl::StrCat(directory, " has no ", stem, ".csv.gz"));
  if (table->rows() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(table->origin, " lists ", table->rows(), " graphs; data sets of one graph are imported"));
  }
  if (!table->isInteger() || table->elements() != 1 || table->integerAt(0) >> 48 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(table->origin, " does not hold a count"));
  }
  return table->integerAt(0);
}

absl::StatusOr<std::vector<std::vector<std::string>>> CsvDirectory::text(const std::string& directory,
                                                                         const std::string& stem) const {
  const std::string path = find(directory, stem);
  if (path.empty()) return absl::NotFoundError(absl::StrCat(directory, " has no ", stem, ".csv.gz"));
  FARHOP_ASSIGN_OR_RETURN(const std::string text, readSmallFile(path, kMaxTextBytes));
  std::vector<std::vector<std::string>> rows;
  FARHOP_RETURN_IF_ERROR(eachLine(text, 1, "", [&](absl::string_view line, uint64_t) {
    rows.emplace_back();
    FieldReader reader(line, ',');
    for (absl::string_view field; reader.next(&field);) rows.back().emplace_back(field);
    return absl::OkStatus();
  }));
  return rows;
}

absl::Status CsvDirectory::addFeature(const std::string& directory, const std::string& stem,
                                      DatasetDescription::Feature feature, uint64_t rows) const {
  const std::string path = find(directory, stem);
  feature.path = output_.newFile({feature.domain, feature.type, feature.name});
  NumberTableOptions how;
  how.squeeze = feature.name != "feat";
  how.threads = options_.threads;
  FARHOP_ASSIGN_OR_RETURN(const NumberTable table,
                          convertNumberTable(path, output_.pathOf(feature.path), how, options_.progress));
  if (table.rows != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", table.rows, " rows, but ", feature.type, " has ", rows, " ", feature.domain, "s"));
  }
  output_.description().features.push_back(std::move(feature));
  return absl::OkStatus();
}

}  // namespace farhop::importers
