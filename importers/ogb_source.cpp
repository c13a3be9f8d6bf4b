// OGB's raw layout, as its data sets are before they are processed: csv.gz or npz, of one node type or of several.
// https://ogb.stanford.edu/docs/nodeprop/, ogb/io/read_graph_raw.py
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "importers/array_view.h"
#include "importers/csv_directory.h"
#include "importers/delimited.h"
#include "importers/edge_list.h"
#include "importers/npz.h"
#include "importers/sources.h"
#include "importers/task_writer.h"
#include "partition/dataset.h"

namespace farhop::importers {
namespace {

namespace fs = std::filesystem;
using partition::kHomogeneousNodeType;
using partition::kHomogeneousRelation;

// Between the parts of a relation in names of directories and arrays.
constexpr absl::string_view kSeparator = "___";

// "author___writes___paper" with colons; nothing when it is of another form.
std::optional<EdgeListFile> parseTriplet(const std::string& text) {
  const size_t first = text.find(kSeparator.data());
  const size_t second = first == std::string::npos ? first : text.find(kSeparator.data(), first + kSeparator.size());
  if (second == std::string::npos) return std::nullopt;
  return EdgeListFile{"", text.substr(0, first), text.substr(first + kSeparator.size(), second - first - kSeparator.size()),
                      text.substr(second + kSeparator.size())};
}

std::string relationText(const EdgeListFile& file) {
  return absl::StrCat(file.sourceType, ":", file.relation, ":", file.destinationType);
}

class OgbImporter {
 public:
  OgbImporter(const std::string& directory, const ImportOptions& options, DatasetOutput* output)
      : directory_(directory), raw_(directory + "/raw"), options_(options), output_(*output),
        description_(output->description()), csv_(options, output) {}

  absl::Status run() {
    if (pathExists(raw_ + "/data.npz")) {
      FARHOP_RETURN_IF_ERROR(readNpz());
    } else if (pathExists(raw_ + "/edge_index_dict.npz")) {
      FARHOP_RETURN_IF_ERROR(readTypedNpz());
    } else if (!csv_.find(raw_, "triplet-type-list").empty()) {
      FARHOP_RETURN_IF_ERROR(readTypedCsv());
    } else if (!csv_.find(raw_, "edge").empty()) {
      FARHOP_RETURN_IF_ERROR(readCsv());
    } else {
      return absl::NotFoundError(absl::StrCat(raw_, " has no edges: no edge.csv.gz, triplet-type-list.csv.gz, data.npz or "
                                              "edge_index_dict.npz"));
    }
    FARHOP_RETURN_IF_ERROR(readSplits());
    return copyMapping();
  }

 private:
  absl::Status readCsv() {
    FARHOP_ASSIGN_OR_RETURN(counts_[kHomogeneousNodeType], csv_.single(raw_, "num-node-list"));
    EdgeListFile file{csv_.find(raw_, "edge"), kHomogeneousNodeType, kHomogeneousRelation, kHomogeneousNodeType};
    FARHOP_RETURN_IF_ERROR(readEdges({file}));
    FARHOP_RETURN_IF_ERROR(checkEdgeCount(raw_, 0));
    FARHOP_RETURN_IF_ERROR(addFeatures(raw_, "node", kHomogeneousNodeType, description_.nodes[0].count));
    if (!csv_.find(raw_, "species").empty()) {
      FARHOP_RETURN_IF_ERROR(csv_.addFeature(raw_, "species", {"node", kHomogeneousNodeType, "node_species", ""},
                                             description_.nodes[0].count));
    }
    FARHOP_RETURN_IF_ERROR(addFeatures(raw_, "edge", description_.edges[0].type, edgeCount(0)));
    FARHOP_ASSIGN_OR_RETURN(const std::optional<ArrayView> labels, csv_.numbers(raw_, "node-label"));
    if (labels) labels_.emplace(kHomogeneousNodeType, *labels);
    return absl::OkStatus();
  }

