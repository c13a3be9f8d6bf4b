// GraphBolt's OnDiskDataset: the raw form (graph: nodes and edges) and the preprocessed one (graph_topology).
// https://www.dgl.ai/dgl_docs/stochastic_training/ondisk-dataset-specification.html
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "importers/array_view.h"
#include "importers/edge_list.h"
#include "importers/fused_graph.h"
#include "importers/scatter_npy.h"
#include "importers/sources.h"
#include "importers/torch_file.h"
#include "partition/dataset.h"
#include "partition/yaml_reader.h"

namespace farhop::importers {
namespace {

namespace fs = std::filesystem;
using partition::YamlReader;

constexpr size_t kMaxYamlBytes = size_t{16} << 20;
// The edge attribute that says which edge of the raw data set an edge was.
constexpr char kOriginalEdge[] = "_ORIGINAL_EDGE_ID";

std::string homogeneousRelation() {
  return absl::StrCat(partition::kHomogeneousNodeType, ":", partition::kHomogeneousRelation, ":", partition::kHomogeneousNodeType);
}

absl::StatusOr<EdgeListFile> splitType(const YamlReader& where, const std::string& text) {
  const size_t first = text.find(':'), second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos) return where.error(absl::StrCat("edge type '", text, "' is not of the form source:relation:destination"));
  return EdgeListFile{"", text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

class GraphBoltImporter {
 public:
  GraphBoltImporter(std::string directory, const ImportOptions& options, DatasetOutput* output)
      : directory_(std::move(directory)), options_(options), output_(*output), description_(output->description()) {}

  absl::Status run(const YamlReader& root) {
    FARHOP_ASSIGN_OR_RETURN(const std::string name, root.textOr("dataset_name", description_.name));
    if (options_.name.empty()) description_.name = name;
    const YamlReader graph = root.optional("graph");
    if (graph.isMap()) {
      FARHOP_RETURN_IF_ERROR(readRawGraph(graph));
    } else if (root.has("graph_topology")) {
      FARHOP_RETURN_IF_ERROR(readTopology(root.optional("graph_topology")));
    } else {
      return root.error("there is neither 'graph' nor 'graph_topology'");
    }
    FARHOP_RETURN_IF_ERROR(root.each("feature_data", [&](const YamlReader& entry) { return addFeature(entry); }));
    if (graph.isMap()) {
      FARHOP_RETURN_IF_ERROR(graph.each("feature_data", [&](const YamlReader& entry) { return addFeature(entry); }));
    }
    return root.each("tasks", [&](const YamlReader& entry) { return addTask(entry); });
  }

 private:
  std::string pathIn(const std::string& path) const { return (fs::path(directory_) / path).string(); }

  absl::StatusOr<ArrayView> openArray(const YamlReader& entry) const {
    FARHOP_ASSIGN_OR_RETURN(const std::string format, entry.text("format"));
    FARHOP_ASSIGN_OR_RETURN(const std::string path, entry.text("path"));
    if (format == "torch") return openTensor(pathIn(path));
    if (format == "numpy") return openNpy(pathIn(path));
    return entry.error(absl::StrCat("format '", format, "' is neither numpy nor torch"));
  }

  absl::Status readRawGraph(const YamlReader& graph) {
    std::vector<DatasetDescription::Nodes> nodes;
    FARHOP_RETURN_IF_ERROR(graph.each("nodes", [&](const YamlReader& entry) -> absl::Status {
      DatasetDescription::Nodes type;
      FARHOP_ASSIGN_OR_RETURN(type.type, entry.textOr("type", partition::kHomogeneousNodeType));
      FARHOP_ASSIGN_OR_RETURN(type.count, entry.count("num"));
      nodes.push_back(std::move(type));
      return absl::OkStatus();
    }));
    EdgeListOptions how;
    how.ids = IdKind::kInteger;
    how.allowEmpty = true;
    how.threads = options_.threads;
    std::vector<EdgeListFile> files;
    FARHOP_RETURN_IF_ERROR(graph.each("edges", [&](const YamlReader& entry) -> absl::Status {
      FARHOP_ASSIGN_OR_RETURN(const std::string type, entry.textOr("type", homogeneousRelation()));
      FARHOP_ASSIGN_OR_RETURN(EdgeListFile file, splitType(entry, type));
      FARHOP_ASSIGN_OR_RETURN(const std::string path, entry.text("path"));
      FARHOP_ASSIGN_OR_RETURN(const std::string format, entry.text("format"));
      if (format != "csv" && format != "numpy") return entry.error(absl::StrCat("format '", format, "' is neither csv nor numpy"));
      file.path = pathIn(path);
      for (const std::string& end : {file.sourceType, file.destinationType}) {
        const auto known = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return node.type == end; });
        if (known == nodes.end()) return entry.error(absl::StrCat("edges are between nodes of an unknown type '", end, "'"));
        how.nodeCounts[end] = known->count;
      }
      files.push_back(std::move(file));
      return absl::OkStatus();
    }));
    if (files.empty()) return graph.error("'edges' lists no relation");
    FARHOP_RETURN_IF_ERROR(importEdgeLists(files, how, options_.progress, &output_));
    description_.nodes = std::move(nodes);
    return absl::OkStatus();
  }

