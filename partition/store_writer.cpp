#include "partition/store_writer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/npy.h"
#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/manifest.h"
#include "partition/partition_book.h"
#include "partition/staged_directory.h"
#include "partition/store_relation.h"

namespace farhop::partition {
namespace {

constexpr size_t kChunkElements = size_t{1} << 16;

class StoreWriter {
 public:
  StoreWriter(const Dataset& dataset, const PartitionAssignment& assignment,
              const StoreWriterOptions& options, const StagedDirectory& staged)
      : dataset_(dataset), assignment_(assignment), options_(options), staged_(staged), root_(staged.path()) {}

  absl::Status write() {
    FARHOP_RETURN_IF_ERROR(describe());
    numberNodes();
    for (size_t t = 0; t < schema().nodeTypes.size(); ++t)
      FARHOP_RETURN_IF_ERROR(writeNodes(static_cast<int>(t)));
    FARHOP_RETURN_IF_ERROR(writeSplits());
    for (size_t r = 0; r < schema().relations.size(); ++r)
      FARHOP_RETURN_IF_ERROR(writeRelation(static_cast<int>(r)));
    FARHOP_RETURN_IF_ERROR(countHaloNodes());
    FARHOP_RETURN_IF_ERROR(checkManifest(manifest_));
    // graph.json makes a directory a store: it comes when all else is on the disk.
    FARHOP_RETURN_IF_ERROR(staged_.sync());
    return writeFileAtomically(absl::StrCat(root_, "/", kManifestFile), formatManifest(manifest_));
  }

 private:
  const Schema& schema() const { return manifest_.schema; }
  int parts() const { return assignment_.numPartitions; }
  void progress(const std::string& line) const {
    if (options_.progress) options_.progress(line);
  }

  absl::Status describe() {
    manifest_.dataset = dataset_.name;
    manifest_.task = dataset_.task;
    manifest_.numClasses = dataset_.numClasses;
    manifest_.method = options_.method;
    manifest_.seed = options_.seed;
    manifest_.schema = dataset_.schema;
    manifest_.haloNodes.assign(static_cast<size_t>(parts()), 0);
    if (!options_.addReverse) return absl::OkStatus();
    const size_t forward = dataset_.schema.relations.size();
    for (size_t r = 0; r < forward; ++r) {
      Relation reverse = dataset_.schema.relations[r];
      reverse.name = absl::StrCat("rev_", reverse.name);
      std::swap(reverse.source, reverse.destination);
      reverse.reverseOf = static_cast<int>(r);
      reverse.features.clear();
      manifest_.schema.relations.push_back(std::move(reverse));
      const std::string text = schema().relationText(static_cast<int>(forward + r));
      FARHOP_RETURN_IF_ERROR(checkName("the reverse relation", manifest_.schema.relations.back().name));
      for (size_t other = 0; other < forward; ++other) {
        if (schema().relationText(static_cast<int>(other)) == text) {
          return absl::AlreadyExistsError(absl::StrCat("the data set has a relation ", text,
                                                       " of its own; leave out --add-reverse or rename it"));
        }
      }
    }
    return absl::OkStatus();
  }

  // Gids: per type, partition after partition, inside a partition by original id.
  void numberNodes() {
    for (size_t t = 0; t < schema().nodeTypes.size(); ++t) {
      const std::vector<int32_t>& partitionOf = assignment_.partitionOf[t];
      std::vector<uint64_t> offsets(static_cast<size_t>(parts()) + 1, 0);
      for (int32_t partition : partitionOf) ++offsets[static_cast<size_t>(partition) + 1];
      for (size_t k = 1; k < offsets.size(); ++k) offsets[k] += offsets[k - 1];
      std::vector<uint64_t> next(offsets.begin(), offsets.end() - 1);
      std::vector<uint64_t> gids(partitionOf.size());
      for (size_t id = 0; id < gids.size(); ++id) gids[id] = next[static_cast<size_t>(partitionOf[id])]++;
      gids_.push_back(std::move(gids));
      manifest_.offsets.push_back(std::move(offsets));
    }
    book_ = PartitionBook(manifest_.offsets);
  }

  // Creates the file's directories; `fill(writer)` writes the data.
  template <typename Fill>
  absl::Status writeArray(const std::string& path, DType dtype, std::vector<uint64_t> shape,
                          const Fill& fill) {
    const std::string full = absl::StrCat(root_, "/", path);
    FARHOP_RETURN_IF_ERROR(makeDirectories(full.substr(0, full.rfind('/'))));
    FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(full, dtype, std::move(shape)));
    FARHOP_RETURN_IF_ERROR(fill(writer));
    FARHOP_RETURN_IF_ERROR(writer.commit(Durability::kStarted));
    manifest_.files[path] = {writer.fileBytes(), writer.checksum()};
    return absl::OkStatus();
  }