  absl::Status readTypedCsv() {
    FARHOP_ASSIGN_OR_RETURN(const auto nodes, csv_.text(raw_, "num-node-dict"));
    if (nodes.size() != 2 || nodes[0].size() != nodes[1].size()) {
      return absl::InvalidArgumentError(absl::StrCat(csv_.find(raw_, "num-node-dict"),
                                                     " must hold a line of node types and one of counts (one graph)"));
    }
    for (size_t i = 0; i < nodes[0].size(); ++i) {
      if (!parseNumber(nodes[1][i], &counts_[nodes[0][i]]) || counts_[nodes[0][i]] >> 48 != 0) {
        return absl::InvalidArgumentError(absl::StrCat(csv_.find(raw_, "num-node-dict"), ":2: '", shown(nodes[1][i]),
                                                       "' is no number of nodes"));
      }
    }
    FARHOP_ASSIGN_OR_RETURN(const auto triplets, csv_.text(raw_, "triplet-type-list"));
    std::vector<EdgeListFile> files;
    std::vector<std::string> directories;
    for (const std::vector<std::string>& triplet : triplets) {
      if (triplet.size() != 3) {
        return absl::InvalidArgumentError(absl::StrCat(csv_.find(raw_, "triplet-type-list"), ":", files.size() + 1,
                                                       ": a relation has three parts"));
      }
      directories.push_back(absl::StrCat(raw_, "/relations/", triplet[0], kSeparator, triplet[1], kSeparator, triplet[2]));
      files.push_back({csv_.find(directories.back(), "edge"), triplet[0], triplet[1], triplet[2]});
      if (files.back().path.empty()) return absl::NotFoundError(absl::StrCat(directories.back(), " has no edge.csv.gz"));
    }
    FARHOP_RETURN_IF_ERROR(readEdges(files));
    for (size_t r = 0; r < files.size(); ++r) {
      FARHOP_RETURN_IF_ERROR(checkEdgeCount(directories[r], r));
      FARHOP_RETURN_IF_ERROR(addFeatures(directories[r], "edge", description_.edges[r].type, edgeCount(r)));
    }
    for (const auto& [type, count] : counts_) {
      FARHOP_RETURN_IF_ERROR(addFeatures(absl::StrCat(raw_, "/node-feat/", type), "node", type, count));
      FARHOP_ASSIGN_OR_RETURN(const std::optional<ArrayView> labels,
                              csv_.numbers(absl::StrCat(raw_, "/node-label/", type), "node-label"));
      if (labels) labels_.emplace(type, *labels);
    }
    return absl::OkStatus();
  }

  absl::Status readEdges(const std::vector<EdgeListFile>& files) {
    EdgeListOptions how;
    how.delimiter = ',';
    how.comments = "";
    how.heading = Heading::kNo;
    how.ids = IdKind::kInteger;
    how.threads = options_.threads;
    for (const EdgeListFile& file : files) {
      for (const std::string& type : {file.sourceType, file.destinationType}) {
        const auto count = counts_.find(type);
        if (count == counts_.end()) {
          return absl::InvalidArgumentError(absl::StrCat(file.path, ": the number of '", type, "' nodes is not said"));
        }
        how.nodeCounts.insert(*count);
      }
    }
    FARHOP_RETURN_IF_ERROR(importEdgeLists(files, how, options_.progress, &output_));
    return addNodeTypes();
  }

  // Those that no relation names.
  absl::Status addNodeTypes() {
    for (const auto& [type, count] : counts_) {
      const bool known = std::any_of(description_.nodes.begin(), description_.nodes.end(),
                                     [name = type](const DatasetDescription::Nodes& nodes) { return nodes.type == name; });
      if (!known) description_.nodes.push_back({type, count, "", ""});
    }
    return absl::OkStatus();
  }

  uint64_t edgeCount(size_t relation) const {
    const auto ends = openNpy(output_.pathOf(description_.edges[relation].path));
    return ends.ok() ? ends->shape[1] : 0;
  }

  absl::Status checkEdgeCount(const std::string& directory, size_t relation) {
    if (csv_.find(directory, "num-edge-list").empty()) return absl::OkStatus();
    FARHOP_ASSIGN_OR_RETURN(const uint64_t said, csv_.single(directory, "num-edge-list"));
    if (said == edgeCount(relation)) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(csv_.find(directory, "edge"), " has ", edgeCount(relation), " edges, but ",
                                            csv_.find(directory, "num-edge-list"), " says ", said, "; copy it again"));
  }

  // Tables "node-feat" and "node_..." of a node type, or "edge-feat" and "edge_..." of a relation.
  absl::Status addFeatures(const std::string& directory, const std::string& domain, const std::string& type, uint64_t rows) {
    for (const std::string& stem : csv_.list(directory)) {
      const bool isMain = stem == domain + "-feat";
      if (!isMain && stem.rfind(domain + "_", 0) != 0) continue;
      FARHOP_RETURN_IF_ERROR(csv_.addFeature(directory, stem, {domain, type, isMain ? "feat" : stem, ""}, rows));
    }
    return absl::OkStatus();
  }

