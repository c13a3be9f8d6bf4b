#include "partition/manifest.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>
#include <span>

#include "base/file.h"
#include "partition/feature_values.h"
#include "partition/id_column.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

constexpr char kChecksumKey[] = "\"checksum\": \"";
constexpr size_t kChecksumDigits = 16;
constexpr uint64_t kMaxRowBytes = uint64_t{1} << 32;
constexpr size_t kMaxPartitions = size_t{1} << 16;

absl::Status bad(absl::string_view what) {
  return absl::DataLossError(what);
}

// Sums without wrapping round; counts beyond 2^56 fit no array that npy.h maps.
absl::Status sumTo(const std::vector<uint64_t>& parts, uint64_t total, size_t partitions,
                   absl::string_view what) {
  if (parts.size() != partitions) {
    return bad(absl::StrCat(what, " has ", parts.size(), " entries for ", partitions, " partitions"));
  }
  uint64_t left = total;
  for (uint64_t part : parts) {
    if (part > left) return bad(absl::StrCat(what, " adds up to more than ", total));
    left -= part;
  }
  if (left != 0) return bad(absl::StrCat(what, " adds up to ", total - left, " instead of ", total));
  return absl::OkStatus();
}

absl::Status checkCount(uint64_t count, absl::string_view what) {
  if (count >> 48 != 0) return bad(absl::StrCat(what, " has an impossible count of ", count));
  return absl::OkStatus();
}

absl::Status checkFeatureSpecs(const std::vector<FeatureSpec>& features, absl::string_view owner) {
  std::set<std::string> names;
  for (const FeatureSpec& feature : features) {
    FARHOP_RETURN_IF_ERROR(checkName(absl::StrCat("a feature of ", owner), feature.name));
    if (!names.insert(feature.name).second)
      return bad(absl::StrCat(owner, " has two features '", feature.name, "'"));
    uint64_t bytes = dtypeBytes(feature.dtype);
    for (uint64_t dimension : feature.rowShape) {
      if (dimension > kMaxRowBytes)
        return bad(absl::StrCat("feature '", feature.name, "' has rows that are too long"));
      bytes *= dimension;
      if (bytes > kMaxRowBytes)
        return bad(absl::StrCat("feature '", feature.name, "' has rows that are too long"));
    }
  }
  return absl::OkStatus();
}

// `what` says for what the feature was declared.
absl::Status checkDeclared(const std::vector<FeatureSpec>& features, const std::string& name, bool integer,
                           absl::string_view what) {
  if (name.empty()) return absl::OkStatus();
  const FeatureSpec* feature = findFeature(features, name);
  if (feature == nullptr) return bad(absl::StrCat(what, " are in a feature '", name, "' that does not exist"));
  const bool fits = integer ? isIntegerDType(feature->dtype) : isWeightDType(feature->dtype);
  if (fits && feature->rowElements() == 1) return absl::OkStatus();
  return bad(absl::StrCat(what, " are in the feature '", name, "', which is not one ",
                          integer ? "integer" : "number", " per row"));
}

absl::Status checkNodeTypes(const Manifest& manifest) {
  const size_t partitions = manifest.haloNodes.size();
  if (manifest.schema.nodeTypes.empty()) return bad("there is no node type");
  std::set<std::string> names;
  for (size_t t = 0; t < manifest.schema.nodeTypes.size(); ++t) {
    const NodeType& type = manifest.schema.nodeTypes[t];
    const std::string what = absl::StrCat("node type '", type.name, "'");
    FARHOP_RETURN_IF_ERROR(checkName("a node type", type.name));
    if (!names.insert(type.name).second)
      return bad(absl::StrCat("two node types are called '", type.name, "'"));
    FARHOP_RETURN_IF_ERROR(checkCount(type.count, what));
    const std::vector<uint64_t>& offsets = manifest.offsets[t];
    if (offsets.size() != partitions + 1 || offsets.front() != 0 || offsets.back() != type.count) {
      return bad(absl::StrCat("the gid ranges of ", what, " do not run from 0 to ", type.count, " in ",
                              partitions, " partitions"));
    }
    for (size_t k = 0; k < partitions; ++k) {
      if (offsets[k] > offsets[k + 1]) return bad(absl::StrCat("the gid ranges of ", what, " overlap"));
    }
    FARHOP_RETURN_IF_ERROR(checkFeatureSpecs(type.features, what));
    FARHOP_RETURN_IF_ERROR(
        checkDeclared(type.features, type.timeFeature, true, absl::StrCat("the times of ", what)));
  }
  return absl::OkStatus();
}

