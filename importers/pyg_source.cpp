// Partitions that PyG's torch_geometric.distributed.Partitioner writes (2.5 and later).
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "importers/partition_parts.h"
#include "importers/sources.h"
#include "importers/torch_file.h"
#include "partition/dataset.h"

namespace farhop::importers {
namespace {

using Kind = PickleValue::Kind;

constexpr int kMaxPartitions = 65536;

struct PygRelation {
  std::vector<std::string> parts;  // source, relation, destination
  std::string fileName() const { return absl::StrCat(parts[0], "__", parts[1], "__", parts[2]); }
  std::string text() const { return absl::StrCat(parts[0], ":", parts[1], ":", parts[2]); }
};

// Of a dictionary by edge type: tuples of three texts, or the text that joins them.
const PickleValue* findRelation(const PickleValue& dictionary, const PygRelation& relation) {
  if (const PickleValue* named = dictionary.find(relation.fileName())) return named;
  if (!dictionary.is(Kind::kDict)) return nullptr;
  for (size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
    const PickleValue& key = *dictionary.items[i];
    if ((!key.is(Kind::kTuple) && !key.is(Kind::kList)) || key.items.size() != 3) continue;
    bool same = true;
    for (size_t p = 0; p < 3; ++p) same = same && key.items[p]->text == relation.parts[p];
    if (same) return dictionary.items[i + 1];
  }
  return nullptr;
}

class PygImporter {
 public:
  PygImporter(const std::string& directory, DatasetOutput* output) : directory_(directory), output_(*output) {}

