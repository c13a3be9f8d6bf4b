#include "launcher/node_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "launcher/text_table.h"
#include "partition/feature_values.h"
#include "partition/id_column.h"

namespace farhop::launcher {
namespace {

using partition::FeatureTable;
using partition::GraphShard;
using partition::GraphStore;

constexpr uint64_t kShownValues = 8;

template <typename T>
T valueAt(const std::byte* row, uint64_t index) {
  T value;
  std::memcpy(&value, row + index * sizeof(T), sizeof(T));
  return value;
}

// IEEE 754 binary16.
double halfValue(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1F) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 0x400, exponent - 25));
}

double brainFloatValue(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return static_cast<double>(value);
}

double elementAt(DType dtype, const std::byte* row, uint64_t index) {
  switch (dtype) {
    case DType::kBool:
      return valueAt<uint8_t>(row, index) != 0 ? 1 : 0;
    case DType::kFloat16:
      return halfValue(valueAt<uint16_t>(row, index));
    case DType::kBFloat16:
      return brainFloatValue(valueAt<uint16_t>(row, index));
    default:
      return partition::numberAt(dtype, row, index);
  }
}

std::string elementText(DType dtype, const std::byte* row, uint64_t index) {
  if (dtype == DType::kUInt64) return std::to_string(valueAt<uint64_t>(row, index));
  if (partition::isIntegerDType(dtype)) return std::to_string(partition::integerAt(dtype, row, index));
  const double value = elementAt(dtype, row, index);
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  // As many digits as tell neighbouring numbers of the type apart.
  const int digits = dtype == DType::kFloat64 ? 17 : dtype == DType::kFloat32 ? 9 : 5;
  std::array<char, 40> text;
  for (int precision = 1; precision <= digits; ++precision) {
    std::snprintf(text.data(), text.size(), "%.*g", precision, value);
    const double back = std::strtod(text.data(), nullptr);
    if (dtype == DType::kFloat64 ? back == value : static_cast<float>(back) == static_cast<float>(value)) break;
  }
  return text.data();
}

NodeView::Feature featureOf(const FeatureTable& table, uint64_t row) {
  NodeView::Feature feature;
  feature.name = table.spec.name;
  feature.type = std::string(dtypeName(table.spec.dtype));
  for (const uint64_t dimension : table.spec.rowShape) absl::StrAppend(&feature.type, " x ", dimension);
  feature.elements = table.spec.rowElements();
  for (uint64_t i = 0; i < std::min(feature.elements, kShownValues); ++i) {
    feature.values.push_back(elementText(table.spec.dtype, table.row(row), i));
  }
  return feature;
}

absl::Status damaged(const GraphStore& store, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(store.directory(), ": ", what,
                                          "; the store is damaged, farhop inspect --verify says where"));
}

absl::StatusOr<NodeView::Relation> relationOf(const GraphStore& store, const GraphShard& shard, int r, uint64_t row,
                                              uint64_t limit) {
  const partition::Schema& schema = store.schema();
  const partition::RelationShard& edges = shard.relation(r);
  const int source = schema.relations[static_cast<size_t>(r)].source;
  const uint64_t sources = store.book().numNodes(source);
  FARHOP_ASSIGN_OR_RETURN(const partition::IdArray originals, store.originalIdsByGid(source));
  NodeView::Relation relation;
  relation.name = schema.relationText(r);
  relation.sourceType = schema.nodeTypes[static_cast<size_t>(source)].name;
  const uint64_t begin = edges.indptr[row], end = edges.indptr[row + 1];
  relation.degree = end - begin;
  for (uint64_t e = begin; e < end; ++e) {
    const uint64_t gid = edges.neighbors32.empty() ? edges.neighbors64[e] : edges.neighbors32[e];
    if (gid >= sources) return damaged(store, absl::StrCat(relation.name, " has a neighbour with gid ", gid, ", of ", sources));
    const int owner = store.book().partitionOf(source, gid);
    if (owner != shard.index()) ++relation.remote;
    if (relation.neighbors.size() >= limit) continue;
    NodeView::Neighbor neighbor;
    neighbor.originalId = originals[gid];
    neighbor.gid = gid;
    neighbor.partition = owner;
    neighbor.edgeId = edges.edgeIds[e];
    if (!edges.times.empty()) neighbor.time = edges.times[e];
    if (!edges.weights.empty()) neighbor.weight = edges.weights[e];
    relation.neighbors.push_back(neighbor);
  }
  return relation;
}