  // A one-dimensional array whose element i is value(i), in chunks.
  template <typename T, typename Value>
  absl::Status writeColumn(const std::string& path, uint64_t count, const Value& value) {
    return writeArray(path, dtypeOf<T>(), {count}, [&](NpyWriter& writer) -> absl::Status {
      std::vector<T> chunk;
      chunk.reserve(static_cast<size_t>(std::min<uint64_t>(count, kChunkElements)));
      for (uint64_t i = 0; i < count; ++i) {
        chunk.push_back(static_cast<T>(value(i)));
        if (chunk.size() < kChunkElements && i + 1 < count) continue;
        FARHOP_RETURN_IF_ERROR(writer.write(chunk.data(), chunk.size() * sizeof(T)));
        chunk.clear();
      }
      return absl::OkStatus();
    });
  }

  // Rows rowIds[0], rowIds[1], ... of a feature.
  absl::Status writeFeature(const std::string& path, const FeatureSpec& spec, const FeatureColumn& column,
                            std::span<const uint64_t> rowIds) {
    std::vector<uint64_t> shape = {rowIds.size()};
    shape.insert(shape.end(), spec.rowShape.begin(), spec.rowShape.end());
    const size_t rowBytes = spec.rowBytes();
    return writeArray(path, spec.dtype, std::move(shape), [&](NpyWriter& writer) -> absl::Status {
      if (rowBytes == 0) return absl::OkStatus();
      for (uint64_t id : rowIds) FARHOP_RETURN_IF_ERROR(writer.write(column.data + id * rowBytes, rowBytes));
      return absl::OkStatus();
    });
  }

  absl::Status writeNodes(int t) {
    const NodeType& type = schema().nodeTypes[t];
    progress(absl::StrCat("writing ", type.count, " nodes of type ", type.name));
    const std::vector<uint64_t>& gids = gids_[t];
    FARHOP_RETURN_IF_ERROR(
        writeColumn<uint64_t>(gidMapPath(schema(), t), gids.size(), [&](uint64_t i) { return gids[i]; }));
    std::vector<uint64_t> originalIds(gids.size());  // by gid
    for (uint64_t id = 0; id < gids.size(); ++id) originalIds[gids[id]] = id;
    for (int k = 0; k < parts(); ++k) {
      const auto own = std::span<const uint64_t>(originalIds).subspan(book_.begin(t, k), book_.count(t, k));
      FARHOP_RETURN_IF_ERROR(writeColumn<uint64_t>(originalIdsPath(schema(), k, t), own.size(),
                                                   [&](uint64_t i) { return own[i]; }));
      for (size_t f = 0; f < type.features.size(); ++f) {
        FARHOP_RETURN_IF_ERROR(writeFeature(nodeFeaturePath(schema(), k, t, type.features[f].name),
                                            type.features[f], dataset_.nodeFeatures[t][f], own));
      }
    }
    return absl::OkStatus();
  }

  absl::Status writeSplits() {
    for (const SplitSeeds& split : dataset_.splits) {
      SplitInfo info{split.name, split.nodeType, split.ids.size(), {}};
      std::vector<std::vector<uint64_t>> seeds(static_cast<size_t>(parts()));
      for (uint64_t id : split.ids) {
        const uint64_t gid = gids_[split.nodeType][id];
        seeds[static_cast<size_t>(assignment_.partitionOf[split.nodeType][id])].push_back(gid);
      }
      FARHOP_RETURN_IF_ERROR(writeColumn<uint64_t>(globalSplitPath(schema(), split.nodeType, split.name),
                                                   split.ids.size(), [&](uint64_t i) { return split.ids[i]; }));
      for (int k = 0; k < parts(); ++k) {
        const std::vector<uint64_t>& own = seeds[static_cast<size_t>(k)];
        FARHOP_RETURN_IF_ERROR(writeColumn<uint64_t>(splitPath(schema(), k, split.nodeType, split.name),
                                                     own.size(), [&](uint64_t i) { return own[i]; }));
        info.partitionCounts.push_back(own.size());
      }
      manifest_.splits.push_back(std::move(info));
    }
    return absl::OkStatus();
  }

  absl::Status writeRelation(int r) {
    const Relation& relation = schema().relations[r];
    progress(absl::StrCat("writing ", relation.count, " edges of ", schema().relationText(r)));
    const bool reverse = relation.reverseOf >= 0;
    const EdgeList& edges = dataset_.edges[reverse ? relation.reverseOf : r];
    const IdColumn& source = reverse ? edges.destination : edges.source;
    const IdColumn& destination = reverse ? edges.source : edges.destination;
    const RelationCsr csr = buildRelationCsr(source, schema().nodeTypes[relation.source].count, destination,
                                             gids_[relation.destination]);
    manifest_.partitionEdges.emplace_back();
    manifest_.remoteEdges.emplace_back();
    for (int k = 0; k < parts(); ++k) FARHOP_RETURN_IF_ERROR(writeRelationPartition(r, k, source, csr));
    return absl::OkStatus();
  }