  absl::Status readNpz() {
    FARHOP_ASSIGN_OR_RETURN(const NpzFile data, NpzFile::open(raw_ + "/data.npz"));
    FARHOP_ASSIGN_OR_RETURN(const ArrayView counts, data.array("num_nodes_list", output_.pathOf(".")));
    FARHOP_ASSIGN_OR_RETURN(counts_[kHomogeneousNodeType], countOf(counts));
    FARHOP_RETURN_IF_ERROR(addNodeTypes());
    FARHOP_ASSIGN_OR_RETURN(const ArrayView edges, data.array("edge_index", output_.pathOf(".")));
    FARHOP_RETURN_IF_ERROR(addRelation({"", kHomogeneousNodeType, kHomogeneousRelation, kHomogeneousNodeType}, edges));
    for (const std::string& name : data.names()) {
      const bool ofNodes = name.rfind("node_", 0) == 0, ofEdges = name.rfind("edge_", 0) == 0 && name != "edge_index";
      if (!ofNodes && !ofEdges) continue;
      FARHOP_ASSIGN_OR_RETURN(const ArrayView array, data.array(name, output_.pathOf(".")));
      FARHOP_RETURN_IF_ERROR(addArray(ofNodes ? "node" : "edge", name,
                                      ofNodes ? kHomogeneousNodeType : description_.edges[0].type,
                                      ofNodes ? counts_[kHomogeneousNodeType] : edgeCount(0), array));
    }
    if (!pathExists(raw_ + "/node-label.npz")) return absl::OkStatus();
    FARHOP_ASSIGN_OR_RETURN(const NpzFile labels, NpzFile::open(raw_ + "/node-label.npz"));
    FARHOP_ASSIGN_OR_RETURN(ArrayView array, labels.array("node_label", output_.pathOf(".")));
    labels_.emplace(kHomogeneousNodeType, std::move(array));
    return absl::OkStatus();
  }

