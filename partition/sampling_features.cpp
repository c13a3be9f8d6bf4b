#include "partition/sampling_features.h"

#include <algorithm>
#include <cmath>

#include "partition/feature_values.h"

namespace farhop::partition {
namespace {

constexpr size_t kMaxListedFeatures = 50;

// Index of a feature; features.size() when there is none.
size_t featureIndex(const std::vector<FeatureSpec>& features, const std::string& name) {
  size_t index = 0;
  while (index < features.size() && features[index].name != name) ++index;
  return index;
}

std::string listFeatures(const Schema& schema, bool ofEdges) {
  std::string list;
  size_t listed = 0;
  const auto add = [&](const std::string& owner, const std::vector<FeatureSpec>& features) {
    for (const FeatureSpec& feature : features) {
      if (listed++ >= kMaxListedFeatures) return;
      absl::StrAppend(&list, list.empty() ? "" : ", ", "'", feature.name, "' of ", owner);
    }
  };
  if (ofEdges) {
    for (size_t r = 0; r < schema.relations.size(); ++r) {
      add(schema.relationText(static_cast<int>(r)), schema.relations[r].features);
    }
  } else {
    for (const NodeType& type : schema.nodeTypes) add(type.name, type.features);
  }
  if (listed > kMaxListedFeatures) absl::StrAppend(&list, ", ...");
  return list.empty() ? "none" : list;
}

absl::Status checkTimeValues(const FeatureSpec& spec, const FeatureColumn& column) {
  FARHOP_RETURN_IF_ERROR(checkTimeFeature(spec, column.origin));
  if (spec.dtype != DType::kUInt64) return absl::OkStatus();  // every other integer fits int64
  for (uint64_t row = 0; row < column.rows; ++row) {
    const int64_t time = integerAt(spec.dtype, column.data, row);
    if (time >= 0) continue;
    return absl::OutOfRangeError(absl::StrCat(column.origin, ": time ", static_cast<uint64_t>(time), " of '",
                                              spec.name, "' in row ", row, " does not fit int64"));
  }
  return absl::OkStatus();
}

absl::Status checkWeightValues(const Dataset& dataset, int relation, const FeatureSpec& spec,
                               const FeatureColumn& column) {
  FARHOP_RETURN_IF_ERROR(checkWeightFeature(spec, column.origin));
  for (uint64_t edge = 0; edge < column.rows; ++edge) {
    const double weight = numberAt(spec.dtype, column.data, edge);
    const bool isWeight = weight >= 0 && !std::isinf(weight);
    if (isWeight && !std::isinf(storedWeight(weight))) continue;
    const EdgeList& edges = dataset.edges[relation];
    return absl::InvalidArgumentError(absl::StrCat(
        column.origin, ": weight ", weight, " in row ", edge, " (edge ", edge, " of ",
        dataset.schema.relationText(relation), ", ", edges.source.text(edge), " -> ", edges.destination.text(edge),
        "); ",
        isWeight ? "weights are kept as float32, which it exceeds: scale them down"
                 : "weights must be finite and not negative: correct it or leave out the edge"));
  }
  return absl::OkStatus();
}

absl::Status notFound(absl::string_view owner, const std::string& name, const Schema& schema, bool ofEdges) {
  return absl::NotFoundError(
      absl::StrCat("no ", owner, " '", name, "'; there are: ", listFeatures(schema, ofEdges)));
}

}  // namespace

absl::Status declareSamplingFeatures(const SamplingFeatureNames& names, Dataset* dataset) {
  Schema& schema = dataset->schema;
  const std::string& nodeTimes = names.nodeTimes.empty() ? names.times : names.nodeTimes;
  bool timed = false, nodesTimed = false, weighted = false;
  const auto has = [](const std::vector<FeatureSpec>& features, const std::string& name) {
    return !name.empty() && findFeature(features, name) != nullptr;
  };
  for (Relation& relation : schema.relations) {
    if (has(relation.features, names.times)) relation.timeFeature = names.times, timed = true;
    if (has(relation.features, names.weights)) relation.weightFeature = names.weights, weighted = true;
  }
  for (NodeType& type : schema.nodeTypes) {
    if (has(type.features, nodeTimes)) type.timeFeature = nodeTimes, nodesTimed = true;
  }
  const bool timesMayBeOfNodes = names.nodeTimes.empty() && nodesTimed;
  if (!names.times.empty() && !timed && !timesMayBeOfNodes) {
    return notFound("relation has a time feature", names.times, schema, true);
  }
  if (!names.nodeTimes.empty() && !nodesTimed) {
    return notFound("node type has a time feature", names.nodeTimes, schema, false);
  }
  if (!names.weights.empty() && !weighted) {
    return notFound("relation has a weight feature", names.weights, schema, true);
  }
  return checkSamplingFeatures(*dataset);
}

absl::Status checkSamplingFeatures(const Dataset& dataset) {
  const Schema& schema = dataset.schema;
  const auto missing = [](const std::string& owner, const std::string& name) {
    return absl::InvalidArgumentError(
        absl::StrCat(owner, " has no feature '", name, "', which is declared for sampling"));
  };
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
    const NodeType& type = schema.nodeTypes[t];
    if (type.timeFeature.empty()) continue;
    const size_t f = featureIndex(type.features, type.timeFeature);
    if (f == type.features.size()) return missing(type.name, type.timeFeature);
    FARHOP_RETURN_IF_ERROR(checkTimeValues(type.features[f], dataset.nodeFeatures[t][f]));
  }
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    const Relation& relation = schema.relations[r];
    const int index = static_cast<int>(r);
    for (const std::string* name : {&relation.timeFeature, &relation.weightFeature}) {
      if (name->empty()) continue;
      const size_t f = featureIndex(relation.features, *name);
      if (f == relation.features.size()) return missing(schema.relationText(index), *name);
      const FeatureColumn& column = dataset.edgeFeatures[r][f];
      FARHOP_RETURN_IF_ERROR(name == &relation.timeFeature
                                 ? checkTimeValues(relation.features[f], column)
                                 : checkWeightValues(dataset, index, relation.features[f], column));
    }
  }
  return absl::OkStatus();
}

