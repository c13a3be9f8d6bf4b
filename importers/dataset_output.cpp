#include "importers/dataset_output.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "partition/dataset.h"
#include "partition/layout.h"

namespace farhop::importers {
namespace {

// A double-quoted YAML scalar.
std::string yamlText(absl::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\x%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      result += escape;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

bool isHomogeneous(const DatasetDescription& description) {
  return description.nodes.size() == 1 && description.edges.size() == 1 &&
         description.nodes[0].type == partition::kHomogeneousNodeType &&
         description.edges[0].type == absl::StrCat(partition::kHomogeneousNodeType, ":",
                                                   partition::kHomogeneousRelation, ":",
                                                   partition::kHomogeneousNodeType);
}

// Parts of a YAML file, with or without types.
class MetadataText {
 public:
  explicit MetadataText(const DatasetDescription& description)
      : description_(description), typed_(!isHomogeneous(description)) {}

  std::string text() {
    absl::StrAppend(&text_, "dataset_name: ", yamlText(description_.name), "\n");
    if (description_.numPartitions > 0) absl::StrAppend(&text_, "num_partitions: ", description_.numPartitions, "\n");
    graph();
    text_ += description_.features.empty() ? "feature_data: []\n" : "feature_data:\n";
    for (const DatasetDescription::Feature& feature : description_.features) {
      absl::StrAppend(&text_, "- domain: ", feature.domain, "\n");
      if (typed_ && feature.domain != "graph" && !feature.type.empty()) absl::StrAppend(&text_, "  type: ", yamlText(feature.type), "\n");
      absl::StrAppend(&text_, "  name: ", yamlText(feature.name), "\n");
      array("  ", feature.path);
    }
    text_ += description_.tasks.empty() ? "tasks: []\n" : "tasks:\n";
    for (const DatasetDescription::Task& task : description_.tasks) addTask(task);
    return std::move(text_);
  }

 private:
  void graph() {
    text_ += "graph:\n  nodes:\n";
    for (const DatasetDescription::Nodes& nodes : description_.nodes) {
      absl::StrAppend(&text_, "  - num: ", nodes.count, "\n");
      if (typed_) absl::StrAppend(&text_, "    type: ", yamlText(nodes.type), "\n");
      if (!nodes.partitionPath.empty()) absl::StrAppend(&text_, "    partition: ", yamlText(nodes.partitionPath), "\n");
      if (!nodes.dictionaryPath.empty()) absl::StrAppend(&text_, "    ids: ", yamlText(nodes.dictionaryPath), "\n");
    }
    text_ += "  edges:\n";
    for (const DatasetDescription::Edges& edges : description_.edges) {
      absl::StrAppend(&text_, "  - format: numpy\n");
      if (typed_) absl::StrAppend(&text_, "    type: ", yamlText(edges.type), "\n");
      absl::StrAppend(&text_, "    path: ", yamlText(edges.path), "\n");
    }
  }
  void array(absl::string_view indent, const std::string& path) {
    absl::StrAppend(&text_, indent, "format: numpy\n", indent, "path: ", yamlText(path), "\n");
  }
  void addTask(const DatasetDescription::Task& task) {
    absl::StrAppend(&text_, "- name: ", yamlText(task.name), "\n");
    if (task.numClasses) absl::StrAppend(&text_, "  num_classes: ", *task.numClasses, "\n");
    for (const char* split : {"train", "validation", "test"}) {
      bool first = true;
      for (const DatasetDescription::Set& set : task.sets) {
        if (set.split != split) continue;
        if (std::exchange(first, false)) absl::StrAppend(&text_, "  ", split, "_set:\n");
        text_ += "  - ";
        if (typed_ && !set.type.empty()) absl::StrAppend(&text_, "type: ", yamlText(set.type), "\n    ");
        text_ += "data:\n";
        for (const DatasetDescription::SetData& data : set.data) {
          absl::StrAppend(&text_, "    - name: ", yamlText(data.name), "\n");
          array("      ", data.path);
        }
      }
    }
  }

  const DatasetDescription& description_;
  const bool typed_;
  std::string text_;
};

std::string formatRecord(const std::string& kind, const std::vector<std::string>& sources) {
  nlohmann::ordered_json json;
  json["format"] = "farhop-dataset";
  json["version"] = 1;
  json["kind"] = kind;
  json["sources"] = sources;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string formatMetadata(const DatasetDescription& description) { return MetadataText(description).text(); }

absl::StatusOr<DatasetOutput> DatasetOutput::create(const std::string& directory, bool force) {
  FARHOP_ASSIGN_OR_RETURN(partition::StagedDirectory staged,
                          partition::StagedDirectory::create(directory, force, {kRecordFile, "data set"}));
  // A run that was killed may have left files: none of them is gone on with.
  std::error_code error;
  for (std::filesystem::directory_iterator it(staged.path(), error), end; !error && it != end; it.increment(error)) {
    std::filesystem::remove_all(it->path(), error);
  }
  if (error) return errnoStatus(absl::StrCat("clearing ", staged.path()), error.value());
  return DatasetOutput(std::move(staged));
}

std::string DatasetOutput::newFile(const std::vector<std::string>& parts, absl::string_view ending) {
  std::string stem;
  for (const std::string& part : parts) {
    absl::StrAppend(&stem, stem.empty() ? "" : ".", partition::pathComponent(part));
  }
  std::string name = absl::StrCat(stem, ending);
  for (int i = 2; std::find(taken_.begin(), taken_.end(), name) != taken_.end(); ++i) {
    name = absl::StrCat(stem, ".", i, ending);
  }
  taken_.push_back(name);
  return name;
}

absl::Status DatasetOutput::commit(const std::string& kind, const std::vector<std::string>& sources) {
  FARHOP_RETURN_IF_ERROR(writeFileAtomically(pathOf(kMetadataFile), formatMetadata(description_)));
  FARHOP_RETURN_IF_ERROR(writeFileAtomically(pathOf(kRecordFile), formatRecord(kind, sources)));
  {
    const auto dataset = partition::readDataset(staged_.path());
    FARHOP_RETURN_IF_ERROR(dataset.status());
  }
  FARHOP_RETURN_IF_ERROR(staged_.sync());
  return staged_.commit();
}

}  // namespace farhop::importers
