#include "importers/import.h"

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "importers/sources.h"

namespace farhop::importers {
namespace {

namespace fs = std::filesystem;

struct KindRow {
  SourceKind kind;
  absl::string_view name;
};
constexpr KindRow kKinds[] = {{SourceKind::kAuto, "auto"},      {SourceKind::kEdges, "edges"},
                              {SourceKind::kGraphBolt, "graphbolt"}, {SourceKind::kOgb, "ogb"},
                              {SourceKind::kDgl, "dgl"},        {SourceKind::kGraphLearn, "graphlearn"},
                              {SourceKind::kPyg, "pyg"}};

bool hasFile(const fs::path& directory, const char* name) { return pathExists((directory / name).string()); }

// A .json beside or in `path` that describes DGL partitions: only these have partition directories beside it.
bool looksLikeDgl(const fs::path& path) {
  std::error_code error;
  const fs::path directory = fs::is_directory(path, error) ? path : path.parent_path();
  return hasFile(directory / "part0", "graph.dgl") || hasFile(directory / "part0", "fused_csc_sampling_graph.pt");
}

// A file inside a directory of partitions stands for the directory.
std::string directoryOf(const std::string& source) {
  std::error_code error;
  if (fs::is_directory(source, error)) return source;
  const std::string parent = fs::path(source).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string nameOf(const std::string& source) {
  fs::path path = fs::path(source.substr(source.find('=') == std::string::npos ? 0 : source.find('=') + 1)).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.substr(0, name.find('.'));
}

}  // namespace

absl::StatusOr<SourceKind> parseSourceKind(absl::string_view name) {
  for (const KindRow& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is no kind of source"));
}

absl::string_view sourceKindName(SourceKind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row.name;
  }
  return "";
}

absl::StatusOr<SourceKind> tellSourceKind(const std::vector<std::string>& sources) {
  if (sources.size() > 1) return SourceKind::kEdges;
  const fs::path path = sources[0];
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const std::string extension = path.extension().string();
    if (extension == ".yaml" || extension == ".yml") return SourceKind::kGraphBolt;
    if (path.filename() == "META.json") return SourceKind::kPyg;
    if (path.filename() == "META") return SourceKind::kGraphLearn;
    if (extension == ".json" && looksLikeDgl(path)) return SourceKind::kDgl;
    return SourceKind::kEdges;
  }
  if (hasFile(path, "META.json")) return SourceKind::kPyg;
  if (hasFile(path, "META")) return SourceKind::kGraphLearn;
  if (looksLikeDgl(path)) return SourceKind::kDgl;
  if (hasFile(path, kMetadataFile) || hasFile(path / "preprocessed", kMetadataFile)) return SourceKind::kGraphBolt;
  if (fs::is_directory(path / "raw", error)) return SourceKind::kOgb;
  return absl::InvalidArgumentError(
      absl::StrCat(path.string(), " is a directory of no kind that is known: no metadata.yaml (GraphBolt), raw/ (OGB), META.json "
                   "(PyG), META (GraphLearn) or part0/graph.dgl (DGL)"));
}

absl::StatusOr<DatasetDescription> importDataset(const ImportOptions& options) {
  if (options.sources.empty()) return absl::InvalidArgumentError("there is no source");
  SourceKind kind = options.kind;
  if (kind == SourceKind::kAuto) {
    FARHOP_ASSIGN_OR_RETURN(kind, tellSourceKind(options.sources));
  }
  if (kind != SourceKind::kEdges && options.sources.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("a source of kind ", sourceKindName(kind), " is one directory or file"));
  }
  FARHOP_ASSIGN_OR_RETURN(DatasetOutput output, DatasetOutput::create(options.directory, options.force));
  output.description().name = options.name.empty() ? nameOf(options.sources[0]) : options.name;
  const std::string& source = options.sources[0];
  const auto run = [&]() -> absl::Status {
    switch (kind) {
      case SourceKind::kGraphBolt:
        return importGraphBolt(source, options, &output);
      case SourceKind::kOgb:
        return importOgb(source, options, &output);
      case SourceKind::kDgl:
        return importDgl(source, options, &output);
      case SourceKind::kGraphLearn:
        return importGraphLearn(directoryOf(source), options, &output);
      case SourceKind::kPyg:
        return importPyg(directoryOf(source), options, &output);
      default:
        return importEdges(options, &output);
    }
  };
  FARHOP_RETURN_IF_ERROR(run());
  FARHOP_RETURN_IF_ERROR(output.commit(std::string(sourceKindName(kind)), options.sources));
  return std::move(output.description());
}

}  // namespace farhop::importers
