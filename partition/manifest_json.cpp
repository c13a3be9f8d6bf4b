// graph.json to and from Manifest. The JSON library's exceptions are never reached: every value's type is
// checked before it is read.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "partition/manifest.h"

namespace farhop::partition {
namespace {

// Keeps keys in the order they are written, so that the file reads from general to particular.
using Json = nlohmann::ordered_json;

constexpr char kUnsealed[] = "0000000000000000";

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

Json featureJson(const FeatureSpec& feature) {
  return {{"name", feature.name},
          {"dtype", std::string(dtypeName(feature.dtype))},
          {"row_shape", feature.rowShape}};
}

Json featuresJson(const std::vector<FeatureSpec>& features) {
  Json list = Json::array();
  for (const FeatureSpec& feature : features) list.push_back(featureJson(feature));
  return list;
}

// One object of the document; `where` is its place in it, for messages.
class ObjectReader {
 public:
  static absl::StatusOr<ObjectReader> make(const Json& json, std::string where) {
    if (!json.is_object()) return absl::DataLossError(absl::StrCat(where, " is not an object"));
    return ObjectReader(json, std::move(where));
  }

  const std::string& where() const { return where_; }
  bool has(const char* key) const { return json_->contains(key); }

  absl::StatusOr<const Json*> get(const char* key) const {
    auto found = json_->find(key);
    if (found == json_->end()) return absl::DataLossError(absl::StrCat(where_, " has no key '", key, "'"));
    return &*found;
  }
  absl::StatusOr<std::string> text(const char* key) const {
    FARHOP_ASSIGN_OR_RETURN(const Json* value, get(key));
    if (!value->is_string()) return wrongType(key, "a string");
    return value->get<std::string>();
  }
  // Empty where the key is missing.
  absl::StatusOr<std::string> optionalText(const char* key) const {
    if (!has(key)) return std::string();
    FARHOP_ASSIGN_OR_RETURN(std::string value, text(key));
    if (value.empty()) return wrongType(key, "a name");
    return value;
  }
  absl::StatusOr<uint64_t> number(const char* key) const {
    FARHOP_ASSIGN_OR_RETURN(const Json* value, get(key));
    if (!value->is_number_unsigned()) return wrongType(key, "a whole number that is not negative");
    return value->get<uint64_t>();
  }
  absl::StatusOr<std::vector<uint64_t>> numbers(const char* key) const {
    FARHOP_ASSIGN_OR_RETURN(const Json* value, list(key));
    std::vector<uint64_t> numbers;
    numbers.reserve(value->size());
    for (const Json& element : *value) {
      if (!element.is_number_unsigned())
        return wrongType(key, "a list of whole numbers that are not negative");
      numbers.push_back(element.get<uint64_t>());
    }
    return numbers;
  }
  absl::StatusOr<double> real(const char* key) const {
    FARHOP_ASSIGN_OR_RETURN(const Json* value, get(key));
    if (!value->is_number()) return wrongType(key, "a number");
    return value->get<double>();
  }
  // As numbers(), of what `is` finds to be of type T.
  template <typename T>
  absl::StatusOr<std::vector<T>> values(const char* key, bool (Json::*is)() const noexcept,
                                        absl::string_view wanted) const {
    FARHOP_ASSIGN_OR_RETURN(const Json* value, list(key));
    std::vector<T> values;
    for (const Json& element : *value) {
      if (!(element.*is)()) return wrongType(key, wanted);
      values.push_back(element.get<T>());
    }
    return values;
  }
  absl::StatusOr<const Json*> list(const char* key) const {
    FARHOP_ASSIGN_OR_RETURN(const Json* value, get(key));
    if (!value->is_array()) return wrongType(key, "a list");
    return value;
  }
  // Calls read(ObjectReader) for each object of a list.
  template <typename Read>
  absl::Status eachObject(const char* key, const Read& read) const {
    FARHOP_ASSIGN_OR_RETURN(const Json* value, list(key));
    for (size_t i = 0; i < value->size(); ++i) {
      FARHOP_ASSIGN_OR_RETURN(ObjectReader element,
                              make((*value)[i], absl::StrCat(where_, ".", key, "[", i, "]")));
      FARHOP_RETURN_IF_ERROR(read(element));
    }
    return absl::OkStatus();
  }