std::vector<uint64_t> countZeroWeights(const Dataset& dataset) {
  std::vector<uint64_t> zeros;
  for (size_t r = 0; r < dataset.schema.relations.size(); ++r) {
    zeros.push_back(0);
    if (!dataset.schema.hasWeights(static_cast<int>(r))) continue;
    const DeclaredWeights weights(dataset, dataset.schema, static_cast<int>(r));
    for (uint64_t edge = 0; edge < dataset.schema.relations[r].count; ++edge) zeros.back() += weights(edge) == 0;
  }
  return zeros;
}

VisibleTimes::VisibleTimes(const Dataset& dataset, const Schema& schema, int relation) {
  const Relation& own = schema.relations[relation];
  const int forward = own.reverseOf >= 0 ? own.reverseOf : relation;
  const EdgeList& edges = dataset.edges[forward];
  source_ = own.reverseOf >= 0 ? &edges.destination : &edges.source;
  if (!own.timeFeature.empty()) {
    const size_t f = featureIndex(schema.relations[forward].features, own.timeFeature);
    edgeTimes_ = {schema.relations[forward].features[f].dtype, dataset.edgeFeatures[forward][f].data};
  }
  const NodeType& type = schema.nodeTypes[own.source];
  if (!type.timeFeature.empty()) {
    const size_t f = featureIndex(type.features, type.timeFeature);
    nodeTimes_ = {type.features[f].dtype, dataset.nodeFeatures[own.source][f].data};
  }
}

int64_t VisibleTimes::operator()(uint64_t edge) const {
  if (nodeTimes_.data == nullptr) return integerAt(edgeTimes_.dtype, edgeTimes_.data, edge);
  const int64_t nodeTime = integerAt(nodeTimes_.dtype, nodeTimes_.data, (*source_)[edge]);
  return edgeTimes_.data == nullptr ? nodeTime
                                    : std::max(nodeTime, integerAt(edgeTimes_.dtype, edgeTimes_.data, edge));
}

DeclaredWeights::DeclaredWeights(const Dataset& dataset, const Schema& schema, int relation) {
  const Relation& own = schema.relations[relation];
  const int forward = own.reverseOf >= 0 ? own.reverseOf : relation;
  const size_t f = featureIndex(schema.relations[forward].features, own.weightFeature);
  dtype_ = schema.relations[forward].features[f].dtype;
  data_ = dataset.edgeFeatures[forward][f].data;
}

float DeclaredWeights::operator()(uint64_t edge) const { return storedWeight(numberAt(dtype_, data_, edge)); }

}  // namespace farhop::partition