  absl::Status readTopology(const YamlReader& topology) {
    FARHOP_ASSIGN_OR_RETURN(const std::string path, topology.text("path"));
    FARHOP_ASSIGN_OR_RETURN(FusedGraph fused, openFusedGraph(pathIn(path)));
    if (fused.nodeTypes.empty()) {
      fused.nodeTypes = {partition::kHomogeneousNodeType};
      fused.typeOffsets = {0, fused.graph.numNodes};
    }
    if (fused.edgeTypes.empty()) fused.edgeTypes = {homogeneousRelation()};
    for (size_t t = 0; t < fused.nodeTypes.size(); ++t) {
      description_.nodes.push_back({fused.nodeTypes[t], fused.typeOffsets[t + 1] - fused.typeOffsets[t], "", ""});
    }
    return addFusedEdges(topology, fused);
  }

  // The rows of a relation's arrays: original edge ids where the file has them, else counted up in its order.
  absl::Status addFusedEdges(const YamlReader& where, const FusedGraph& fused) {
    const DglGraph& graph = fused.graph;
    const size_t types = fused.edgeTypes.size();
    const auto typeOf = [&](uint64_t edge) { return fused.typePerEdge.shape.empty() ? 0 : fused.typePerEdge.integerAt(edge); };
    std::vector<uint64_t> counts(types);
    for (uint64_t e = 0; e < graph.first.rows(); ++e) {
      if (typeOf(e) >= types) return where.error(absl::StrCat("edge ", e, " is of an unknown type"));
      ++counts[typeOf(e)];
    }
    const auto original = graph.edges.find(kOriginalEdge);
    knowsEdges_ = original != graph.edges.end();
    if (knowsEdges_ && original->second.shape != graph.first.shape) return where.error("original edge ids do not fit the edges");
    std::vector<ScatterNpy> pairs;
    std::vector<uint64_t> from(types), to(types);  // numbers of node types
    for (size_t r = 0; r < types; ++r) {
      FARHOP_ASSIGN_OR_RETURN(const EdgeListFile parts, splitType(where, fused.edgeTypes[r]));
      const auto source = std::find(fused.nodeTypes.begin(), fused.nodeTypes.end(), parts.sourceType);
      const auto destination = std::find(fused.nodeTypes.begin(), fused.nodeTypes.end(), parts.destinationType);
      if (source == fused.nodeTypes.end() || destination == fused.nodeTypes.end()) {
        return where.error(absl::StrCat("edges of ", fused.edgeTypes[r], " are between nodes of an unknown type"));
      }
      from[r] = static_cast<uint64_t>(source - fused.nodeTypes.begin());
      to[r] = static_cast<uint64_t>(destination - fused.nodeTypes.begin());
      const std::string path = output_.newFile({"edges", parts.sourceType, parts.relation, parts.destinationType});
      FARHOP_ASSIGN_OR_RETURN(ScatterNpy npy, ScatterNpy::createPairs(output_.pathOf(path), counts[r], graph.numNodes));
      pairs.push_back(std::move(npy));
      description_.edges.push_back({fused.edgeTypes[r], path});
    }
    std::vector<uint64_t> next(types);
    const auto rowOf = [&](uint64_t edge, uint64_t r) { return knowsEdges_ ? original->second.integerAt(edge) : next[r]++; };
    FARHOP_RETURN_IF_ERROR(graph.eachEdge([&](uint64_t source, uint64_t destination, uint64_t edge) -> absl::Status {
      const uint64_t r = typeOf(edge);
      const uint64_t s = source - fused.typeOffsets[from[r]], d = destination - fused.typeOffsets[to[r]];
      if (s >= description_.nodes[from[r]].count || d >= description_.nodes[to[r]].count) {
        return absl::OutOfRangeError(absl::StrCat(graph.first.origin, ": edge ", edge, " is not between nodes of its types"));
      }
      return pairs[r].putPair(rowOf(edge, r), s, d, graph.first.origin);
    }));
    for (size_t r = 0; r < types; ++r) FARHOP_RETURN_IF_ERROR(pairs[r].finish(fused.edgeTypes[r]));
    // Attributes lie in the order of the edges over all relations.
    for (const auto& [name, values] : graph.edges) {
      if (name == kOriginalEdge || values.shape.empty() || values.rows() != graph.first.rows()) continue;
      FARHOP_RETURN_IF_ERROR(addFusedAttribute(fused, name, values, counts, typeOf, rowOf, &next));
    }
    return absl::OkStatus();
  }