  absl::Status wrongType(const char* key, absl::string_view wanted) const {
    return absl::DataLossError(absl::StrCat(where_, ".", key, " is not ", wanted));
  }

 private:
  ObjectReader(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}
  const Json* json_;
  std::string where_;
};

absl::StatusOr<FeatureSpec> readFeature(const ObjectReader& object) {
  FeatureSpec feature;
  FARHOP_ASSIGN_OR_RETURN(feature.name, object.text("name"));
  FARHOP_ASSIGN_OR_RETURN(std::string dtype, object.text("dtype"));
  auto known = dtypeFromName(dtype);
  if (!known.ok()) return annotate(known.status(), object.where());
  feature.dtype = *known;
  FARHOP_ASSIGN_OR_RETURN(feature.rowShape, object.numbers("row_shape"));
  return feature;
}

absl::Status readFeatures(const ObjectReader& owner, std::vector<FeatureSpec>* features) {
  return owner.eachObject("features", [&](const ObjectReader& object) -> absl::Status {
    FARHOP_ASSIGN_OR_RETURN(FeatureSpec feature, readFeature(object));
    features->push_back(std::move(feature));
    return absl::OkStatus();
  });
}

absl::Status readNodeTypes(const ObjectReader& root, Manifest* manifest) {
  return root.eachObject("node_types", [&](const ObjectReader& object) -> absl::Status {
    NodeType type;
    FARHOP_ASSIGN_OR_RETURN(type.name, object.text("name"));
    FARHOP_ASSIGN_OR_RETURN(type.count, object.number("count"));
    FARHOP_RETURN_IF_ERROR(readFeatures(object, &type.features));
    FARHOP_ASSIGN_OR_RETURN(type.timeFeature, object.optionalText("time_feature"));
    FARHOP_ASSIGN_OR_RETURN(std::vector<uint64_t> offsets, object.numbers("offsets"));
    manifest->offsets.push_back(std::move(offsets));
    manifest->schema.nodeTypes.push_back(std::move(type));
    return absl::OkStatus();
  });
}

absl::Status readRelations(const ObjectReader& root, Manifest* manifest) {
  Schema& schema = manifest->schema;
  return root.eachObject("relations", [&](const ObjectReader& object) -> absl::Status {
    Relation relation;
    FARHOP_ASSIGN_OR_RETURN(relation.name, object.text("name"));
    FARHOP_ASSIGN_OR_RETURN(std::string source, object.text("source"));
    FARHOP_ASSIGN_OR_RETURN(std::string destination, object.text("destination"));
    auto sourceIndex = schema.nodeTypeIndex(source), destinationIndex = schema.nodeTypeIndex(destination);
    if (!sourceIndex.ok()) return annotate(sourceIndex.status(), absl::StrCat(object.where(), ".source"));
    if (!destinationIndex.ok())
      return annotate(destinationIndex.status(), absl::StrCat(object.where(), ".destination"));
    relation.source = *sourceIndex;
    relation.destination = *destinationIndex;
    FARHOP_ASSIGN_OR_RETURN(relation.count, object.number("count"));
    if (object.has("reverse_of")) {
      FARHOP_ASSIGN_OR_RETURN(uint64_t forward, object.number("reverse_of"));
      if (forward >= schema.relations.size()) {
        return object.wrongType("reverse_of", "the index of an earlier relation");
      }
      relation.reverseOf = static_cast<int>(forward);
    }
    if (object.has("input_count")) {
      FARHOP_ASSIGN_OR_RETURN(relation.inputCount, object.number("input_count"));
    }
    FARHOP_RETURN_IF_ERROR(readFeatures(object, &relation.features));
    FARHOP_ASSIGN_OR_RETURN(relation.timeFeature, object.optionalText("time_feature"));
    FARHOP_ASSIGN_OR_RETURN(relation.weightFeature, object.optionalText("weight_feature"));
    FARHOP_ASSIGN_OR_RETURN(std::vector<uint64_t> edges, object.numbers("partition_edges"));
    FARHOP_ASSIGN_OR_RETURN(std::vector<uint64_t> remote, object.numbers("remote_edges"));
    manifest->partitionEdges.push_back(std::move(edges));
    manifest->remoteEdges.push_back(std::move(remote));
    schema.relations.push_back(std::move(relation));
    return absl::OkStatus();
  });
}

absl::Status readSplits(const ObjectReader& root, Manifest* manifest) {
  return root.eachObject("splits", [&](const ObjectReader& object) -> absl::Status {
    SplitInfo split;
    FARHOP_ASSIGN_OR_RETURN(split.name, object.text("name"));
    FARHOP_ASSIGN_OR_RETURN(std::string type, object.text("node_type"));
    auto index = manifest->schema.nodeTypeIndex(type);
    if (!index.ok()) return annotate(index.status(), absl::StrCat(object.where(), ".node_type"));
    split.nodeType = *index;
    FARHOP_ASSIGN_OR_RETURN(split.count, object.number("count"));
    FARHOP_ASSIGN_OR_RETURN(split.partitionCounts, object.numbers("partition_counts"));
    manifest->splits.push_back(std::move(split));
    return absl::OkStatus();
  });
}

absl::Status readEdgeSplits(const ObjectReader& root, Manifest* manifest) {
  return root.eachObject("edge_splits", [&](const ObjectReader& object) -> absl::Status {
    EdgeSplitInfo split;
    FARHOP_ASSIGN_OR_RETURN(split.name, object.text("name"));
    FARHOP_ASSIGN_OR_RETURN(uint64_t relation, object.number("relation"));
    if (relation >= manifest->schema.relations.size()) {
      return object.wrongType("relation", "the index of a relation");
    }
    split.relation = static_cast<int>(relation);
    FARHOP_ASSIGN_OR_RETURN(split.count, object.number("count"));
    FARHOP_ASSIGN_OR_RETURN(split.partitionCounts, object.numbers("partition_counts"));
    if (object.has("labels")) {
      FARHOP_ASSIGN_OR_RETURN(const Json* value, object.get("labels"));
      FARHOP_ASSIGN_OR_RETURN(ObjectReader labels, ObjectReader::make(*value, object.where() + ".labels"));
      FARHOP_ASSIGN_OR_RETURN(split.labels, readFeature(labels));
    }
    manifest->edgeSplits.push_back(std::move(split));
    return absl::OkStatus();
  });
}

absl::Status readCache(const ObjectReader& root, Manifest* manifest) {
  if (!root.has("cache")) return absl::OkStatus();
  FARHOP_ASSIGN_OR_RETURN(const Json* value, root.get("cache"));
  FARHOP_ASSIGN_OR_RETURN(ObjectReader object, ObjectReader::make(*value, absl::StrCat(root.where(), ".cache")));
  CacheInfo cache;
  FARHOP_ASSIGN_OR_RETURN(std::string policy, object.text("policy"));
  auto known = parseCachePolicy(policy);
  if (!known.ok()) return annotate(known.status(), object.where());
  cache.policy = *known;
  FARHOP_ASSIGN_OR_RETURN(cache.fraction, object.real("fraction"));
  FARHOP_ASSIGN_OR_RETURN(cache.fanouts,
                          object.values<int64_t>("fanouts", &Json::is_number_integer, "a list of whole numbers"));
  FARHOP_ASSIGN_OR_RETURN(cache.batch, object.number("batch"));
  FARHOP_RETURN_IF_ERROR(object.eachObject("node_types", [&](const ObjectReader& of) -> absl::Status {
    CacheInfo::Type type;
    FARHOP_ASSIGN_OR_RETURN(std::string name, of.text("name"));
    auto index = manifest->schema.nodeTypeIndex(name);
    if (!index.ok()) return annotate(index.status(), absl::StrCat(of.where(), ".name"));
    type.nodeType = *index;
    FARHOP_ASSIGN_OR_RETURN(type.features, of.values<std::string>("features", &Json::is_string, "a list of names"));
    FARHOP_ASSIGN_OR_RETURN(type.counts, of.numbers("counts"));
    cache.types.push_back(std::move(type));
    return absl::OkStatus();
  }));
  if (object.has("expected_rows")) {
    constexpr char kNumbers[] = "a list of numbers";
    FARHOP_ASSIGN_OR_RETURN(cache.expectedRows, object.values<double>("expected_rows", &Json::is_number, kNumbers));
    FARHOP_ASSIGN_OR_RETURN(cache.expectedHits, object.values<double>("expected_hits", &Json::is_number, kNumbers));
  }
  manifest->cache = std::move(cache);
  return absl::OkStatus();
}

Json cacheJson(const CacheInfo& cache, const Schema& schema) {
  Json object = {{"policy", std::string(cachePolicyName(cache.policy))},
                 {"fraction", cache.fraction},
                 {"fanouts", cache.fanouts},
                 {"batch", cache.batch},
                 {"node_types", Json::array()}};
  for (const CacheInfo::Type& type : cache.types) {
    object["node_types"].push_back({{"name", schema.nodeTypes[type.nodeType].name},
                                    {"features", type.features},
                                    {"counts", type.counts}});
  }
  if (!cache.expectedRows.empty()) {
    object["expected_rows"] = cache.expectedRows;
    object["expected_hits"] = cache.expectedHits;
  }
  return object;
}

absl::Status readFiles(const ObjectReader& root, Manifest* manifest) {
  FARHOP_ASSIGN_OR_RETURN(const Json* files, root.get("files"));
  if (!files->is_object()) return root.wrongType("files", "an object");
  for (auto it = files->begin(); it != files->end(); ++it) {
    const std::string where = absl::StrCat(root.where(), ".files[", it.key(), "]");
    FARHOP_ASSIGN_OR_RETURN(ObjectReader object, ObjectReader::make(it.value(), where));
    StoredFile file;
    FARHOP_ASSIGN_OR_RETURN(file.bytes, object.number("bytes"));
    FARHOP_ASSIGN_OR_RETURN(std::string checksum, object.text("xxh3_64"));
    if (checksum.size() != 16 || !absl::SimpleHexAtoi(checksum, &file.checksum)) {
      return object.wrongType("xxh3_64", "16 hexadecimal digits");
    }
    manifest->files[it.key()] = file;
  }
  return absl::OkStatus();
}

absl::Status readManifest(const ObjectReader& root, Manifest* manifest) {
  FARHOP_ASSIGN_OR_RETURN(manifest->dataset, root.text("dataset"));
  FARHOP_ASSIGN_OR_RETURN(manifest->task, root.text("task"));
  FARHOP_ASSIGN_OR_RETURN(uint64_t numClasses, root.number("num_classes"));
  if (numClasses > INT32_MAX) return root.wrongType("num_classes", "below 2^31");
  manifest->numClasses = static_cast<int64_t>(numClasses);
  FARHOP_ASSIGN_OR_RETURN(manifest->method, root.text("method"));
  FARHOP_ASSIGN_OR_RETURN(manifest->seed, root.number("seed"));
  FARHOP_ASSIGN_OR_RETURN(manifest->haloNodes, root.numbers("halo_nodes"));
  if (root.has("node_order")) {
    FARHOP_ASSIGN_OR_RETURN(manifest->order, root.text("node_order"));
  }
  FARHOP_RETURN_IF_ERROR(readNodeTypes(root, manifest));
  FARHOP_RETURN_IF_ERROR(readRelations(root, manifest));
  FARHOP_RETURN_IF_ERROR(readSplits(root, manifest));
  FARHOP_RETURN_IF_ERROR(readEdgeSplits(root, manifest));
  FARHOP_RETURN_IF_ERROR(readCache(root, manifest));
  return readFiles(root, manifest);
}

}  // namespace

std::string formatManifest(const Manifest& manifest) {
  const Schema& schema = manifest.schema;
  Json root = {
      {"format", kStoreFormatName},  {"version", kStoreFormatVersion}, {"checksum", kUnsealed},
      {"dataset", manifest.dataset}, {"task", manifest.task},          {"num_classes", manifest.numClasses},
      {"method", manifest.method},   {"seed", manifest.seed},          {"halo_nodes", manifest.haloNodes}};
  if (manifest.order != kOrderById) root["node_order"] = manifest.order;
  Json& types = root["node_types"] = Json::array();
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
    const NodeType& type = schema.nodeTypes[t];
    types.push_back({{"name", type.name},
                     {"count", type.count},
                     {"offsets", manifest.offsets[t]},
                     {"features", featuresJson(type.features)}});
    if (!type.timeFeature.empty()) types.back()["time_feature"] = type.timeFeature;
  }
  Json& relations = root["relations"] = Json::array();
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    const Relation& relation = schema.relations[r];
    Json object = {{"name", relation.name},
                   {"source", schema.nodeTypes[relation.source].name},
                   {"destination", schema.nodeTypes[relation.destination].name},
                   {"count", relation.count},
                   {"partition_edges", manifest.partitionEdges[r]},
                   {"remote_edges", manifest.remoteEdges[r]},
                   {"features", featuresJson(relation.features)}};
    if (relation.inputCount > 0) object["input_count"] = relation.inputCount;
    if (relation.reverseOf >= 0) object["reverse_of"] = relation.reverseOf;
    if (!relation.timeFeature.empty()) object["time_feature"] = relation.timeFeature;
    if (!relation.weightFeature.empty()) object["weight_feature"] = relation.weightFeature;
    relations.push_back(std::move(object));
  }
  Json& splits = root["splits"] = Json::array();
  for (const SplitInfo& split : manifest.splits) {
    splits.push_back({{"name", split.name},
                      {"node_type", schema.nodeTypes[split.nodeType].name},
                      {"count", split.count},
                      {"partition_counts", split.partitionCounts}});
  }
  Json& edgeSplits = root["edge_splits"] = Json::array();
  for (const EdgeSplitInfo& split : manifest.edgeSplits) {
    edgeSplits.push_back({{"name", split.name},
                          {"relation", split.relation},
                          {"count", split.count},
                          {"partition_counts", split.partitionCounts}});
    if (split.labels) edgeSplits.back()["labels"] = featureJson(*split.labels);
  }
  if (manifest.cache) root["cache"] = cacheJson(*manifest.cache, schema);
  Json& files = root["files"] = Json::object();
  for (const auto& [path, file] : manifest.files) {
    files[path] = {{"bytes", file.bytes}, {"xxh3_64", hex(file.checksum)}};
  }
  // Names come from users and need not be UTF-8; what is not is replaced rather than refused.
  const std::string text = root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  auto sealed = sealManifest(text);
  return sealed.ok() ? *std::move(sealed) : text;
}

