#include "partition/store_writer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/npy.h"
#include "partition/array_sink.h"
#include "partition/cache_plan.h"
#include "partition/cache_writer.h"
#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/manifest.h"
#include "partition/partition_book.h"
#include "partition/relation_writer.h"
#include "partition/staged_directory.h"

namespace farhop::partition {
namespace {

class StoreWriter {
 public:
  StoreWriter(const Dataset& dataset, const PartitionAssignment& assignment,
              const StoreWriterOptions& options, const StagedDirectory& staged)
      : dataset_(dataset),
        assignment_(assignment),
        options_(options),
        staged_(staged),
        sink_(staged.path(), &manifest_.files) {}

  absl::Status write() {
    FARHOP_RETURN_IF_ERROR(describe());
    numberNodes();
    for (size_t t = 0; t < schema().nodeTypes.size(); ++t)
      FARHOP_RETURN_IF_ERROR(writeNodes(static_cast<int>(t)));
    FARHOP_RETURN_IF_ERROR(writeSplits());
    FARHOP_RETURN_IF_ERROR(writeEdgeSplits());
    RelationWriter relations({dataset_, book_, gids_}, &manifest_, &sink_);
    for (int r = 0; r < static_cast<int>(schema().relations.size()); ++r) {
      progress(absl::StrCat("writing ", schema().relations[r].count, " edges of ", schema().relationText(r)));
      FARHOP_RETURN_IF_ERROR(relations.write(r));
    }
    FARHOP_RETURN_IF_ERROR(countHaloNodes());
    FARHOP_RETURN_IF_ERROR(writeCaches(dataset_, options_.cache, options_.progress, &manifest_, &sink_));
    FARHOP_RETURN_IF_ERROR(checkManifest(manifest_));
    // graph.json makes a directory a store: it comes when all else is on the disk.
    FARHOP_RETURN_IF_ERROR(staged_.sync());
    return writeFileAtomically(absl::StrCat(sink_.root(), "/", kManifestFile), formatManifest(manifest_));
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

  absl::Status writeNodes(int t) {
    const NodeType& type = schema().nodeTypes[t];
    progress(absl::StrCat("writing ", type.count, " nodes of type ", type.name));
    const std::vector<uint64_t>& gids = gids_[t];
    FARHOP_RETURN_IF_ERROR(
        sink_.writeColumn<uint64_t>(gidMapPath(schema(), t), gids.size(), [&](uint64_t i) { return gids[i]; }));
    std::vector<uint64_t> originalIds(gids.size());  // by gid
    for (uint64_t id = 0; id < gids.size(); ++id) originalIds[gids[id]] = id;
    const auto originalId = [&](uint64_t gid) { return originalIds[gid]; };
    FARHOP_RETURN_IF_ERROR(
        gids.size() < kSmallNodeCount
            ? sink_.writeColumn<uint32_t>(globalOriginalIdsPath(schema(), t), gids.size(), originalId)
            : sink_.writeColumn<uint64_t>(globalOriginalIdsPath(schema(), t), gids.size(), originalId));
    for (int k = 0; k < parts(); ++k) {
      const auto own = std::span<const uint64_t>(originalIds).subspan(book_.begin(t, k), book_.count(t, k));
      FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint64_t>(originalIdsPath(schema(), k, t), own.size(),
                                                   [&](uint64_t i) { return own[i]; }));
      for (size_t f = 0; f < type.features.size(); ++f) {
        FARHOP_RETURN_IF_ERROR(sink_.writeFeature(nodeFeaturePath(schema(), k, t, type.features[f].name),
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
      FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint64_t>(globalSplitPath(schema(), split.nodeType, split.name),
                                                   split.ids.size(), [&](uint64_t i) { return split.ids[i]; }));
      for (int k = 0; k < parts(); ++k) {
        const std::vector<uint64_t>& own = seeds[static_cast<size_t>(k)];
        FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint64_t>(splitPath(schema(), k, split.nodeType, split.name),
                                                     own.size(), [&](uint64_t i) { return own[i]; }));
        info.partitionCounts.push_back(own.size());
      }
      manifest_.splits.push_back(std::move(info));
    }
    return absl::OkStatus();
  }

  absl::Status writeEdgeSplits() {
    for (const EdgeSplitSeeds& split : dataset_.edgeSplits) {
      EdgeSplitInfo info{split.name, split.relation, split.source.size(), {}, split.labelSpec};
      FARHOP_RETURN_IF_ERROR(sink_.writeValues<uint64_t>(
          globalEdgeSplitPath(schema(), split.relation, split.name), {info.count, 2},
          [&](uint64_t i) { return i % 2 == 0 ? split.source[i / 2] : split.destination[i / 2]; }));
      std::vector<std::vector<uint64_t>> seeds(static_cast<size_t>(parts()));  // by partition: positions in the list
      const Relation& relation = schema().relations[split.relation];
      const std::vector<int32_t>& partitionOf = assignment_.partitionOf[relation.destination];
      for (uint64_t i = 0; i < info.count; ++i) {
        seeds[static_cast<size_t>(partitionOf[split.destination[i]])].push_back(i);
      }
      for (int k = 0; k < parts(); ++k) {
        const std::vector<uint64_t>& own = seeds[static_cast<size_t>(k)];
        info.partitionCounts.push_back(own.size());
        FARHOP_RETURN_IF_ERROR(sink_.writeValues<uint64_t>(
            edgeSplitPath(schema(), k, split.relation, split.name), {own.size(), 2}, [&](uint64_t i) {
              const uint64_t seed = own[i / 2];
              return i % 2 == 0 ? gids_[relation.source][split.source[seed]]
                                : gids_[relation.destination][split.destination[seed]];
            }));
        if (!split.labelSpec) continue;
        FARHOP_RETURN_IF_ERROR(sink_.writeFeature(edgeSplitLabelsPath(schema(), k, split.relation, split.name),
                                                  *split.labelSpec, split.labels, own));
      }
      FARHOP_RETURN_IF_ERROR(writeEdgeLabels(split));
      manifest_.edgeSplits.push_back(std::move(info));
    }
    return absl::OkStatus();
  }

  absl::Status writeEdgeLabels(const EdgeSplitSeeds& split) {
    if (!split.labelSpec) return absl::OkStatus();
    std::vector<uint64_t> shape = {split.labels.rows};
    shape.insert(shape.end(), split.labelSpec->rowShape.begin(), split.labelSpec->rowShape.end());
    return sink_.writeArray(globalEdgeSplitLabelsPath(schema(), split.relation, split.name), split.labelSpec->dtype,
                            std::move(shape), [&](NpyWriter& writer) {
                              return writer.write(split.labels.data, split.labels.rows * split.labelSpec->rowBytes());
                            });
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
                absl::StrCat(sink_.root(), "/", relationPath(schema(), k, static_cast<int>(r), "neighbors"))));
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
  Manifest manifest_;
  ArraySink sink_;  // after manifest_, into which it writes
  PartitionBook book_;
  std::vector<std::vector<uint64_t>> gids_;  // [node type][original id]
};

}  // namespace

absl::Status writeStore(const Dataset& dataset, const PartitionAssignment& assignment,
                        const StoreWriterOptions& options) {
  FARHOP_RETURN_IF_ERROR(checkDataset(dataset));
  FARHOP_RETURN_IF_ERROR(checkAssignment(dataset, assignment));
  FARHOP_RETURN_IF_ERROR(checkCacheOptions(dataset, options.cache));
  FARHOP_ASSIGN_OR_RETURN(StagedDirectory staged, StagedDirectory::create(options.directory, options.force));
  FARHOP_RETURN_IF_ERROR(StoreWriter(dataset, assignment, options, staged).write());
  return staged.commit();
}

}  // namespace farhop::partition
