// metadata.yaml: the graph and its features. Tasks: dataset_tasks.cpp.
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "partition/dataset.h"
#include "partition/dataset_arrays.h"
#include "partition/dataset_tasks.h"
#include "partition/layout.h"
#include "partition/yaml_reader.h"

namespace farhop::partition {
namespace {

constexpr size_t kMaxYamlBytes = size_t{16} << 20;
constexpr char kYamlFile[] = "metadata.yaml";

std::string pathIn(const std::string& directory, const std::string& path) {
  return (std::filesystem::path(directory) / path).string();
}

// "source:relation:destination" into its three parts.
absl::Status splitEdgeType(const YamlReader& where, const std::string& text, std::string (*parts)[3]) {
  const size_t first = text.find(':');
  const size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos || text.find(':', second + 1) != std::string::npos) {
    return where.error(
        absl::StrCat("edge type '", text.substr(0, 200), "' is not of the form source:relation:destination"));
  }
  (*parts)[0] = text.substr(0, first);
  (*parts)[1] = text.substr(first + 1, second - first - 1);
  (*parts)[2] = text.substr(second + 1);
  return absl::OkStatus();
}

class DatasetReader {
 public:
  DatasetReader(std::string directory, const DatasetReadOptions& options)
      : directory_(std::move(directory)), options_(options) {}

  absl::StatusOr<Dataset> read(const YamlReader& root) {
    if (!root.isMap())
      return root.error("this is not a mapping; see docs/store-format.md for what it should hold");
    if (!root.has("graph") && root.has("graph_topology")) {
      return root.error(
          "this describes a data set that GraphBolt has preprocessed; give the raw one (usually the "
          "directory above)");
    }
    FARHOP_ASSIGN_OR_RETURN(dataset_.name, root.textOr("dataset_name", ""));
    FARHOP_ASSIGN_OR_RETURN(YamlReader graph, root.required("graph"));
    FARHOP_RETURN_IF_ERROR(readNodes(graph));
    FARHOP_RETURN_IF_ERROR(readRelations(graph));
    FARHOP_RETURN_IF_ERROR(readFeatures(root, false));
    // Attributes for sampling (weights, times) are features like others here; GraphBolt lists some in both
    // places.
    FARHOP_RETURN_IF_ERROR(readFeatures(graph, true));
    // Before the tasks, which index nodes by what is checked here.
    FARHOP_RETURN_IF_ERROR(checkDataset(dataset_));
    FARHOP_RETURN_IF_ERROR(readTasks(root, directory_, options_.task, &dataset_));
    return std::move(dataset_);
  }

 private:
  Schema& schema() { return dataset_.schema; }

  absl::Status readNodes(const YamlReader& graph) {
    FARHOP_ASSIGN_OR_RETURN(YamlReader list, graph.required("nodes"));
    FARHOP_RETURN_IF_ERROR(graph.each("nodes", [&](const YamlReader& entry) -> absl::Status {
      NodeType type;
      FARHOP_ASSIGN_OR_RETURN(type.name, entry.textOr("type", kHomogeneousNodeType));
      FARHOP_ASSIGN_OR_RETURN(type.count, entry.count("num"));
      const absl::Status named = checkName("a node type", type.name);
      if (!named.ok()) return entry.error(named.message());
      for (const NodeType& other : schema().nodeTypes) {
        if (other.name == type.name)
          return entry.error(absl::StrCat("node type '", type.name, "' is listed twice"));
      }
      schema().nodeTypes.push_back(std::move(type));
      return absl::OkStatus();
    }));
    if (schema().nodeTypes.empty()) return list.error("'nodes' lists no node type");
    dataset_.nodeFeatures.resize(schema().nodeTypes.size());
    return absl::OkStatus();
  }

  absl::StatusOr<int> nodeType(const YamlReader& entry, const std::string& name) {
    auto index = schema().nodeTypeIndex(name);
    if (!index.ok()) return entry.error(index.status().message());
    return *index;
  }

  absl::Status readRelations(const YamlReader& graph) {
    FARHOP_ASSIGN_OR_RETURN(YamlReader list, graph.required("edges"));
    FARHOP_RETURN_IF_ERROR(graph.each("edges", [&](const YamlReader& entry) { return readRelation(entry); }));
    if (schema().relations.empty()) return list.error("'edges' lists no relation");
    return absl::OkStatus();
  }