  absl::Status writeRelationPartition(int r, int k, const IdColumn& source, const RelationCsr& csr) {
    const Relation& relation = schema().relations[r];
    const uint64_t firstRow = book_.begin(relation.destination, k),
                   rows = book_.count(relation.destination, k);
    const uint64_t firstEdge = csr.indptr[firstRow];
    const auto edgeIds =
        std::span<const uint64_t>(csr.edgeIds).subspan(firstEdge, csr.indptr[firstRow + rows] - firstEdge);
    FARHOP_RETURN_IF_ERROR(
        writeColumn<uint64_t>(relationPath(schema(), k, r, "indptr"), rows + 1,
                              [&](uint64_t i) { return csr.indptr[firstRow + i] - firstEdge; }));
    FARHOP_RETURN_IF_ERROR(writeColumn<uint64_t>(relationPath(schema(), k, r, "edge_ids"), edgeIds.size(),
                                                 [&](uint64_t i) { return edgeIds[i]; }));
    const std::vector<uint64_t>& gids = gids_[relation.source];
    uint64_t remote = 0;
    auto neighbor = [&](uint64_t i) {
      const uint64_t gid = gids[source[edgeIds[i]]];
      remote += gid < book_.begin(relation.source, k) || gid >= book_.end(relation.source, k);
      return gid;
    };
    const std::string path = relationPath(schema(), k, r, "neighbors");
    if (schema().nodeTypes[relation.source].count < kSmallNodeCount) {
      FARHOP_RETURN_IF_ERROR(writeColumn<uint32_t>(path, edgeIds.size(), neighbor));
    } else {
      FARHOP_RETURN_IF_ERROR(writeColumn<uint64_t>(path, edgeIds.size(), neighbor));
    }
    manifest_.partitionEdges.back().push_back(edgeIds.size());
    manifest_.remoteEdges.back().push_back(remote);
    for (size_t f = 0; f < relation.features.size(); ++f) {
      FARHOP_RETURN_IF_ERROR(writeFeature(edgeFeaturePath(schema(), k, r, relation.features[f].name),
                                          relation.features[f], dataset_.edgeFeatures[r][f], edgeIds));
    }
    return absl::OkStatus();
  }

  // From the files just written, partition by partition, so that one bit per node is enough.
  absl::Status countHaloNodes() {
    progress("counting halo nodes");
    for (int k = 0; k < parts(); ++k) {
      std::vector<std::vector<bool>> seen(schema().nodeTypes.size());
      for (size_t r = 0; r < schema().relations.size(); ++r) {
        const int source = schema().relations[r].source;
        std::vector<bool>& nodes = seen[source];
        nodes.resize(book_.numNodes(source));
        FARHOP_ASSIGN_OR_RETURN(
            NpyArray neighbors,
            NpyArray::open(
                absl::StrCat(root_, "/", relationPath(schema(), k, static_cast<int>(r), "neighbors"))));
        auto mark = [&](const auto& gids) {
          for (uint64_t gid : gids) {
            const bool own = gid >= book_.begin(source, k) && gid < book_.end(source, k);
            if (own || nodes[gid]) continue;
            nodes[gid] = true;
            ++manifest_.haloNodes[static_cast<size_t>(k)];
          }
        };
        if (neighbors.dtype() == DType::kUInt32) {
          FARHOP_ASSIGN_OR_RETURN(auto gids, neighbors.as<uint32_t>());
          mark(gids);
        } else {
          FARHOP_ASSIGN_OR_RETURN(auto gids, neighbors.as<uint64_t>());
          mark(gids);
        }
      }
    }
    return absl::OkStatus();
  }

  const Dataset& dataset_;
  const PartitionAssignment& assignment_;
  const StoreWriterOptions& options_;
  const StagedDirectory& staged_;
  const std::string root_;
  Manifest manifest_;
  PartitionBook book_;
  std::vector<std::vector<uint64_t>> gids_;  // [node type][original id]
};

}  // namespace

absl::Status writeStore(const Dataset& dataset, const PartitionAssignment& assignment,
                        const StoreWriterOptions& options) {
  FARHOP_RETURN_IF_ERROR(checkDataset(dataset));
  FARHOP_RETURN_IF_ERROR(checkAssignment(dataset, assignment));
  FARHOP_ASSIGN_OR_RETURN(StagedDirectory staged, StagedDirectory::create(options.directory, options.force));
  FARHOP_RETURN_IF_ERROR(StoreWriter(dataset, assignment, options, staged).write());
  return staged.commit();
}

}  // namespace farhop::partition
