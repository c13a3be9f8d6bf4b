#include "partition/graph_store.h"

#include <algorithm>
#include <utility>

#include "partition/layout.h"

namespace farhop::partition {
namespace {

std::string shapeText(const std::vector<uint64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&text, shape[i], i + 1 < shape.size() ? ", " : (shape.size() == 1 ? "," : ""));
  }
  return text + ")";
}

// Maps the arrays of one partition, each checked against what graph.json says of it.
class ArrayOpener {
 public:
  ArrayOpener(const std::string& directory, const Manifest& manifest)
      : directory_(directory), manifest_(manifest) {}

  absl::StatusOr<NpyArray> open(const std::string& path, DType dtype,
                                const std::vector<uint64_t>& shape) const {
    const std::string full = absl::StrCat(directory_, "/", path);
    auto listed = manifest_.files.find(path);
    if (listed == manifest_.files.end()) {
      return absl::InternalError(absl::StrCat(directory_, "/", kManifestFile, " does not list ", path));
    }
    auto opened = NpyArray::open(full);
    if (absl::IsNotFound(opened.status())) {
      return absl::NotFoundError(absl::StrCat(full, " is missing; copy it again or write the store again"));
    }
    FARHOP_RETURN_IF_ERROR(opened.status());
    NpyArray array = *std::move(opened);
    const uint64_t bytes = array.fileBytes().size();
    if (bytes != listed->second.bytes) {
      return absl::DataLossError(absl::StrCat(full, " has ", bytes, " bytes instead of ",
                                              listed->second.bytes,
                                              "; it belongs to another store or is damaged, copy it again"));
    }
    if (npyDescriptor(array.dtype()) != npyDescriptor(dtype) || array.shape() != shape ||
        array.header().fortranOrder) {
      return absl::DataLossError(absl::StrCat(full, " holds ", dtypeName(array.dtype()), " of shape ",
                                              shapeText(array.shape()), " instead of ", dtypeName(dtype),
                                              " of shape ", shapeText(shape), "; copy it again"));
    }
    return array;
  }

  // Also keeps the mapping in `files`, where it stays for as long as the shard.
  template <typename T>
  absl::StatusOr<std::span<const T>> openColumn(const std::string& path, uint64_t count,
                                                std::vector<NpyArray>* files) const {
    FARHOP_ASSIGN_OR_RETURN(NpyArray array, open(path, dtypeOf<T>(), {count}));
    FARHOP_ASSIGN_OR_RETURN(auto values, array.as<T>());
    files->push_back(std::move(array));
    return values;
  }

  absl::StatusOr<FeatureTable> openFeature(const std::string& path, const FeatureSpec& spec, uint64_t rows,
                                           std::vector<NpyArray>* files) const {
    std::vector<uint64_t> shape = {rows};
    shape.insert(shape.end(), spec.rowShape.begin(), spec.rowShape.end());
    FARHOP_ASSIGN_OR_RETURN(NpyArray array, open(path, spec.dtype, shape));
    FeatureTable table{spec, rows, array.data().data()};
    files->push_back(std::move(array));
    return table;
  }

 private:
  const std::string& directory_;
  const Manifest& manifest_;
};

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

std::span<const uint64_t> GraphShard::split(const std::string& name, int nodeType) const {
  auto found = splits_.find({canonicalSplitName(name), nodeType});
  return found == splits_.end() ? std::span<const uint64_t>() : found->second;
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
  for (int m = 0; m < machines; ++m) {
    owners.insert(owners.end(), static_cast<size_t>(parts / machines + (m < parts % machines ? 1 : 0)), m);
  }
  return owners;
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
  }
  for (const SplitInfo& split : splits()) {
    FARHOP_ASSIGN_OR_RETURN(
        auto seeds, opener.openColumn<uint64_t>(splitPath(schema(), partition, split.nodeType, split.name),
                                                split.partitionCounts[partition], &shard.files_));
    FARHOP_RETURN_IF_ERROR(checkSplit(split, partition, seeds));
    shard.splits_[{split.name, split.nodeType}] = seeds;
  }
  return shard;
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

absl::StatusOr<std::span<const uint64_t>> GraphStore::openGlobal(const std::string& path, uint64_t elements,
                                                                 const ArrayCheck& check) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto known = globals_.find(path);
  if (known == globals_.end()) {
    const ArrayOpener opener(directory_, manifest_);
    FARHOP_ASSIGN_OR_RETURN(NpyArray array, opener.open(path, DType::kUInt64, {elements}));
    FARHOP_ASSIGN_OR_RETURN(const auto values, array.as<uint64_t>());
    if (check) FARHOP_RETURN_IF_ERROR(check(values));
    known = globals_.emplace(path, std::move(array)).first;
  }
  return known->second.as<uint64_t>();
}

absl::StatusOr<std::span<const uint64_t>> GraphStore::gidsByOriginalId(int nodeType) const {
  return openGlobal(gidMapPath(schema(), nodeType), book_.numNodes(nodeType), nullptr);
}

absl::StatusOr<std::span<const uint64_t>> GraphStore::splitOriginalIds(const std::string& name,
                                                                       int nodeType) const {
  const std::string canonical = canonicalSplitName(name);
  for (const SplitInfo& split : splits()) {
    if (split.name != canonical || split.nodeType != nodeType) continue;
    const std::string path = globalSplitPath(schema(), nodeType, canonical);
    const uint64_t nodes = book_.numNodes(nodeType);
    const auto check = [&](std::span<const uint64_t> ids) -> absl::Status {
      for (uint64_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < nodes && (i == 0 || ids[i - 1] <= ids[i])) continue;
        const std::string what = ids[i] < nodes
                                     ? absl::StrCat("seeds ", i - 1, " and ", i, " are not ascending")
                                     : absl::StrCat("original id ", ids[i], " at ", i, " is out of range (", nodes,
                                                    " nodes)");
        return absl::DataLossError(absl::StrCat(directory_, "/", path, ": ", what, "; copy it again"));
      }
      return absl::OkStatus();
    };
    return openGlobal(path, split.count, check);
  }
  return absl::NotFoundError(absl::StrCat(directory_, " has no split '", name, "' of node type '",
                                          schema().nodeTypes[nodeType].name, "'"));
}

}  // namespace farhop::partition