  absl::Status readTypedNpz() {
    FARHOP_ASSIGN_OR_RETURN(const NpzFile nodes, NpzFile::open(raw_ + "/num_nodes_dict.npz"));
    for (const std::string& type : nodes.names()) {
      FARHOP_ASSIGN_OR_RETURN(const ArrayView count, nodes.array(type, output_.pathOf(".")));
      FARHOP_ASSIGN_OR_RETURN(counts_[type], countOf(count));
    }
    FARHOP_RETURN_IF_ERROR(addNodeTypes());
    FARHOP_ASSIGN_OR_RETURN(const NpzFile edges, NpzFile::open(raw_ + "/edge_index_dict.npz"));
    std::map<std::string, size_t> relations;  // by the name that archives have
    for (const std::string& name : edges.names()) {
      const std::optional<EdgeListFile> triplet = parseTriplet(name);
      if (!triplet) return absl::InvalidArgumentError(absl::StrCat(raw_, "/edge_index_dict.npz: '", name, "' is no relation"));
      FARHOP_ASSIGN_OR_RETURN(const ArrayView array, edges.array(name, output_.pathOf(".")));
      relations[name] = description_.edges.size();
      FARHOP_RETURN_IF_ERROR(addRelation(*triplet, array));
    }
    std::error_code error;
    std::set<std::string> files;
    for (fs::directory_iterator it(raw_, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".npz") files.insert(it->path().stem().string());
    }
    for (const std::string& file : files) {
      const bool ofNodes = file.rfind("node_", 0) == 0, ofEdges = file.rfind("edge_", 0) == 0 && file != "edge_index_dict";
      const bool isLabel = file == "node-label";
      if (!ofNodes && !ofEdges && !isLabel) continue;
      FARHOP_ASSIGN_OR_RETURN(const NpzFile archive, NpzFile::open(absl::StrCat(raw_, "/", file, ".npz")));
      for (const std::string& name : archive.names()) {
        FARHOP_ASSIGN_OR_RETURN(ArrayView array, archive.array(name, output_.pathOf(".")));
        if (ofEdges ? relations.count(name) == 0 : counts_.count(name) == 0) {
          return absl::InvalidArgumentError(absl::StrCat(array.origin, " is of no known node type or relation"));
        }
        if (isLabel) {
          labels_.emplace(name, std::move(array));
        } else if (ofNodes) {
          FARHOP_RETURN_IF_ERROR(addArray("node", file, name, counts_[name], array));
        } else {
          FARHOP_RETURN_IF_ERROR(addArray("edge", file, description_.edges[relations[name]].type, edgeCount(relations[name]), array));
        }
      }
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<uint64_t> countOf(const ArrayView& array) {
    if (array.isInteger() && array.elements() == 1 && array.integerAt(0) >> 48 == 0) return array.integerAt(0);
    return absl::InvalidArgumentError(absl::StrCat(array.origin, " holds ", array.elements(),
                                                   " numbers of nodes; data sets of one graph are imported"));
  }

  absl::Status addRelation(const EdgeListFile& triplet, const ArrayView& edges) {
    for (const std::string& type : {triplet.sourceType, triplet.destinationType}) {
      if (counts_.count(type) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(edges.origin, ": there is no node type '", type, "'"));
      }
    }
    const std::string path = output_.newFile({"edges", triplet.sourceType, triplet.relation, triplet.destinationType});
    FARHOP_ASSIGN_OR_RETURN(EdgeFile file, EdgeFile::create(output_.pathOf(path)));
    FARHOP_RETURN_IF_ERROR(addEdges(edges, {counts_[triplet.sourceType], counts_[triplet.destinationType]}, {}, &file));
    description_.edges.push_back({relationText(triplet), path});
    return file.commit();
  }

  absl::Status addArray(const std::string& domain, const std::string& name, const std::string& type, uint64_t rows,
                        const ArrayView& array) {
    if (array.shape.empty() || array.rows() != rows) {
      return absl::InvalidArgumentError(absl::StrCat(array.origin, " has shape ", array.shapeText(), ", but ", type, " has ",
                                                     rows, " ", domain, "s"));
    }
    const std::string feature = name == domain + "_feat" ? "feat" : name;
    const std::string path = output_.newFile({domain, type, feature});
    description_.features.push_back({domain, type, feature, path});
    return saveArray(array, output_.pathOf(path));
  }

  absl::Status readSplits() {
    std::set<std::string> schemes;
    std::error_code error;
    for (fs::directory_iterator it(directory_ + "/split", error), end; !error && it != end; it.increment(error)) {
      if (it->is_directory()) schemes.insert(it->path().filename().string());
    }
    for (const std::string& scheme : schemes) {
      TaskWriter task(scheme, &output_);
      for (const DatasetDescription::Nodes& nodes : description_.nodes) {
        const bool homogeneous = nodes.type == kHomogeneousNodeType;
        const std::string where = absl::StrCat(directory_, "/split/", scheme, homogeneous ? "" : "/" + nodes.type);
        FARHOP_RETURN_IF_ERROR(readNodeSplit(where, nodes, &task));
      }
      FARHOP_RETURN_IF_ERROR(task.finish());
    }
    return absl::OkStatus();
  }

  absl::Status readNodeSplit(const std::string& where, const DatasetDescription::Nodes& nodes, TaskWriter* task) {
    const std::pair<const char*, const char*> splits[] = {{"train", "train"}, {"valid", "validation"}, {"test", "test"}};
    for (const auto& [stem, split] : splits) {
      FARHOP_ASSIGN_OR_RETURN(const std::optional<ArrayView> seeds, csv_.numbers(where, stem));
      if (!seeds) continue;
      const auto labels = labels_.find(nodes.type);
      FARHOP_RETURN_IF_ERROR(task->addNodes(split, nodes, *seeds,
                                            labels == labels_.end() ? std::nullopt : std::make_optional(labels->second)));
    }
    return absl::OkStatus();
  }

  // What says which thing of the world a node is: kept as it is.
  absl::Status copyMapping() {
    const std::string from = directory_ + "/mapping";
    std::error_code error;
    if (!fs::is_directory(from, error)) return absl::OkStatus();
    fs::copy(from, output_.pathOf("mapping"), fs::copy_options::recursive, error);
    return error ? errnoStatus(absl::StrCat("copying ", from), error.value()) : absl::OkStatus();
  }

  const std::string directory_;
  const std::string raw_;
  const ImportOptions& options_;
  DatasetOutput& output_;
  DatasetDescription& description_;
  CsvDirectory csv_;
  std::map<std::string, uint64_t> counts_;     // by node type
  std::map<std::string, ArrayView> labels_;    // by node type, a row per node
};

}  // namespace

absl::Status importOgb(const std::string& directory, const ImportOptions& options, DatasetOutput* output) {
  return OgbImporter(directory, options, output).run();
}

}  // namespace farhop::importers
