#include "partition/cache_writer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "partition/array_opener.h"
#include "partition/cache_plan.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

CacheInfo describeCaches(const Schema& schema, const CacheOptions& options) {
  CacheInfo info;
  info.policy = options.policy;
  info.fraction = options.fraction;
  info.fanouts = options.fanouts;
  info.batch = options.batch;
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
    CacheInfo::Type type;
    type.nodeType = static_cast<int>(t);
    for (const FeatureSpec& feature : schema.nodeTypes[t].features) {
      const std::vector<std::string>& wanted = options.features;
      if (wanted.empty() || std::find(wanted.begin(), wanted.end(), feature.name) != wanted.end()) {
        type.features.push_back(feature.name);
      }
    }
    if (!type.features.empty()) info.types.push_back(std::move(type));
  }
  return info;
}

// The rows of one node type that partition k keeps.
struct KeptRows {
  int partition = 0;
  int nodeType = 0;
  std::vector<uint64_t> gids;
};

absl::Status writeRows(const Dataset& dataset, const CacheInfo::Type& type, const KeptRows& kept,
                       const Manifest& manifest, ArraySink* sink) {
  const Schema& schema = manifest.schema;
  const uint64_t count = schema.nodeTypes[kept.nodeType].count;
  const std::string path = cacheGidsPath(schema, kept.partition, kept.nodeType);
  const auto gid = [&](uint64_t i) { return kept.gids[i]; };
  FARHOP_RETURN_IF_ERROR(count < kSmallNodeCount ? sink->writeColumn<uint32_t>(path, kept.gids.size(), gid)
                                                 : sink->writeColumn<uint64_t>(path, kept.gids.size(), gid));
  std::vector<NpyArray> files;
  FARHOP_ASSIGN_OR_RETURN(const IdArray originalIds,
                          ArrayOpener(sink->root(), manifest)
                              .openIds(globalOriginalIdsPath(schema, kept.nodeType), count, count, &files));
  std::vector<uint64_t> rows;
  rows.reserve(kept.gids.size());
  for (uint64_t id : kept.gids) rows.push_back(originalIds[id]);
  const std::vector<FeatureSpec>& features = schema.nodeTypes[kept.nodeType].features;
  for (size_t f = 0; f < features.size(); ++f) {
    if (std::find(type.features.begin(), type.features.end(), features[f].name) == type.features.end()) continue;
    FARHOP_RETURN_IF_ERROR(
        sink->writeFeature(cacheFeaturePath(schema, kept.partition, kept.nodeType, features[f].name), features[f],
                           dataset.nodeFeatures[static_cast<size_t>(kept.nodeType)][f], rows));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status writeCaches(const Dataset& dataset, const CacheOptions& options,
                         const std::function<void(const std::string&)>& progress, Manifest* manifest,
                         ArraySink* sink) {
  if (options.fraction == 0) return absl::OkStatus();
  CacheInfo info = describeCaches(manifest->schema, options);
  if (info.types.empty()) return absl::OkStatus();
  std::vector<int> types;
  for (const CacheInfo::Type& type : info.types) types.push_back(type.nodeType);
  const CachePlanner planner(sink->root(), *manifest, options, types);
  for (int k = 0; k < manifest->numPartitions(); ++k) {
    if (progress) progress(absl::StrCat("choosing rows for the cache of partition ", k));
    FARHOP_ASSIGN_OR_RETURN(PartitionCachePlan plan, planner.plan(k));
    if (plan.expectedRows >= 0) {
      info.expectedRows.push_back(plan.expectedRows);
      info.expectedHits.push_back(plan.expectedHits);
    }
    for (CacheInfo::Type& type : info.types) {
      KeptRows kept{k, type.nodeType, std::move(plan.gids[static_cast<size_t>(type.nodeType)])};
      type.counts.push_back(kept.gids.size());
      FARHOP_RETURN_IF_ERROR(writeRows(dataset, type, kept, *manifest, sink));
    }
  }
  manifest->cache = std::move(info);
  return absl::OkStatus();
}

}  // namespace farhop::partition