absl::Status checkReverse(const Schema& schema, int relation) {
  const Relation& reverse = schema.relations[relation];
  const Relation& forward = schema.relations[reverse.reverseOf];
  if (reverse.reverseOf >= relation || forward.reverseOf >= 0 || forward.source != reverse.destination ||
      forward.destination != reverse.source || forward.count != reverse.count || forward.inputCount != reverse.inputCount || !reverse.features.empty() ||
      forward.timeFeature != reverse.timeFeature || forward.weightFeature != reverse.weightFeature) {
    return bad(absl::StrCat(schema.relationText(relation), " is not the reverse of ",
                            schema.relationText(reverse.reverseOf)));
  }
  return absl::OkStatus();
}

absl::Status checkRelations(const Manifest& manifest) {
  const Schema& schema = manifest.schema;
  const size_t partitions = manifest.haloNodes.size();
  std::set<std::string> names;
  for (size_t i = 0; i < schema.relations.size(); ++i) {
    const int r = static_cast<int>(i);
    const Relation& relation = schema.relations[i];
    FARHOP_RETURN_IF_ERROR(checkName("a relation", relation.name));
    const std::string text = schema.relationText(r);
    if (!names.insert(text).second) return bad(absl::StrCat("two relations are called ", text));
    FARHOP_RETURN_IF_ERROR(checkCount(relation.count, text));
    if (relation.inputCount > 0) {
      FARHOP_RETURN_IF_ERROR(checkCount(relation.inputCount, text));
      if (relation.inputCount < relation.count) return bad(absl::StrCat(text, " has more edges than its data set had"));
    }
    if (relation.reverseOf >= 0) FARHOP_RETURN_IF_ERROR(checkReverse(schema, r));
    FARHOP_RETURN_IF_ERROR(sumTo(manifest.partitionEdges[i], relation.count, partitions,
                                 absl::StrCat("partition_edges of ", text)));
    if (manifest.remoteEdges[i].size() != partitions)
      return bad(absl::StrCat("remote_edges of ", text, " is too short or too long"));
    for (size_t k = 0; k < partitions; ++k) {
      if (manifest.remoteEdges[i][k] > manifest.partitionEdges[i][k]) {
        return bad(absl::StrCat("partition ", k, " has more remote edges of ", text, " than edges"));
      }
    }
    FARHOP_RETURN_IF_ERROR(checkFeatureSpecs(relation.features, text));
    if (relation.reverseOf >= 0) continue;  // checkReverse(): declared as in the forward relation
    FARHOP_RETURN_IF_ERROR(checkDeclared(relation.features, relation.timeFeature, true,
                                         absl::StrCat("the times of ", text)));
    FARHOP_RETURN_IF_ERROR(checkDeclared(relation.features, relation.weightFeature, false,
                                         absl::StrCat("the weights of ", text)));
  }
  return absl::OkStatus();
}

absl::Status checkSplits(const Manifest& manifest) {
  std::set<std::pair<std::string, int>> seen;
  for (const SplitInfo& split : manifest.splits) {
    FARHOP_RETURN_IF_ERROR(checkName("a split", split.name));
    if (!seen.insert({split.name, split.nodeType}).second) {
      return bad(absl::StrCat("split '", split.name, "' is listed twice"));
    }
    FARHOP_RETURN_IF_ERROR(checkCount(split.count, absl::StrCat("split '", split.name, "'")));
    FARHOP_RETURN_IF_ERROR(sumTo(split.partitionCounts, split.count, manifest.haloNodes.size(),
                                 absl::StrCat("partition_counts of split '", split.name, "'")));
  }
  return absl::OkStatus();
}

absl::Status checkEdgeSplits(const Manifest& manifest) {
  std::set<std::pair<std::string, int>> seen;
  for (const EdgeSplitInfo& split : manifest.edgeSplits) {
    FARHOP_RETURN_IF_ERROR(checkName("a split", split.name));
    const std::string what =
        absl::StrCat("split '", split.name, "' of ", manifest.schema.relationText(split.relation));
    if (manifest.schema.relations[split.relation].reverseOf >= 0) {
      return bad(absl::StrCat(what, " is of a reverse relation"));
    }
    if (!seen.insert({split.name, split.relation}).second) return bad(absl::StrCat(what, " is listed twice"));
    FARHOP_RETURN_IF_ERROR(checkCount(split.count, what));
    FARHOP_RETURN_IF_ERROR(sumTo(split.partitionCounts, split.count, manifest.haloNodes.size(),
                                 absl::StrCat("partition_counts of ", what)));
    if (split.labels) FARHOP_RETURN_IF_ERROR(checkFeatureSpecs({*split.labels}, what));
  }
  return absl::OkStatus();
}

