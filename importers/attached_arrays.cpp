#include "importers/attached_arrays.h"

#include <algorithm>
#include <map>

#include "importers/array_view.h"
#include "importers/task_writer.h"

namespace farhop::importers {
namespace {

class Attacher {
 public:
  Attacher(const ImportOptions& options, DatasetOutput* output)
      : options_(options), output_(*output), description_(output->description()) {}

  absl::Status run() {
    for (const AttachedArray& array : options_.nodeFeatures) FARHOP_RETURN_IF_ERROR(addNodeFeature(array));
    for (const AttachedArray& array : options_.edgeFeatures) FARHOP_RETURN_IF_ERROR(addEdgeFeature(array));
    return addTask();
  }

 private:
  absl::StatusOr<DatasetDescription::Nodes*> nodesOf(const AttachedArray& array) {
    if (array.type.empty() && description_.nodes.size() == 1) return &description_.nodes[0];
    std::string known;
    for (DatasetDescription::Nodes& nodes : description_.nodes) {
      if (nodes.type == array.type) return &nodes;
      absl::StrAppend(&known, known.empty() ? "" : ", ", nodes.type);
    }
    return absl::InvalidArgumentError(absl::StrCat(array.path, ": no node type is called '", array.type, "'; there are: ", known));
  }

  absl::Status addNodeFeature(const AttachedArray& array) {
    FARHOP_ASSIGN_OR_RETURN(DatasetDescription::Nodes * nodes, nodesOf(array));
    FARHOP_ASSIGN_OR_RETURN(const ArrayView view, openNpy(array.path));
    const bool said = options_.edges.nodeCounts.count(nodes->type) > 0 || !nodes->dictionaryPath.empty();
    if (!view.shape.empty() && view.rows() > nodes->count && !said) nodes->count = view.rows();
    return addFeature(array, view, "node", nodes->type, nodes->count);
  }

  absl::Status addEdgeFeature(const AttachedArray& array) {
    std::string known;
    for (const DatasetDescription::Edges& edges : description_.edges) {
      const bool named = edges.type == array.type || absl::StrCat(":", array.type, ":") ==
                                                         edges.type.substr(edges.type.find(':'), array.type.size() + 2);
      absl::StrAppend(&known, known.empty() ? "" : ", ", edges.type);
      if (!named && !(array.type.empty() && description_.edges.size() == 1)) continue;
      FARHOP_ASSIGN_OR_RETURN(const ArrayView view, openNpy(array.path));
      FARHOP_ASSIGN_OR_RETURN(const ArrayView ends, openNpy(output_.pathOf(edges.path)));
      return addFeature(array, view, "edge", edges.type, ends.shape[1]);
    }
    return absl::InvalidArgumentError(absl::StrCat(array.path, ": no relation is called '", array.type, "'; there are: ", known));
  }

  absl::Status addFeature(const AttachedArray& array, const ArrayView& view, const std::string& domain,
                          const std::string& type, uint64_t count) {
    if (view.shape.empty() || view.rows() != count) {
      return absl::InvalidArgumentError(absl::StrCat(array.path, " has shape ", view.shapeText(), ", but ", type, " has ",
                                                     count, " ", domain, "s; a feature has one row for each"));
    }
    const std::string path = output_.newFile({domain, type, array.name});
    description_.features.push_back({domain, type, array.name, path});
    return saveArray(view, output_.pathOf(path));
  }

  absl::Status addTask() {
    if (options_.seeds.empty()) {
      if (!options_.labels) return absl::OkStatus();
      AttachedArray feature = *options_.labels;
      feature.name = "label";
      return addNodeFeature(feature);
    }
    TaskWriter task("node_classification", &output_);
    for (const AttachedArray& seeds : options_.seeds) {
      FARHOP_ASSIGN_OR_RETURN(const DatasetDescription::Nodes* nodes, nodesOf(seeds));
      FARHOP_ASSIGN_OR_RETURN(const ArrayView ids, openNpy(seeds.path));
      std::optional<ArrayView> labels;
      if (options_.labels) {
        FARHOP_ASSIGN_OR_RETURN(const DatasetDescription::Nodes* labelled, nodesOf(*options_.labels));
        if (labelled->type == nodes->type) {
          FARHOP_ASSIGN_OR_RETURN(labels, openNpy(options_.labels->path));
        }
      }
      FARHOP_RETURN_IF_ERROR(task.addNodes(seeds.name, *nodes, ids, labels));
    }
    return task.finish();
  }

  const ImportOptions& options_;
  DatasetOutput& output_;
  DatasetDescription& description_;
};

}  // namespace

absl::Status attachArrays(const ImportOptions& options, DatasetOutput* output) { return Attacher(options, output).run(); }

}  // namespace farhop::importers
