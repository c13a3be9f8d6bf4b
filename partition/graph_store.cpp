#include "partition/graph_store.h"

#include <algorithm>
#include <utility>

#include "partition/array_opener.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

const FeatureTable* findFeature(const std::map<std::string, FeatureTable>& features,
                                const std::string& name) {
  auto found = features.find(name);
  return found == features.end() ? nullptr : &found->second;
}

}  // namespace

const FeatureTable* GraphShard::nodeFeature(int nodeType, const std::string& name) const {
  return findFeature(nodeFeatures_[nodeType], name);
}

const FeatureTable* GraphShard::edgeFeature(int relation, const std::string& name) const {
  return findFeature(edgeFeatures_[relation], name);
}

const NodeCache* GraphShard::cache(int nodeType) const {
  auto found = caches_.find(nodeType);
  return found == caches_.end() ? nullptr : &found->second;
}

std::span<const uint64_t> GraphShard::split(const std::string& name, int nodeType) const {
  auto found = splits_.find({canonicalSplitName(name), nodeType});
  return found == splits_.end() ? std::span<const uint64_t>() : found->second;
}

EdgeSeeds GraphShard::edgeSplit(const std::string& name, int relation) const {
  auto found = edgeSplits_.find({canonicalSplitName(name), relation});
  return found == edgeSplits_.end() ? EdgeSeeds() : found->second;
}

absl::StatusOr<std::shared_ptr<const GraphStore>> GraphStore::open(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestFile);
  auto file = MappedFile::open(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(directory, " is no finished graph store: ", path,
                                            " is missing. Write it with `farhop partition`"));
  }
  FARHOP_RETURN_IF_ERROR(file.status());
  const std::span<const std::byte> bytes = file->bytes();
  auto manifest = parseManifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!manifest.ok()) return annotate(manifest.status(), path);
  std::shared_ptr<GraphStore> store(new GraphStore());
  store->directory_ = directory;
  store->manifest_ = *std::move(manifest);
  store->book_ = PartitionBook(store->manifest_.offsets);
  store->fingerprint_ = checksum64(bytes);
  return store;
}

absl::StatusOr<std::vector<int>> GraphStore::assign(int machines) const {
  const int parts = numPartitions();
  if (machines < 1 || parts < machines) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, " has ", parts, " partitions, too few for ",
                                                   machines, " machines; partition it again with --parts ",
                                                   machines, " or more"));
  }
  std::vector<int> owners;
  for (int k = 0; k < parts; ++k) owners.push_back(machineOfPartition(k, parts, machines));
  return owners;
}

int machineOfPartition(int partition, int partitions, int machines) {
  const int share = partitions / machines, larger = partitions % machines;
  const int inLarger = larger * (share + 1);
  return partition < inLarger ? partition / (share + 1) : larger + (partition - inLarger) / share;
}

absl::StatusOr<RelationShard> GraphStore::openRelation(int partition, int relation,
                                                       std::vector<NpyArray>* files) const {
  const ArrayOpener opener(directory_, manifest_);
  const Relation& r = schema().relations[relation];
  const uint64_t rows = book_.count(r.destination, partition);
  const uint64_t edges = manifest_.partitionEdges[relation][partition];
  const std::string indptrPath = relationPath(schema(), partition, relation, "indptr");
  const std::string neighborsPath = relationPath(schema(), partition, relation, "neighbors");
  RelationShard shard;
  FARHOP_ASSIGN_OR_RETURN(shard.indptr, opener.openColumn<uint64_t>(indptrPath, rows + 1, files));
  if (shard.indptr.front() != 0 || shard.indptr.back() != edges) {
    return absl::DataLossError(absl::StrCat(directory_, "/", indptrPath, " runs from ", shard.indptr.front(),
                                            " to ", shard.indptr.back(), " instead of 0 to ", edges,
                                            "; copy it again"));
  }
  for (uint64_t row = 0; row < rows; ++row) {
    if (shard.indptr[row] <= shard.indptr[row + 1] && shard.indptr[row + 1] <= edges) continue;
    return absl::DataLossError(absl::StrCat(directory_, "/", indptrPath, ": row ", row,
                                            " ends before it begins or after the last edge; copy it again"));
  }
  if (schema().nodeTypes[r.source].count < kSmallNodeCount) {
    FARHOP_ASSIGN_OR_RETURN(shard.neighbors32, opener.openColumn<uint32_t>(neighborsPath, edges, files));
  } else {
    FARHOP_ASSIGN_OR_RETURN(shard.neighbors64, opener.openColumn<uint64_t>(neighborsPath, edges, files));
  }
  FARHOP_ASSIGN_OR_RETURN(
      shard.edgeIds,
      opener.openColumn<uint64_t>(relationPath(schema(), partition, relation, "edge_ids"), edges, files));
  if (schema().hasTimes(relation)) {
    FARHOP_ASSIGN_OR_RETURN(
        shard.times,
        opener.openColumn<int64_t>(relationPath(schema(), partition, relation, "times"), edges, files));
  }
  if (schema().storesWeights(relation)) {
    FARHOP_ASSIGN_OR_RETURN(
        shard.weights,
        opener.openColumn<float>(relationPath(schema(), partition, relation, "weights"), edges, files));
  }
  return shard;
}

