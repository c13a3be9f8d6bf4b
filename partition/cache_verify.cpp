#include "partition/cache_verify.h"

#include <cstring>

#include "partition/layout.h"

namespace farhop::partition {
namespace {

// Empty where all rows are the owners'.
std::string checkRows(const OpenStore& open, int partition, int nodeType, const std::string& feature) {
  const PartitionBook& book = open.store.book();
  const NodeCache& cache = *open.shards[static_cast<size_t>(partition)]->cache(nodeType);
  const FeatureTable& copies = cache.features.at(feature);
  for (uint64_t i = 0; i < cache.gids.size(); ++i) {
    const uint64_t gid = cache.gids[i];
    const int owner = book.partitionOf(nodeType, gid);
    const FeatureTable* rows = open.shards[static_cast<size_t>(owner)]->nodeFeature(nodeType, feature);
    const uint64_t row = gid - book.begin(nodeType, owner);
    if (copies.spec.rowBytes() == 0 || std::memcmp(copies.row(i), rows->row(row), copies.spec.rowBytes()) == 0) continue;
    const Schema& schema = open.store.schema();
    return absl::StrCat(open.store.directory(), "/", cacheFeaturePath(schema, partition, nodeType, feature), ": row ", i,
                        " (gid ", gid, ") is not row ", row, " of ", nodeFeaturePath(schema, owner, nodeType, feature));
  }
  return "";
}

}  // namespace

std::vector<std::string> checkCaches(const OpenStore& open) {
  std::vector<std::string> problems;
  for (int k = 0; k < open.store.numPartitions(); ++k) {
    for (const CacheInfo::Type& type : open.store.manifest().cache->types) {
      for (const std::string& feature : type.features) {
        std::string problem = checkRows(open, k, type.nodeType, feature);
        if (!problem.empty()) problems.push_back(std::move(problem));
      }
    }
  }
  return problems;
}

}  // namespace farhop::partition