absl::Status addSplits(const GraphStore& store, const NodeName& node, NodeView* view) {
  for (const partition::SplitInfo& split : store.splits()) {
    if (split.nodeType != node.nodeType) continue;
    FARHOP_ASSIGN_OR_RETURN(const auto seeds, store.splitOriginalIds(split.name, split.nodeType));
    if (std::binary_search(seeds.begin(), seeds.end(), node.originalId)) view->splits.push_back(split.name);
  }
  for (const partition::EdgeSplitInfo& split : store.edgeSplits()) {
    const partition::Relation& relation = store.schema().relations[static_cast<size_t>(split.relation)];
    if (relation.source != node.nodeType && relation.destination != node.nodeType) continue;
    FARHOP_ASSIGN_OR_RETURN(const partition::EdgeSeeds seeds, store.edgeSplitOriginalIds(split.name, split.relation));
    NodeView::EdgeSeeds ends{split.name, store.schema().relationText(split.relation), 0, 0};
    for (uint64_t i = 0; i < seeds.size(); ++i) {
      if (relation.source == node.nodeType && seeds.source(i) == node.originalId) ++ends.asSource;
      if (relation.destination == node.nodeType && seeds.destination(i) == node.originalId) ++ends.asDestination;
    }
    if (ends.asSource + ends.asDestination > 0) view->edgeSplits.push_back(std::move(ends));
  }
  return absl::OkStatus();
}

absl::Status addEdges(const GraphStore& store, const GraphShard& shard, const NodeName& node, uint64_t limit,
                      NodeView* view) {
  const partition::Schema& schema = store.schema();
  for (int r = 0; r < static_cast<int>(schema.relations.size()); ++r) {
    const partition::Relation& relation = schema.relations[static_cast<size_t>(r)];
    if (relation.destination == node.nodeType) {
      FARHOP_ASSIGN_OR_RETURN(NodeView::Relation edges, relationOf(store, shard, r, view->localIndex, limit));
      view->relations.push_back(std::move(edges));
    }
    if (relation.source == node.nodeType && relation.reverseOf < 0) {
      FARHOP_ASSIGN_OR_RETURN(const auto degrees, store.outDegrees(r));
      view->outDegrees.push_back({schema.relationText(r), degrees[node.originalId]});
    }
  }
  return absl::OkStatus();
}

std::string neighborTable(const NodeView::Relation& relation) {
  const bool times = !relation.neighbors.empty() && relation.neighbors[0].time.has_value();
  const bool weights = !relation.neighbors.empty() && relation.neighbors[0].weight.has_value();
  std::vector<std::vector<std::string>> rows = {{relation.sourceType, "gid", "partition", "edge"}};
  if (times) rows[0].push_back("time");
  if (weights) rows[0].push_back("weight");
  for (const NodeView::Neighbor& neighbor : relation.neighbors) {
    std::vector<std::string> row = {std::to_string(neighbor.originalId), std::to_string(neighbor.gid),
                                    std::to_string(neighbor.partition), std::to_string(neighbor.edgeId)};
    if (times) row.push_back(std::to_string(*neighbor.time));
    if (weights) row.push_back(absl::StrCat(*neighbor.weight));
    rows.push_back(std::move(row));
  }
  return formatTable(rows);
}

}  // namespace

absl::StatusOr<NodeName> parseNodeName(const partition::Schema& schema, absl::string_view text) {
  NodeName node;
  const size_t colon = text.rfind(':');
  absl::string_view id = text;
  if (colon != absl::string_view::npos) {
    FARHOP_ASSIGN_OR_RETURN(node.nodeType, schema.nodeTypeIndex(std::string(text.substr(0, colon))));
    id = text.substr(colon + 1);
  } else if (schema.nodeTypes.size() != 1) {
    std::string types;
    for (const partition::NodeType& type : schema.nodeTypes) absl::StrAppend(&types, types.empty() ? "" : ", ", type.name);
    return absl::InvalidArgumentError(
        absl::StrCat("--node ", text, " does not say of which type; write TYPE:ID with one of ", types));
  }
  const partition::NodeType& type = schema.nodeTypes[static_cast<size_t>(node.nodeType)];
  // SimpleAtoi takes signs and blanks, which no id has.
  if (id.empty() || id.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(id, &node.originalId) || node.originalId >= type.count) {
    return absl::NotFoundError(absl::StrCat(
        "--node ", text, ": node type '", type.name, "' ",
        type.count == 0 ? "has no nodes" : absl::StrCat("has the ids 0 to ", type.count - 1)));
  }
  return node;
}

