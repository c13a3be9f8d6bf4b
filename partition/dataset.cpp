#include "partition/dataset.h"

#include <algorithm>
#include <set>

#include "partition/layout.h"
#include "partition/sampling_features.h"

namespace farhop::partition {
namespace {

absl::Status checkFeatures(absl::string_view whose, uint64_t count, const std::vector<FeatureSpec>& specs,
                           const std::vector<FeatureColumn>& columns) {
  if (specs.size() != columns.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(whose, " describes ", specs.size(), " features and has ", columns.size()));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < specs.size(); ++i) {
    FARHOP_RETURN_IF_ERROR(checkName(absl::StrCat("a feature of ", whose), specs[i].name));
    if (!names.insert(specs[i].name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(columns[i].origin, ": ", whose, " has two features '", specs[i].name, "'"));
    }
    if (columns[i].rows != count) {
      return absl::InvalidArgumentError(absl::StrCat(columns[i].origin, ": feature '", specs[i].name,
                                                     "' has ", columns[i].rows, " rows, but ", whose, " has ",
                                                     count));
    }
  }
  return absl::OkStatus();
}

absl::Status checkEndpoints(const Dataset& dataset, int relation, const IdColumn& column,
                            const NodeType& type, absl::string_view end) {
  for (uint64_t edge = 0; edge < column.size(); ++edge) {
    if (column[edge] < type.count) continue;
    return absl::OutOfRangeError(absl::StrCat(
        dataset.edges[relation].origin, ": the ", end, " of edge ", edge, " of ",
        dataset.schema.relationText(relation), " is ", column.text(edge), ", but type '", type.name, "' has ",
        type.count, " nodes (0 to ", static_cast<int64_t>(type.count) - 1, ")"));
  }
  return absl::OkStatus();
}

absl::Status checkNodeTypes(const Dataset& dataset) {
  const Schema& schema = dataset.schema;
  if (schema.nodeTypes.empty()) return absl::InvalidArgumentError("the data set has no node type");
  if (dataset.nodeFeatures.size() != schema.nodeTypes.size()) {
    return absl::InvalidArgumentError("node features are not given for every node type");
  }
  std::set<std::string> names;
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
    const NodeType& type = schema.nodeTypes[t];
    FARHOP_RETURN_IF_ERROR(checkName("a node type", type.name));
    if (!names.insert(type.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two node types are called '", type.name, "'"));
    }
    FARHOP_RETURN_IF_ERROR(checkFeatures(absl::StrCat("node type '", type.name, "'"), type.count,
                                         type.features, dataset.nodeFeatures[t]));
  }
  return absl::OkStatus();
}

absl::Status checkRelations(const Dataset& dataset) {
  const Schema& schema = dataset.schema;
  if (dataset.edges.size() != schema.relations.size() ||
      dataset.edgeFeatures.size() != schema.relations.size()) {
    return absl::InvalidArgumentError("edges and edge features are not given for every relation");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < schema.relations.size(); ++i) {
    const int r = static_cast<int>(i);
    const Relation& relation = schema.relations[i];
    FARHOP_RETURN_IF_ERROR(checkName("a relation", relation.name));
    const int types = static_cast<int>(schema.nodeTypes.size());
    if (relation.source < 0 || relation.source >= types || relation.destination < 0 ||
        relation.destination >= types) {
      return absl::InvalidArgumentError(
          absl::StrCat("relation '", relation.name, "' is between unknown node types"));
    }
    const std::string text = schema.relationText(r);
    if (!names.insert(text).second) {
      return absl::InvalidArgumentError(absl::StrCat("two relations are called ", text));
    }
    const EdgeList& edges = dataset.edges[i];
    if (edges.source.size() != relation.count || edges.destination.size() != relation.count) {
      return absl::InvalidArgumentError(absl::StrCat(edges.origin, ": ", text, " has ", edges.source.size(),
                                                     " sources, ", edges.destination.size(),
                                                     " destinations and a count of ", relation.count));
    }
    FARHOP_RETURN_IF_ERROR(
        checkEndpoints(dataset, r, edges.source, schema.nodeTypes[relation.source], "source"));
    FARHOP_RETURN_IF_ERROR(
        checkEndpoints(dataset, r, edges.destination, schema.nodeTypes[relation.destination], "destination"));
    FARHOP_RETURN_IF_ERROR(checkFeatures(text, relation.count, relation.features, dataset.edgeFeatures[i]));
  }
  return absl::OkStatus();
}

absl::Status checkSplits(const Dataset& dataset) {
  std::set<std::pair<std::string, int>> seen;
  for (const SplitSeeds& split : dataset.splits) {
    FARHOP_RETURN_IF_ERROR(checkName("a split", split.name));
    if (split.nodeType < 0 || static_cast<size_t>(split.nodeType) >= dataset.schema.nodeTypes.size()) {
      return absl::InvalidArgumentError(absl::StrCat("split '", split.name, "' is of no known node type"));
    }
    const NodeType& type = dataset.schema.nodeTypes[split.nodeType];
    if (!seen.insert({split.name, split.nodeType}).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("split '", split.name, "' of '", type.name, "' is given twice"));
    }
    if (!std::is_sorted(split.ids.begin(), split.ids.end())) {
      return absl::InvalidArgumentError(absl::StrCat("split '", split.name, "' is not ascending"));
    }
    if (!split.ids.empty() && split.ids.back() >= type.count) {
      return absl::OutOfRangeError(absl::StrCat("split '", split.name, "' has seed ", split.ids.back(),
                                                ", but type '", type.name, "' has ", type.count, " nodes"));
    }
  }
  return absl::OkStatus();
}

