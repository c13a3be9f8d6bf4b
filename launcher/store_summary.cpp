#include "launcher/store_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

uint64_t featureRowBytes(const std::vector<partition::FeatureSpec>& features) {
  uint64_t bytes = 0;
  for (const partition::FeatureSpec& feature : features) bytes += feature.rowBytes();
  return bytes;
}

double share(uint64_t part, uint64_t of) {
  return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
}

std::vector<std::string> tableRow(const std::string& name, const PartitionFigures& p) {
  return {name,
          formatCount(p.nodes),
          formatCount(p.trainSeeds),
          formatCount(p.edges),
          formatShare(p.remoteEdges, p.edges),
          formatCount(p.haloNodes),
          formatShare(p.haloNodes, p.nodes),
          formatBytes(p.featureBytes)};
}

}  // namespace

PartitionFigures StoreSummary::total() const {
  PartitionFigures sum;
  for (const PartitionFigures& p : partitions) {
    sum.nodes += p.nodes;
    sum.edges += p.edges;
    sum.remoteEdges += p.remoteEdges;
    sum.haloNodes += p.haloNodes;
    sum.trainSeeds += p.trainSeeds;
    sum.featureBytes += p.featureBytes;
  }
  return sum;
}

StoreSummary summarizeStore(const partition::GraphStore& store) {
  const partition::Manifest& manifest = store.manifest();
  const partition::Schema& schema = store.schema();
  StoreSummary summary;
  for (size_t k = 0; k < static_cast<size_t>(store.numPartitions()); ++k) {
    PartitionFigures figures;
    figures.haloNodes = manifest.haloNodes[k];
    for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
      const uint64_t nodes = store.book().count(static_cast<int>(t), static_cast<int>(k));
      figures.nodes += nodes;
      figures.featureBytes += nodes * featureRowBytes(schema.nodeTypes[t].features);
    }
    for (size_t r = 0; r < schema.relations.size(); ++r) {
      const uint64_t edges = manifest.partitionEdges[r][k], remote = manifest.remoteEdges[r][k];
      figures.edges += edges;
      figures.remoteEdges += remote;
      figures.featureBytes += edges * featureRowBytes(schema.relations[r].features);
      if (schema.relations[r].reverseOf >= 0) continue;
      summary.forwardEdges += edges;
      summary.cutEdges += remote;
    }
    for (const partition::SplitInfo& split : store.splits()) {
      if (split.name == "train") figures.trainSeeds += split.partitionCounts[k];
    }
    for (const partition::EdgeSplitInfo& split : store.edgeSplits()) {
      if (split.name == "train") figures.trainSeeds += split.partitionCounts[k];
    }
    summary.partitions.push_back(figures);
  }
  return summary;
}

double imbalance(const StoreSummary& summary, uint64_t PartitionFigures::*figure) {
  uint64_t largest = 0, sum = 0;
  for (const PartitionFigures& p : summary.partitions) {
    largest = std::max(largest, p.*figure);
    sum += p.*figure;
  }
  if (sum == 0) return 1;
  return static_cast<double>(largest) * static_cast<double>(summary.partitions.size()) /
         static_cast<double>(sum);
}

std::string timesText(const partition::Schema& schema, int relation) {
  if (!schema.hasTimes(relation)) return "-";
  const std::string& ofEdge = schema.relations[relation].timeFeature;
  const partition::NodeType& source = schema.nodeTypes[schema.relations[relation].source];
  if (source.timeFeature.empty()) return ofEdge;
  const std::string ofNode = absl::StrCat(source.timeFeature, " of ", source.name);
  return ofEdge.empty() ? ofNode : absl::StrCat("the later of ", ofEdge, " and ", ofNode);
}

std::string summaryTable(const StoreSummary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"partition", "nodes", "train seeds", "in-edges", "remote", "halo nodes", "halo / nodes", "features"}};
  for (size_t k = 0; k < summary.partitions.size(); ++k)
    rows.push_back(tableRow(std::to_string(k), summary.partitions[k]));
  rows.push_back(tableRow("all", summary.total()));
  return formatTable(rows);
}