absl::StatusOr<NodeView> viewNode(const GraphStore& store, absl::string_view name, uint64_t neighbors) {
  FARHOP_ASSIGN_OR_RETURN(const NodeName node, parseNodeName(store.schema(), name));
  const partition::NodeType& type = store.schema().nodeTypes[static_cast<size_t>(node.nodeType)];
  NodeView view;
  view.type = type.name;
  view.originalId = node.originalId;
  FARHOP_ASSIGN_OR_RETURN(const auto gids, store.gidsByOriginalId(node.nodeType));
  view.gid = gids[node.originalId];
  if (view.gid >= type.count) return damaged(store, absl::StrCat("node ", name, " has gid ", view.gid, ", of ", type.count));
  view.partition = store.book().partitionOf(node.nodeType, view.gid);
  view.localIndex = view.gid - store.book().begin(node.nodeType, view.partition);
  FARHOP_ASSIGN_OR_RETURN(const GraphShard shard, store.openPartition(view.partition));
  if (shard.originalIds(node.nodeType)[view.localIndex] != node.originalId) {
    return damaged(store, absl::StrCat("partition ", view.partition, " has another node than ", name, " at row ", view.localIndex));
  }
  FARHOP_RETURN_IF_ERROR(addSplits(store, node, &view));
  FARHOP_RETURN_IF_ERROR(addEdges(store, shard, node, neighbors, &view));
  for (const partition::FeatureSpec& spec : type.features) {
    const FeatureTable* table = shard.nodeFeature(node.nodeType, spec.name);
    if (table != nullptr) view.features.push_back(featureOf(*table, view.localIndex));
  }
  return view;
}

std::string nodeText(const NodeView& view) {
  std::string splits;
  for (const std::string& split : view.splits) absl::StrAppend(&splits, splits.empty() ? "" : ", ", split);
  std::string text = absl::StrCat("node       ", view.type, ":", view.originalId, "\ngid        ", view.gid,
                                  "\nowner      partition ", view.partition, ", row ", view.localIndex,
                                  "\nseed of    ", splits.empty() ? "-" : splits, "\n");
  for (const NodeView::EdgeSeeds& seeds : view.edgeSplits) {
    absl::StrAppend(&text, "seeds      ", seeds.split, " of ", seeds.relation, ": source of ",
                    formatCount(seeds.asSource), ", destination of ", formatCount(seeds.asDestination), "\n");
  }
  for (const NodeView::Feature& feature : view.features) {
    absl::StrAppend(&text, "feature    ", feature.name, " ", feature.type, ":");
    for (const std::string& value : feature.values) absl::StrAppend(&text, " ", value);
    absl::StrAppend(&text, feature.values.size() < feature.elements ? " ...\n" : "\n");
  }
  for (const NodeView::OutDegree& out : view.outDegrees) {
    absl::StrAppend(&text, "out-edges  ", out.relation, ": ", formatCount(out.degree), "\n");
  }
  for (const NodeView::Relation& relation : view.relations) {
    absl::StrAppend(&text, "\nin-edges   ", relation.name, ": ", formatCount(relation.degree));
    if (relation.degree > 0) absl::StrAppend(&text, ", ", formatCount(relation.remote), " of them remote");
    if (relation.neighbors.size() < relation.degree) absl::StrAppend(&text, ", the first ", relation.neighbors.size(), ":");
    absl::StrAppend(&text, "\n", relation.neighbors.empty() ? "" : neighborTable(relation));
  }
  return text;
}

nlohmann::ordered_json nodeJson(const NodeView& view) {
  using Json = nlohmann::ordered_json;
  Json json = {{"node_type", view.type},     {"original_id", view.originalId}, {"gid", view.gid},
               {"partition", view.partition}, {"row", view.localIndex},         {"splits", view.splits}};
  Json& edgeSplits = json["edge_splits"] = Json::array();
  for (const NodeView::EdgeSeeds& seeds : view.edgeSplits) {
    edgeSplits.push_back({{"name", seeds.split}, {"relation", seeds.relation}, {"source_of", seeds.asSource},
                          {"destination_of", seeds.asDestination}});
  }
  Json& features = json["features"] = Json::array();
  for (const NodeView::Feature& feature : view.features) {
    Json values = Json::array();
    for (size_t i = 0; i < feature.values.size(); ++i) {
      // Integers exactly; infinities and not-a-number, which JSON has not, as text.
      const Json exact = Json::parse(feature.values[i], nullptr, false);
      values.push_back(exact.is_discarded() ? Json(feature.values[i]) : exact);
    }
    features.push_back({{"name", feature.name}, {"type", feature.type}, {"elements", feature.elements},
                        {"first_values", std::move(values)}});
  }
  Json& outs = json["out_degrees"] = Json::array();
  for (const NodeView::OutDegree& out : view.outDegrees) outs.push_back({{"relation", out.relation}, {"degree", out.degree}});
  Json& relations = json["in_edges"] = Json::array();
  for (const NodeView::Relation& relation : view.relations) {
    Json neighbors = Json::array();
    for (const NodeView::Neighbor& neighbor : relation.neighbors) {
      Json entry = {{"original_id", neighbor.originalId}, {"gid", neighbor.gid}, {"partition", neighbor.partition},
                    {"edge_id", neighbor.edgeId}};
      if (neighbor.time) entry["time"] = *neighbor.time;
      if (neighbor.weight) entry["weight"] = *neighbor.weight;
      neighbors.push_back(std::move(entry));
    }
    relations.push_back({{"relation", relation.name}, {"degree", relation.degree}, {"remote", relation.remote},
                         {"first_neighbors", std::move(neighbors)}});
  }
  return json;
}

}  // namespace farhop::launcher