absl::Status checkEdgeSplits(const Dataset& dataset) {
  const Schema& schema = dataset.schema;
  std::set<std::pair<std::string, int>> seen;
  for (const EdgeSplitSeeds& split : dataset.edgeSplits) {
    FARHOP_RETURN_IF_ERROR(checkName("a split", split.name));
    if (split.relation < 0 || static_cast<size_t>(split.relation) >= schema.relations.size()) {
      return absl::InvalidArgumentError(absl::StrCat("split '", split.name, "' is of no known relation"));
    }
    const std::string text = schema.relationText(split.relation);
    if (!seen.insert({split.name, split.relation}).second) {
      return absl::InvalidArgumentError(absl::StrCat("split '", split.name, "' of ", text, " is given twice"));
    }
    if (split.source.size() != split.destination.size() ||
        (split.labelSpec && split.labels.rows != split.source.size())) {
      return absl::InvalidArgumentError(absl::StrCat("split '", split.name, "' of ", text,
                                                     " has sources, destinations or labels for some seeds only"));
    }
    FARHOP_RETURN_IF_ERROR(checkSeedEnds(schema, split.relation, split.source, split.destination, split.origin));
    if (split.labelSpec) FARHOP_RETURN_IF_ERROR(checkName("the labels", split.labelSpec->name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status checkSeedEnds(const Schema& schema, int relation, const IdColumn& source, const IdColumn& destination,
                           const std::string& origin) {
  const NodeType& from = schema.nodeTypes[schema.relations[relation].source];
  const NodeType& to = schema.nodeTypes[schema.relations[relation].destination];
  for (uint64_t i = 0; i < source.size(); ++i) {
    const bool badSource = source[i] >= from.count;
    if (!badSource && destination[i] < to.count) continue;
    const NodeType& type = badSource ? from : to;
    return absl::OutOfRangeError(absl::StrCat(origin, ": the ", badSource ? "source" : "destination", " of seed ", i,
                                              " is ", (badSource ? source : destination).text(i), ", but type '",
                                              type.name, "' has ", type.count, " nodes"));
  }
  return absl::OkStatus();
}

absl::Status checkDataset(const Dataset& dataset) {
  FARHOP_RETURN_IF_ERROR(checkNodeTypes(dataset));
  FARHOP_RETURN_IF_ERROR(checkRelations(dataset));
  FARHOP_RETURN_IF_ERROR(checkSamplingFeatures(dataset));
  FARHOP_RETURN_IF_ERROR(checkSplits(dataset));
  return checkEdgeSplits(dataset);
}

}  // namespace farhop::partition