nlohmann::ordered_json summaryJson(const StoreSummary& summary) {
  nlohmann::ordered_json json;
  json["cut_edges"] = summary.cutEdges;
  json["forward_edges"] = summary.forwardEdges;
  json["cut_share"] = share(summary.cutEdges, summary.forwardEdges);
  json["balance"] = {{"nodes", imbalance(summary, &PartitionFigures::nodes)},
                     {"train_seeds", imbalance(summary, &PartitionFigures::trainSeeds)},
                     {"edges", imbalance(summary, &PartitionFigures::edges)}};
  nlohmann::ordered_json& list = json["partitions"] = nlohmann::ordered_json::array();
  for (const PartitionFigures& p : summary.partitions) {
    list.push_back({{"nodes", p.nodes},
                    {"train_seeds", p.trainSeeds},
                    {"edges", p.edges},
                    {"remote_edges", p.remoteEdges},
                    {"remote_share", share(p.remoteEdges, p.edges)},
                    {"halo_nodes", p.haloNodes},
                    {"halo_share", share(p.haloNodes, p.nodes)},
                    {"feature_bytes", p.featureBytes}});
  }
  return json;
}

namespace {

struct CacheFigures {
  uint64_t rows = 0;
  uint64_t bytes = 0;
  double expectedRows = 0;  // remote, in a batch of each partition
  double expectedHits = 0;
};

CacheFigures summarizeCache(const partition::GraphStore& store) {
  CacheFigures figures;
  const partition::CacheInfo& cache = *store.manifest().cache;
  for (const partition::CacheInfo::Type& type : cache.types) {
    uint64_t rows = 0, rowBytes = 0;
    for (uint64_t count : type.counts) rows += count;
    for (const std::string& name : type.features) {
      rowBytes += partition::findFeature(store.schema().nodeTypes[type.nodeType].features, name)->rowBytes();
    }
    figures.rows += rows;
    figures.bytes += rows * rowBytes;
  }
  for (double rows : cache.expectedRows) figures.expectedRows += rows;
  for (double rows : cache.expectedHits) figures.expectedHits += rows;
  return figures;
}

}  // namespace

std::string cacheText(const partition::GraphStore& store) {
  const partition::CacheInfo& cache = *store.manifest().cache;
  const CacheFigures figures = summarizeCache(store);
  std::string fanouts;
  for (int64_t fanout : cache.fanouts) absl::StrAppend(&fanouts, fanouts.empty() ? "" : ",", fanout);
  std::string text =
      absl::StrCat(formatCount(figures.rows), " rows of other partitions (", formatBytes(figures.bytes), "), fraction ",
                   cache.fraction, " by ", partition::cachePolicyName(cache.policy));
  if (figures.expectedRows > 0) {
    absl::StrAppend(&text, "; with fanouts ", fanouts, " and batches of ", formatCount(cache.batch),
                    " expected to save ", formatFixed(100 * figures.expectedHits / figures.expectedRows, 1),
                    " % of remote rows");
  }
  return text;
}

nlohmann::ordered_json cacheJson(const partition::GraphStore& store) {
  const partition::CacheInfo& cache = *store.manifest().cache;
  const CacheFigures figures = summarizeCache(store);
  nlohmann::ordered_json json = {{"policy", std::string(partition::cachePolicyName(cache.policy))},
                                 {"fraction", cache.fraction},
                                 {"fanouts", cache.fanouts},
                                 {"batch", cache.batch},
                                 {"rows", figures.rows},
                                 {"bytes", figures.bytes}};
  if (figures.expectedRows > 0) {
    json["expected_remote_rows_per_batch"] = cache.expectedRows;
    json["expected_cached_rows_per_batch"] = cache.expectedHits;
    json["expected_saved_share"] = figures.expectedHits / figures.expectedRows;
  }
  nlohmann::ordered_json& types = json["node_types"] = nlohmann::ordered_json::array();
  for (const partition::CacheInfo::Type& type : cache.types) {
    types.push_back({{"name", store.schema().nodeTypes[type.nodeType].name},
                     {"features", type.features},
                     {"rows", type.counts}});
  }
  return json;
}

}  // namespace farhop::launcher