  template <typename TypeOf, typename RowOf>
  absl::Status addFusedAttribute(const FusedGraph& fused, const std::string& name, const ArrayView& values,
                                 const std::vector<uint64_t>& counts, const TypeOf& typeOf, const RowOf& rowOf,
                                 std::vector<uint64_t>* next) {
    std::vector<ScatterNpy> files;
    for (size_t r = 0; r < counts.size(); ++r) {
      const std::string path = output_.newFile({"edge", fused.edgeTypes[r], name});
      FARHOP_ASSIGN_OR_RETURN(ScatterNpy npy, ScatterNpy::create(output_.pathOf(path), values.dtype,
                                                                 {values.shape.begin() + 1, values.shape.end()}, counts[r]));
      files.push_back(std::move(npy));
      description_.features.push_back({"edge", fused.edgeTypes[r], name, path});
    }
    next->assign(counts.size(), 0);
    for (uint64_t e = 0; e < values.rows(); ++e) {
      const uint64_t r = typeOf(e);
      FARHOP_ASSIGN_OR_RETURN(std::byte * to, files[r].row(rowOf(e, r), values.origin));
      values.copyRow(e, to);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> rowsOf(const YamlReader& entry, const std::string& domain, const std::string& type) const {
    for (const DatasetDescription::Nodes& nodes : description_.nodes) {
      if (domain == "node" && nodes.type == type) return nodes.count;
    }
    for (const DatasetDescription::Edges& edges : description_.edges) {
      if (domain != "edge" || edges.type != type) continue;
      FARHOP_ASSIGN_OR_RETURN(const ArrayView ends, openNpy(output_.pathOf(edges.path)));
      return ends.shape[1];
    }
    return entry.error(absl::StrCat("there is no ", domain, " type '", type, "'"));
  }

  absl::Status addFeature(const YamlReader& entry) {
    DatasetDescription::Feature feature;
    FARHOP_ASSIGN_OR_RETURN(feature.domain, entry.text("domain"));
    FARHOP_ASSIGN_OR_RETURN(feature.name, entry.text("name"));
    if (feature.domain != "node" && feature.domain != "edge" && feature.domain != "graph") {
      return entry.error(absl::StrCat("domain '", feature.domain, "' is none of node, edge and graph"));
    }
    const std::string only = feature.domain == "node"   ? description_.nodes.size() == 1 ? description_.nodes[0].type : ""
                             : feature.domain == "edge" ? description_.edges.size() == 1 ? description_.edges[0].type : ""
                                                        : "";
    FARHOP_ASSIGN_OR_RETURN(feature.type, entry.textOr("type", only));
    for (const DatasetDescription::Feature& known : description_.features) {
      // Attributes of the graph may be listed among the features, too.
      if (known.domain == feature.domain && known.type == feature.type && known.name == feature.name) return absl::OkStatus();
    }
    FARHOP_ASSIGN_OR_RETURN(const ArrayView array, openArray(entry));
    if (feature.domain != "graph") {
      FARHOP_ASSIGN_OR_RETURN(const uint64_t rows, rowsOf(entry, feature.domain, feature.type));
      if (array.shape.empty() || array.rows() != rows) {
        return absl::InvalidArgumentError(absl::StrCat(array.origin, " has shape ", array.shapeText(), ", but ", feature.type,
                                                       " has ", rows, " ", feature.domain, "s"));
      }
      if (feature.domain == "edge" && !knowsEdges_) {
        return entry.error("edge features need the graph's edge attribute _ORIGINAL_EDGE_ID, which it was preprocessed "
                           "without; import the raw data set, or preprocess with include_original_edge_id");
      }
    }
    feature.path = output_.newFile({feature.domain, feature.type, feature.name});
    FARHOP_RETURN_IF_ERROR(saveArray(array, output_.pathOf(feature.path)));
    description_.features.push_back(std::move(feature));
    return absl::OkStatus();
  }

  absl::Status addTask(const YamlReader& entry) {
    DatasetDescription::Task task;
    FARHOP_ASSIGN_OR_RETURN(task.name, entry.textOr("name", ""));
    if (entry.has("num_classes")) {
      FARHOP_ASSIGN_OR_RETURN(task.numClasses, entry.count("num_classes"));
    }
    for (const std::string split : {"train", "validation", "test"}) {
      const std::string key = split + "_set";
      FARHOP_RETURN_IF_ERROR(entry.each(key.c_str(), [&](const YamlReader& set) { return addSet(set, split, &task); }));
    }
    description_.tasks.push_back(std::move(task));
    return absl::OkStatus();
  }

  absl::Status addSet(const YamlReader& set, const std::string& split, DatasetDescription::Task* task) {
    DatasetDescription::Set added;
    added.split = split;
    FARHOP_ASSIGN_OR_RETURN(added.type, set.textOr("type", ""));
    const auto addData = [&](const YamlReader& data) -> absl::Status {
      DatasetDescription::SetData item;
      FARHOP_ASSIGN_OR_RETURN(item.name, data.textOr("name", "seeds"));
      FARHOP_ASSIGN_OR_RETURN(const ArrayView array, openArray(data));
      item.path = output_.newFile({task->name.empty() ? "task" : task->name, split, added.type.empty() ? "all" : added.type, item.name});
      FARHOP_RETURN_IF_ERROR(saveArray(array, output_.pathOf(item.path)));
      added.data.push_back(std::move(item));
      return absl::OkStatus();
    };
    FARHOP_RETURN_IF_ERROR(set.each("data", addData));
    task->sets.push_back(std::move(added));
    return absl::OkStatus();
  }

  const std::string directory_;
  const ImportOptions& options_;
  DatasetOutput& output_;
  DatasetDescription& description_;
  bool knowsEdges_ = true;  // which edge of the raw data set each is
};

}  // namespace

absl::Status importGraphBolt(const std::string& source, const ImportOptions& options, DatasetOutput* output) {
  std::error_code error;
  std::string file = source;
  if (fs::is_directory(source, error)) {
    file = (fs::path(source) / kMetadataFile).string();
    if (!pathExists(file)) file = (fs::path(source) / "preprocessed" / kMetadataFile).string();
  }
  FARHOP_ASSIGN_OR_RETURN(const std::string text, readFile(file));
  if (text.size() > kMaxYamlBytes) return absl::InvalidArgumentError(absl::StrCat(file, " is too long for a metadata.yaml"));
  try {
    return GraphBoltImporter(fs::path(file).parent_path().string(), options, output).run(YamlReader(YAML::Load(text), file));
  } catch (const YAML::Exception& problem) {
    const std::string line = problem.mark.is_null() ? "" : absl::StrCat(":", problem.mark.line + 1);
    return absl::InvalidArgumentError(absl::StrCat(file, line, ": ", problem.msg));
  }
}

}  // namespace farhop::importers