  absl::Status readRelation(const YamlReader& entry) {
    Relation relation;
    if (entry.has("type")) {
      FARHOP_ASSIGN_OR_RETURN(std::string text, entry.text("type"));
      std::string parts[3];
      FARHOP_RETURN_IF_ERROR(splitEdgeType(entry, text, &parts));
      FARHOP_ASSIGN_OR_RETURN(relation.source, nodeType(entry, parts[0]));
      FARHOP_ASSIGN_OR_RETURN(relation.destination, nodeType(entry, parts[2]));
      relation.name = parts[1];
    } else if (schema().nodeTypes.size() == 1) {
      relation.name = kHomogeneousRelation;
    } else {
      return entry.error(
          "an edge type is needed where there are several node types (type: source:relation:destination)");
    }
    const absl::Status named = checkName("a relation", relation.name);
    if (!named.ok()) return entry.error(named.message());
    FARHOP_ASSIGN_OR_RETURN(std::string format, entry.text("format"));
    FARHOP_ASSIGN_OR_RETURN(std::string path, entry.text("path"));
    FARHOP_ASSIGN_OR_RETURN(EdgeList edges, readEdges(pathIn(directory_, path), format));
    relation.count = edges.source.size();
    schema().relations.push_back(std::move(relation));
    const std::string text = schema().relationText(static_cast<int>(schema().relations.size()) - 1);
    for (size_t r = 0; r + 1 < schema().relations.size(); ++r) {
      if (schema().relationText(static_cast<int>(r)) == text) {
        return entry.error(absl::StrCat("edge type '", text, "' is listed twice"));
      }
    }
    dataset_.edges.push_back(std::move(edges));
    dataset_.edgeFeatures.emplace_back();
    return absl::OkStatus();
  }

  absl::Status readFeatures(const YamlReader& parent, bool skipKnown) {
    return parent.each("feature_data", [&](const YamlReader& entry) -> absl::Status {
      FARHOP_ASSIGN_OR_RETURN(std::string domain, entry.text("domain"));
      FARHOP_ASSIGN_OR_RETURN(std::string name, entry.text("name"));
      const absl::Status named = checkName("a feature", name);
      if (!named.ok()) return entry.error(named.message());
      if (domain == "node") return readNodeFeature(entry, name, skipKnown);
      if (domain == "edge") return readEdgeFeature(entry, name, skipKnown);
      // "graph": one value for the whole graph; no row belongs to a node or edge.
      if (domain == "graph") return absl::OkStatus();
      return entry.error(absl::StrCat("domain '", domain.substr(0, 60), "' is neither node nor edge"));
    });
  }

  absl::Status readNodeFeature(const YamlReader& entry, const std::string& name, bool skipKnown) {
    int type = 0;
    if (entry.has("type") || schema().nodeTypes.size() > 1) {
      FARHOP_ASSIGN_OR_RETURN(std::string typeName, entry.text("type"));
      FARHOP_ASSIGN_OR_RETURN(type, nodeType(entry, typeName));
    }
    return addFeature(entry, name, skipKnown, &schema().nodeTypes[type].features,
                      &dataset_.nodeFeatures[type]);
  }

  absl::Status readEdgeFeature(const YamlReader& entry, const std::string& name, bool skipKnown) {
    int relation = 0;
    if (entry.has("type") || schema().relations.size() > 1) {
      FARHOP_ASSIGN_OR_RETURN(std::string text, entry.text("type"));
      auto index = schema().relationIndex(text);
      if (!index.ok()) return entry.error(index.status().message());
      relation = *index;
    }
    return addFeature(entry, name, skipKnown, &schema().relations[relation].features,
                      &dataset_.edgeFeatures[relation]);
  }

  absl::Status addFeature(const YamlReader& entry, const std::string& name, bool skipKnown,
                          std::vector<FeatureSpec>* specs, std::vector<FeatureColumn>* columns) {
    for (const FeatureSpec& spec : *specs) {
      if (spec.name != name) continue;
      if (skipKnown) return absl::OkStatus();
      return entry.error(absl::StrCat("feature '", name, "' is listed twice"));
    }
    FARHOP_ASSIGN_OR_RETURN(std::string format, entry.text("format"));
    FARHOP_ASSIGN_OR_RETURN(std::string path, entry.text("path"));
    FARHOP_ASSIGN_OR_RETURN(FeatureArray feature, readFeature(pathIn(directory_, path), format, name));
    specs->push_back(std::move(feature.spec));
    columns->push_back(std::move(feature.column));
    return absl::OkStatus();
  }

  const std::string directory_;
  const DatasetReadOptions& options_;
  Dataset dataset_;
};

}  // namespace

absl::StatusOr<Dataset> readDataset(const std::string& path, const DatasetReadOptions& options) {
  std::error_code error;
  const bool isDirectory = std::filesystem::is_directory(path, error);
  const std::string file = isDirectory ? pathIn(path, kYamlFile) : path;
  const std::string directory = isDirectory ? path : std::filesystem::path(path).parent_path().string();
  auto text = readFile(file);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(file, " does not exist; a data set is a directory with a ", kYamlFile));
  }
  FARHOP_RETURN_IF_ERROR(text.status());
  if (text->size() > kMaxYamlBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " is ", text->size(), " bytes long; at most ", kMaxYamlBytes, " are read"));
  }
  try {
    const YAML::Node root = YAML::Load(*text);
    return DatasetReader(directory, options).read(YamlReader(root, file));
  } catch (const YAML::Exception& problem) {
    const std::string line = problem.mark.is_null() ? "" : absl::StrCat(":", problem.mark.line + 1);
    return absl::InvalidArgumentError(absl::StrCat(file, line, ": ", problem.msg));
  }
}

}  // namespace farhop::partition
