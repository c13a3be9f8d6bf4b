#include "importers/direct_source.h"

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "importers/import.h"

namespace farhop::importers {
namespace {

namespace fs = std::filesystem;

// A metadata.yaml that partition::readDataset() reads itself: neither preprocessed nor with files of torch's.
bool isPlainDataset(const std::string& source) {
  std::error_code error;
  const std::string file = fs::is_directory(source, error) ? (fs::path(source) / kMetadataFile).string() : source;
  const auto text = readFile(file);
  return text.ok() && text->find("torch") == std::string::npos && text->find("graph_topology") == std::string::npos;
}

}  // namespace

absl::StatusOr<DirectSource> DirectSource::open(const std::string& source, const std::string& output, int threads,
                                                const ProgressReport& progress) {
  const auto kind = tellSourceKind({source});
  // What is not there, or nothing that is known, is the data set reader's to complain about.
  const bool missing = !pathExists(source) || !kind.ok();
  if (missing || (*kind == SourceKind::kGraphBolt && isPlainDataset(source))) return DirectSource(source, false);
  fs::path target = fs::path(output).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  ImportOptions options;
  options.sources = {source};
  options.directory = (target.parent_path() / absl::StrCat(".", target.filename().string(), ".imported")).string();
  options.force = true;
  options.kind = *kind;
  options.threads = threads;
  options.progress = progress;
  FARHOP_RETURN_IF_ERROR(importDataset(options).status());
  return DirectSource(options.directory, true);
}

DirectSource::DirectSource(DirectSource&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, false)) {}

DirectSource::~DirectSource() {
  if (!temporary_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace farhop::importers