absl::StatusOr<Manifest> parseManifest(absl::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    return absl::DataLossError(
        absl::StrCat("is ", text.size(), " bytes long; at most ", kMaxManifestBytes, " are read"));
  }
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded())
    return absl::DataLossError("is not JSON; it is damaged or was not written by Farhop");
  FARHOP_ASSIGN_OR_RETURN(ObjectReader root, ObjectReader::make(json, "the document"));
  FARHOP_ASSIGN_OR_RETURN(std::string format, root.text("format"));
  if (format != kStoreFormatName) {
    return absl::InvalidArgumentError(
        absl::StrCat("describes a '", format.substr(0, 60), "', not a Farhop graph store"));
  }
  FARHOP_ASSIGN_OR_RETURN(uint64_t version, root.number("version"));
  if (version > kStoreFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("format version ", version,
                                                      " is newer than this build reads (",
                                                      kStoreFormatVersion, "); update Farhop"));
  }
  if (version == 0) return absl::DataLossError("format version 0 never existed");
  if (version < kStoreFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("format version ", version,
                                                      " is older than this build reads (", kStoreFormatVersion,
                                                      "); write the store again with `farhop partition`"));
  }
  FARHOP_ASSIGN_OR_RETURN(std::string sealed, sealManifest(std::string(text)));
  if (sealed != text) {
    return absl::DataLossError(
        "its checksum does not match: it was damaged or edited; copy or write the store again");
  }
  Manifest manifest;
  FARHOP_RETURN_IF_ERROR(readManifest(root, &manifest));
  FARHOP_RETURN_IF_ERROR(checkManifest(manifest));
  return manifest;
}

}  // namespace farhop::partition