absl::StatusOr<GraphShard> GraphStore::openPartition(int partition) const {
  if (partition < 0 || partition >= numPartitions()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, " has no partition ", partition, "; it has ", numPartitions()));
  }
  const ArrayOpener opener(directory_, manifest_);
  GraphShard shard;
  shard.index_ = partition;
  for (int t = 0; t < static_cast<int>(schema().nodeTypes.size()); ++t) {
    const uint64_t rows = book_.count(t, partition);
    FARHOP_ASSIGN_OR_RETURN(
        auto ids, opener.openColumn<uint64_t>(originalIdsPath(schema(), partition, t), rows, &shard.files_));
    shard.originalIds_.push_back(ids);
    shard.nodeFeatures_.emplace_back();
    for (const FeatureSpec& spec : schema().nodeTypes[t].features) {
      FARHOP_ASSIGN_OR_RETURN(
          shard.nodeFeatures_.back()[spec.name],
          opener.openFeature(nodeFeaturePath(schema(), partition, t, spec.name), spec, rows, &shard.files_));
    }
  }
  for (int r = 0; r < static_cast<int>(schema().relations.size()); ++r) {
    FARHOP_ASSIGN_OR_RETURN(RelationShard relation, openRelation(partition, r, &shard.files_));
    shard.relations_.push_back(relation);
    shard.edgeFeatures_.emplace_back();
    for (const FeatureSpec& spec : schema().relations[r].features) {
      FARHOP_ASSIGN_OR_RETURN(shard.edgeFeatures_.back()[spec.name],
                              opener.openFeature(edgeFeaturePath(schema(), partition, r, spec.name), spec,
                                                 relation.edges(), &shard.files_));
    }
    if (schema().hasWeights(r) && !schema().storesWeights(r)) {
      const FeatureTable& feature = shard.edgeFeatures_.back().at(schema().relations[r].weightFeature);
      shard.relations_.back().weights = {reinterpret_cast<const float*>(feature.data), feature.rows};
    }
  }
  for (const SplitInfo& split : splits()) {
    FARHOP_ASSIGN_OR_RETURN(
        auto seeds, opener.openColumn<uint64_t>(splitPath(schema(), partition, split.nodeType, split.name),
                                                split.partitionCounts[partition], &shard.files_));
    FARHOP_RETURN_IF_ERROR(checkSplit(split, partition, seeds));
    shard.splits_[{split.name, split.nodeType}] = seeds;
  }
  if (manifest_.cache) {
    for (const CacheInfo::Type& type : manifest_.cache->types) {
      FARHOP_ASSIGN_OR_RETURN(shard.caches_[type.nodeType], openCache(partition, type, &shard.files_));
    }
  }
  for (const EdgeSplitInfo& split : edgeSplits()) {
    const uint64_t count = split.partitionCounts[partition];
    EdgeSeeds& seeds = shard.edgeSplits_[{split.name, split.relation}];
    FARHOP_ASSIGN_OR_RETURN(
        seeds.ends, opener.openArray<uint64_t>(edgeSplitPath(schema(), partition, split.relation, split.name),
                                               {count, 2}, &shard.files_));
    FARHOP_RETURN_IF_ERROR(checkEdgeSplit(split, partition, seeds.ends));
    if (!split.labels) continue;
    FARHOP_ASSIGN_OR_RETURN(
        seeds.labels, opener.openFeature(edgeSplitLabelsPath(schema(), partition, split.relation, split.name),
                                         *split.labels, count, &shard.files_));
  }
  return shard;
}