  absl::Status run() {
    FARHOP_RETURN_IF_ERROR(readMeta());
    PartitionParts parts(numParts_, &output_);
    FARHOP_RETURN_IF_ERROR(openParts());
    uint64_t offset = 0;
    for (const std::string& type : nodeTypes_) {
      FARHOP_ASSIGN_OR_RETURN(const ArrayView map, openTensor(hetero_ ? absl::StrCat(directory_, "/node_map/", type, ".pt")
                                                                      : directory_ + "/node_map.pt"));
      FARHOP_RETURN_IF_ERROR(parts.addNodes(type, map));
      FARHOP_RETURN_IF_ERROR(addNodeFeatures(type, map.rows(), offset, &parts));
      offset += map.rows();
    }
    offset = 0;
    for (const PygRelation& relation : relations_) {
      const std::string path = hetero_ ? absl::StrCat(directory_, "/edge_map/", relation.fileName(), ".pt") : directory_ + "/edge_map.pt";
      FARHOP_ASSIGN_OR_RETURN(const ArrayView map, openTensor(path));
      FARHOP_RETURN_IF_ERROR(addRelation(relation, map.elements(), offset, &parts));
      offset += map.elements();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status readMeta() {
    const std::string path = directory_ + "/META.json";
    FARHOP_ASSIGN_OR_RETURN(const std::string text, readFile(path));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    const auto bad = [&](absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat(path, ": ", what)); };
    if (!json.is_object()) return bad("this is no JSON object");
    const auto parts = json.find("num_parts");
    if (parts == json.end() || !parts->is_number_integer() || *parts < 1 || *parts > kMaxPartitions) return bad("'num_parts' is no number of partitions");
    numParts_ = parts->get<int>();
    if (!json.contains("is_sorted")) {
      return bad("'is_sorted' is missing: PyG before 2.5 wrote row and col of each partition in a numbering that it did not "
                 "keep; partition again with a later one");
    }
    hetero_ = json.contains("is_hetero") && json["is_hetero"].is_boolean() && json["is_hetero"].get<bool>();
    if (!hetero_) {
      nodeTypes_ = {partition::kHomogeneousNodeType};
      relations_ = {{{partition::kHomogeneousNodeType, partition::kHomogeneousRelation, partition::kHomogeneousNodeType}}};
      return absl::OkStatus();
    }
    const auto nodes = json.find("node_types"), edges = json.find("edge_types");
    if (nodes == json.end() || !nodes->is_array() || edges == json.end() || !edges->is_array()) return bad("'node_types' or 'edge_types' is no list");
    for (const auto& type : *nodes) {
      if (!type.is_string()) return bad("a node type is no text");
      nodeTypes_.push_back(type.get<std::string>());
    }
    for (const auto& type : *edges) {
      const bool triple = type.is_array() && type.size() == 3 && type[0].is_string() && type[1].is_string() && type[2].is_string();
      if (!triple) return bad("an edge type is no list of three texts");
      relations_.push_back({type.get<std::vector<std::string>>()});
    }
    return absl::OkStatus();
  }

  absl::Status openParts() {
    for (int part = 0; part < numParts_; ++part) {
      const std::string where = absl::StrCat(directory_, "/part_", part);
      FARHOP_ASSIGN_OR_RETURN(PickleDocument graph, openTorchFile(where + "/graph.pt"));
      graphs_.push_back(std::move(graph));
      for (const auto& [file, documents] : {std::pair{"node_feats", &nodeFeatures_}, {"edge_feats", &edgeFeatures_}}) {
        const std::string path = absl::StrCat(where, "/", file, ".pt");
        documents->emplace_back();
        if (!pathExists(path)) continue;
        FARHOP_ASSIGN_OR_RETURN(PickleDocument document, openTorchFile(path));
        documents->back().emplace(std::move(document));
      }
    }
    return absl::OkStatus();
  }

  std::string origin(int part, const char* file) const { return absl::StrCat(directory_, "/part_", part, "/", file, ".pt"); }

  absl::StatusOr<ArrayView> tensorIn(const PickleValue& dictionary, const char* key, const std::string& where) const {
    const PickleValue* value = dictionary.find(key);
    if (value == nullptr || !value->is(Kind::kTensor)) {
      return absl::InvalidArgumentError(absl::StrCat(where, " has no tensor '", key, "'"));
    }
    ArrayView view = *value->tensor;
    view.origin = absl::StrCat(where, " (", key, ")");
    return view;
  }

  // Of a type's dictionary "feats", in all partitions that have it, by the ids that `ids` gives.
  using PartRows = std::map<std::string, std::vector<PartitionParts::Rows>>;
  absl::Status collect(const PickleValue& entry, const ArrayView& ids, const std::string& where, PartRows* rows) const {
    const PickleValue* features = entry.find("feats");
    if (features == nullptr || !features->is(Kind::kDict)) return absl::OkStatus();
    for (size_t i = 0; i + 1 < features->items.size(); i += 2) {
      if (!features->items[i + 1]->is(Kind::kTensor)) continue;  // None where there is no such feature
      const std::string name(features->items[i]->text);
      ArrayView values = *features->items[i + 1]->tensor;
      values.origin = absl::StrCat(where, " (", name, ")");
      (*rows)[name].push_back({ids, std::move(values)});
    }
    return absl::OkStatus();
  }

  absl::Status addRows(const std::string& domain, const std::string& type, uint64_t count, uint64_t offset,
                       const PartRows& rows, PartitionParts* parts) const {
    for (const auto& [name, pieces] : rows) {
      std::vector<ArrayView> ids;
      for (const PartitionParts::Rows& piece : pieces) ids.push_back(piece.ids);
      FARHOP_RETURN_IF_ERROR(parts->addFeature({domain, type, name, ""}, count, idOffset(ids, offset), pieces));
    }
    return absl::OkStatus();
  }

  absl::Status addNodeFeatures(const std::string& type, uint64_t count, uint64_t offset, PartitionParts* parts) {
    PartRows rows;
    std::optional<ArrayView> times;
    for (int part = 0; part < numParts_; ++part) {
      if (!nodeFeatures_[part]) continue;
      const std::string where = origin(part, "node_feats");
      const PickleValue* entry = hetero_ ? nodeFeatures_[part]->root().find(type) : &nodeFeatures_[part]->root();
      if (entry == nullptr || !entry->is(Kind::kDict)) continue;
      // "id" is local to the type; "global_id" is not, where there are several.
      FARHOP_ASSIGN_OR_RETURN(const ArrayView ids, tensorIn(*entry, entry->find("id") != nullptr ? "id" : "global_id", where));
      FARHOP_RETURN_IF_ERROR(collect(*entry, ids, where, &rows));
      const PickleValue* time = entry->find("time");
      if (time != nullptr && time->is(Kind::kTensor)) times = *time->tensor;  // of all nodes, in every partition
    }
    FARHOP_RETURN_IF_ERROR(addRows("node", type, count, offset, rows, parts));
    if (!times) return absl::OkStatus();
    if (times->shape.size() != 1 || times->rows() != count) {
      return absl::InvalidArgumentError(absl::StrCat(times->origin, ": times of shape ", times->shapeText(), " for ", count, " nodes of ", type));
    }
    const std::string path = output_.newFile({"node", type, "time"});
    output_.description().features.push_back({"node", type, "time", path});
    return saveArray(*times, output_.pathOf(path));
  }

  absl::Status addRelation(const PygRelation& relation, uint64_t edges, uint64_t offset, PartitionParts* parts) {
    std::vector<PartitionParts::Edges> pieces;
    std::vector<ArrayView> edgeIds;
    PartRows rows;
    for (int part = 0; part < numParts_; ++part) {
      const std::string where = origin(part, "graph");
      const PickleValue* entry = hetero_ ? findRelation(graphs_[part].root(), relation) : &graphs_[part].root();
      if (entry == nullptr || !entry->is(Kind::kDict)) return absl::InvalidArgumentError(absl::StrCat(where, " has no edges of ", relation.text()));
      PartitionParts::Edges piece;
      FARHOP_ASSIGN_OR_RETURN(piece.ids, tensorIn(*entry, "edge_id", where));
      FARHOP_ASSIGN_OR_RETURN(piece.sources, tensorIn(*entry, "row", where));
      FARHOP_ASSIGN_OR_RETURN(piece.destinations, tensorIn(*entry, "col", where));
      edgeIds.push_back(piece.ids);
      pieces.push_back(std::move(piece));
    }
    const uint64_t first = idOffset(edgeIds, offset);
    FARHOP_RETURN_IF_ERROR(parts->addEdges(relation.parts[0], relation.parts[1], relation.parts[2], edges, first, pieces));
    std::vector<PartitionParts::Rows> times;
    for (int part = 0; part < numParts_; ++part) {
      if (!edgeFeatures_[part]) continue;
      const std::string where = origin(part, "edge_feats");
      const PickleValue* entry = hetero_ ? findRelation(edgeFeatures_[part]->root(), relation) : &edgeFeatures_[part]->root();
      if (entry == nullptr || !entry->is(Kind::kDict)) continue;
      if (entry->find("global_id") != nullptr) {
        FARHOP_ASSIGN_OR_RETURN(const ArrayView ids, tensorIn(*entry, "global_id", where));
        FARHOP_RETURN_IF_ERROR(collect(*entry, ids, where, &rows));
      }
      if (entry->find("edge_time") != nullptr) {
        FARHOP_ASSIGN_OR_RETURN(ArrayView values, tensorIn(*entry, "edge_time", where));
        times.push_back({edgeIds[part], std::move(values)});  // in the order of the partition's edges
      }
    }
    FARHOP_RETURN_IF_ERROR(addRows("edge", relation.text(), edges, offset, rows, parts));
    return parts->addFeature({"edge", relation.text(), "time", ""}, edges, first, times);
  }

  const std::string directory_;
  DatasetOutput& output_;
  int numParts_ = 0;
  bool hetero_ = false;
  std::vector<std::string> nodeTypes_;
  std::vector<PygRelation> relations_;
  // By partition.
  std::vector<PickleDocument> graphs_;
  std::vector<std::optional<PickleDocument>> nodeFeatures_, edgeFeatures_;
};

}  // namespace

absl::Status importPyg(const std::string& directory, const ImportOptions&, DatasetOutput* output) {
  return PygImporter(directory, output).run();
}

}  // namespace farhop::importers