absl::Status checkCacheType(const Manifest& manifest, const CacheInfo::Type& type) {
  const NodeType& nodes = manifest.schema.nodeTypes[type.nodeType];
  const std::string what = absl::StrCat("the cache of node type '", nodes.name, "'");
  if (type.features.empty()) return bad(absl::StrCat(what, " has no feature"));
  std::set<std::string> names;
  for (const std::string& name : type.features) {
    if (findFeature(nodes.features, name) == nullptr) {
      return bad(absl::StrCat(what, " is of a feature '", name, "' that does not exist"));
    }
    if (!names.insert(name).second) return bad(absl::StrCat(what, " lists the feature '", name, "' twice"));
  }
  if (type.counts.size() != manifest.haloNodes.size()) {
    return bad(absl::StrCat("the counts of ", what, " are not one per partition"));
  }
  const std::vector<uint64_t>& offsets = manifest.offsets[type.nodeType];
  for (size_t k = 0; k < type.counts.size(); ++k) {
    if (type.counts[k] > nodes.count - (offsets[k + 1] - offsets[k])) {
      return bad(absl::StrCat(what, " has more rows in partition ", k, " than other partitions have nodes"));
    }
  }
  return absl::OkStatus();
}

absl::Status checkCache(const Manifest& manifest) {
  if (!manifest.cache) return absl::OkStatus();
  const CacheInfo& cache = *manifest.cache;
  if (!std::isfinite(cache.fraction) || cache.fraction <= 0) return bad("the cache's fraction is no positive number");
  if (cache.fanouts.empty() || cache.batch == 0) return bad("the cache has no fanouts or no batch");
  for (int64_t fanout : cache.fanouts) {
    if (fanout < -1) return bad("a fanout of the cache is below -1");
  }
  if (cache.types.empty()) return bad("the cache has no node type");
  std::set<int> seen;
  for (const CacheInfo::Type& type : cache.types) {
    if (!seen.insert(type.nodeType).second) {
      return bad(absl::StrCat("the cache lists node type '", manifest.schema.nodeTypes[type.nodeType].name, "' twice"));
    }
    FARHOP_RETURN_IF_ERROR(checkCacheType(manifest, type));
  }
  const std::vector<double>&rows = cache.expectedRows, &hits = cache.expectedHits;
  bool sound = rows.size() == hits.size() && (rows.empty() || rows.size() == manifest.haloNodes.size());
  for (size_t k = 0; sound && k < rows.size(); ++k) {
    sound = std::isfinite(rows[k]) && hits[k] >= 0 && hits[k] <= rows[k];
  }
  return sound ? absl::OkStatus() : bad("the cache's expected rows and hits do not agree with each other");
}

// The arrays of a relation in each partition, besides its features.
std::vector<const char*> relationArrays(const Schema& schema, int relation) {
  std::vector<const char*> arrays = {"indptr", "neighbors", "edge_ids"};
  if (schema.hasTimes(relation)) arrays.push_back("times");
  if (schema.storesWeights(relation)) arrays.push_back("weights");
  return arrays;
}