absl::StatusOr<NodeCache> GraphStore::openCache(int partition, const CacheInfo::Type& type,
                                                std::vector<NpyArray>* files) const {
  const ArrayOpener opener(directory_, manifest_);
  const int t = type.nodeType;
  const uint64_t count = type.counts[static_cast<size_t>(partition)], nodes = book_.numNodes(t);
  NodeCache cache;
  const std::string path = cacheGidsPath(schema(), partition, t);
  FARHOP_ASSIGN_OR_RETURN(cache.gids, opener.openIds(path, count, nodes, files));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t gid = cache.gids[i];
    const bool own = gid >= book_.begin(t, partition) && gid < book_.end(t, partition);
    if (!own && gid < nodes && (i == 0 || cache.gids[i - 1] < gid)) continue;
    const std::string what = own            ? absl::StrCat("gid ", gid, " at ", i, " is the partition's own")
                             : gid >= nodes ? absl::StrCat("gid ", gid, " at ", i, " is out of range (", nodes, " nodes)")
                                            : absl::StrCat("gids ", i - 1, " and ", i, " are not ascending");
    return absl::DataLossError(absl::StrCat(directory_, "/", path, ": ", what, "; copy it again"));
  }
  for (const std::string& name : type.features) {
    FARHOP_ASSIGN_OR_RETURN(cache.features[name],
                            opener.openFeature(cacheFeaturePath(schema(), partition, t, name),
                                               *findFeature(schema().nodeTypes[t].features, name), count, files));
  }
  return cache;
}

absl::Status GraphStore::checkSplit(const SplitInfo& split, int partition,
                                    std::span<const uint64_t> seeds) const {
  const uint64_t begin = book_.begin(split.nodeType, partition), end = book_.end(split.nodeType, partition);
  for (uint64_t i = 0; i < seeds.size(); ++i) {
    const bool own = seeds[i] >= begin && seeds[i] < end;
    if (own && (i == 0 || seeds[i - 1] <= seeds[i])) continue;
    const std::string what = own ? absl::StrCat("seeds ", i - 1, " and ", i, " are not ascending")
                                 : absl::StrCat("seed ", seeds[i], " at ", i, " is not owned by partition ", partition);
    return absl::DataLossError(absl::StrCat(directory_, "/",
                                            splitPath(schema(), partition, split.nodeType, split.name), ": ", what,
                                            "; copy it again"));
  }
  return absl::OkStatus();
}

absl::Status GraphStore::checkEdgeSplit(const EdgeSplitInfo& split, int partition,
                                        std::span<const uint64_t> ends) const {
  const Relation& relation = schema().relations[split.relation];
  const uint64_t sources = book_.numNodes(relation.source);
  const uint64_t begin = book_.begin(relation.destination, partition), end = book_.end(relation.destination, partition);
  for (uint64_t i = 0; i < ends.size(); i += 2) {
    const bool own = ends[i + 1] >= begin && ends[i + 1] < end;
    if (own && ends[i] < sources) continue;
    const std::string what =
        own ? absl::StrCat("source ", ends[i], " of seed ", i / 2, " is out of range (", sources, " nodes)")
            : absl::StrCat("destination ", ends[i + 1], " of seed ", i / 2, " is not owned by partition ", partition);
    return absl::DataLossError(absl::StrCat(directory_, "/",
                                            edgeSplitPath(schema(), partition, split.relation, split.name), ": ",
                                            what, "; copy it again"));
  }
  return absl::OkStatus();
}

}  // namespace farhop::partition