std::set<std::string> expectedFiles(const Manifest& manifest) {
  const Schema& schema = manifest.schema;
  std::set<std::string> files;
  for (int t = 0; t < static_cast<int>(schema.nodeTypes.size()); ++t) {
    files.insert(gidMapPath(schema, t));
    files.insert(globalOriginalIdsPath(schema, t));
  }
  for (int r = 0; r < static_cast<int>(schema.relations.size()); ++r) {
    if (schema.relations[r].reverseOf >= 0) continue;
    for (const char* array : {"in_degree", "out_degree"}) files.insert(globalRelationPath(schema, r, array));
  }
  for (const EdgeSplitInfo& split : manifest.edgeSplits) {
    files.insert(globalEdgeSplitPath(schema, split.relation, split.name));
    if (split.labels) files.insert(globalEdgeSplitLabelsPath(schema, split.relation, split.name));
  }
  for (const SplitInfo& split : manifest.splits) files.insert(globalSplitPath(schema, split.nodeType, split.name));
  for (int k = 0; k < manifest.numPartitions(); ++k) {
    for (int t = 0; t < static_cast<int>(schema.nodeTypes.size()); ++t) {
      files.insert(originalIdsPath(schema, k, t));
      for (const FeatureSpec& f : schema.nodeTypes[t].features)
        files.insert(nodeFeaturePath(schema, k, t, f.name));
    }
    for (const SplitInfo& split : manifest.splits)
      files.insert(splitPath(schema, k, split.nodeType, split.name));
    for (const EdgeSplitInfo& split : manifest.edgeSplits) {
      files.insert(edgeSplitPath(schema, k, split.relation, split.name));
      if (split.labels) files.insert(edgeSplitLabelsPath(schema, k, split.relation, split.name));
    }
    for (int r = 0; r < static_cast<int>(schema.relations.size()); ++r) {
      for (const char* array : relationArrays(schema, r)) files.insert(relationPath(schema, k, r, array));
      for (const FeatureSpec& f : schema.relations[r].features)
        files.insert(edgeFeaturePath(schema, k, r, f.name));
    }
    if (!manifest.cache) continue;
    for (const CacheInfo::Type& type : manifest.cache->types) {
      files.insert(cacheGidsPath(schema, k, type.nodeType));
      for (const std::string& name : type.features) files.insert(cacheFeaturePath(schema, k, type.nodeType, name));
    }
  }
  return files;
}

absl::Status checkFiles(const Manifest& manifest) {
  // Bounded before the list is made: K times the schema could be far more than the document itself.
  const Schema& schema = manifest.schema;
  size_t global = manifest.splits.size() + 2 * schema.nodeTypes.size(), perPartition = manifest.splits.size();
  for (const NodeType& type : schema.nodeTypes) perPartition += 1 + type.features.size();
  for (int r = 0; r < static_cast<int>(schema.relations.size()); ++r) {
    perPartition += relationArrays(schema, r).size() + schema.relations[r].features.size();
    if (schema.relations[r].reverseOf < 0) global += 2;
  }
  for (const EdgeSplitInfo& split : manifest.edgeSplits) {
    global += split.labels ? 2 : 1;
    perPartition += split.labels ? 2 : 1;
  }
  if (manifest.cache) {
    for (const CacheInfo::Type& type : manifest.cache->types) perPartition += 1 + type.features.size();
  }
  const size_t expected = perPartition * manifest.haloNodes.size() + global;
  if (expected != manifest.files.size()) {
    return bad(absl::StrCat("lists ", manifest.files.size(), " files where its schema calls for ", expected));
  }
  for (const std::string& path : expectedFiles(manifest)) {
    if (manifest.files.count(path) == 0) return bad(absl::StrCat("does not list the file ", path));
  }
  return absl::OkStatus();
}

}  // namespace

const CacheInfo::Type* CacheInfo::find(int nodeType) const {
  for (const Type& type : types) {
    if (type.nodeType == nodeType) return &type;
  }
  return nullptr;
}

absl::StatusOr<std::string> sealManifest(std::string text) {
  const size_t key = text.find(kChecksumKey);
  const size_t at = key + std::strlen(kChecksumKey);
  if (key == std::string::npos || at + kChecksumDigits > text.size()) {
    return absl::NotFoundError("the document has no key 'checksum'");
  }
  text.replace(at, kChecksumDigits, kChecksumDigits, '0');
  const uint64_t sum = checksum64(std::as_bytes(std::span(text.data(), text.size())));
  char digits[kChecksumDigits + 1];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(sum));
  text.replace(at, kChecksumDigits, digits);
  return text;
}

absl::Status checkManifest(const Manifest& manifest) {
  if (manifest.haloNodes.empty() || manifest.haloNodes.size() > kMaxPartitions) {
    return bad(absl::StrCat("has ", manifest.haloNodes.size(), " partitions; 1 to ", kMaxPartitions,
                            " are possible"));
  }
  FARHOP_RETURN_IF_ERROR(checkNodeTypes(manifest));
  FARHOP_RETURN_IF_ERROR(checkRelations(manifest));
  FARHOP_RETURN_IF_ERROR(checkSplits(manifest));
  FARHOP_RETURN_IF_ERROR(checkEdgeSplits(manifest));
  FARHOP_RETURN_IF_ERROR(checkCache(manifest));
  return checkFiles(manifest);
}

}  // namespace farhop::partition
