#include "importers/export.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "importers/array_view.h"
#include "importers/partition_parts.h"
#include "importers/scatter_npy.h"
#include "importers/task_writer.h"
#include "partition/dataset.h"
#include "partition/graph_store.h"

namespace farhop::importers {
namespace {

using partition::FeatureSpec;
using partition::FeatureTable;
using partition::GraphShard;
using partition::GraphStore;
using partition::Relation;

class StoreExporter {
 public:
  StoreExporter(const GraphStore& store, const ExportOptions& options, DatasetOutput* output)
      : store_(store), options_(options), output_(*output), description_(output->description()) {}

  absl::Status run() {
    description_.name = store_.manifest().dataset;
    for (int k = 0; k < store_.numPartitions(); ++k) {
      FARHOP_ASSIGN_OR_RETURN(GraphShard shard, store_.openPartition(k));
      shards_.push_back(std::move(shard));
    }
    const partition::Schema& schema = store_.schema();
    PartitionParts parts(store_.numPartitions(), &output_);
    for (int t = 0; t < static_cast<int>(schema.nodeTypes.size()); ++t) FARHOP_RETURN_IF_ERROR(addNodeType(t, &parts));
    for (int r = 0; r < static_cast<int>(schema.relations.size()); ++r) {
      if (schema.relations[r].reverseOf < 0) FARHOP_RETURN_IF_ERROR(addRelation(r));
    }
    return addTask();
  }

 private:
  absl::Status damaged(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(store_.directory(), ": ", what, "; farhop inspect --verify says more"));
  }

  void report(const std::string& step, uint64_t bytes, uint64_t total) const {
    if (options_.progress) options_.progress(step, bytes, total);
  }

  absl::Status addNodeType(int type, PartitionParts* parts) {
    const partition::NodeType& nodes = store_.schema().nodeTypes[type];
    FARHOP_ASSIGN_OR_RETURN(const auto gids, store_.gidsByOriginalId(type));
    FARHOP_RETURN_IF_ERROR(parts->addNodes(nodes.name, nodes.count, [&](uint64_t id) {
      return static_cast<int32_t>(store_.book().partitionOf(type, gids[id]));
    }));
    for (const FeatureSpec& spec : nodes.features) {
      DatasetDescription::Feature feature{"node", nodes.name, spec.name, ""};
      const auto tableOf = [&](const GraphShard& shard) { return shard.nodeFeature(type, spec.name); };
      const auto idOf = [&](const GraphShard& shard, uint64_t row) { return shard.originalIds(type)[row]; };
      FARHOP_RETURN_IF_ERROR(addFeature(std::move(feature), spec, nodes.count, tableOf, idOf));
    }
    return absl::OkStatus();
  }

  template <typename TableOf, typename IdOf>
  absl::Status addFeature(DatasetDescription::Feature feature, const FeatureSpec& spec, uint64_t rows, const TableOf& tableOf,
                          const IdOf& idOf) {
    feature.path = output_.newFile({feature.domain, feature.type, feature.name});
    const std::string path = output_.pathOf(feature.path);
    description_.features.push_back(feature);
    const size_t rowBytes = spec.rowBytes();
    if (rowBytes == 0) {
      std::vector<uint64_t> shape = {rows};
      shape.insert(shape.end(), spec.rowShape.begin(), spec.rowShape.end());
      FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, spec.dtype, std::move(shape)));
      return writer.commit(Durability::kStarted);
    }
    FARHOP_ASSIGN_OR_RETURN(ScatterNpy file, ScatterNpy::create(path, spec.dtype, spec.rowShape, rows));
    uint64_t done = 0;
    for (const GraphShard& shard : shards_) {
      const FeatureTable* table = tableOf(shard);
      if (table == nullptr) return damaged(absl::StrCat("partition ", shard.index(), " has no feature '", spec.name, "'"));
      const std::string origin = absl::StrCat(store_.directory(), ", partition ", shard.index(), ", feature '", spec.name, "'");
      for (uint64_t row = 0; row < table->rows; ++row) {
        FARHOP_ASSIGN_OR_RETURN(std::byte * to, file.row(idOf(shard, row), origin));
        std::memcpy(to, table->row(row), rowBytes);
      }
      done += table->rows;
      report(absl::StrCat("writing ", feature.path), done * rowBytes, rows * rowBytes);
    }
    return file.finish(absl::StrCat(store_.directory(), ", feature '", spec.name, "'"));
  }

  absl::Status addRelation(int index) {
    const Relation& relation = store_.schema().relations[index];
    const std::string text = store_.schema().relationText(index);
    const uint64_t sources = store_.schema().nodeTypes[relation.source].count;
    const uint64_t destinations = store_.schema().nodeTypes[relation.destination].count;
    FARHOP_ASSIGN_OR_RETURN(const partition::IdArray originals, store_.originalIdsByGid(relation.source));
    const std::string file = output_.newFile({"edges", store_.schema().nodeTypes[relation.source].name, relation.name,
                                              store_.schema().nodeTypes[relation.destination].name});
    FARHOP_ASSIGN_OR_RETURN(ScatterNpy pairs, ScatterNpy::createPairs(output_.pathOf(file), relation.count,
                                                                      std::max(sources, destinations)));
    uint64_t done = 0;
    for (const GraphShard& shard : shards_) {
      const partition::RelationShard& edges = shard.relation(index);
      const std::string origin = absl::StrCat(store_.directory(), ", partition ", shard.index(), ", edges of ", text);
      for (uint64_t row = 0; row < edges.rows(); ++row) {
        const uint64_t destination = shard.originalIds(relation.destination)[row];
        for (uint64_t i = edges.indptr[row]; i < edges.indptr[row + 1]; ++i) {
          const uint64_t gid = edges.neighbors32.empty() ? edges.neighbors64[i] : edges.neighbors32[i];
          const uint64_t source = gid < sources ? originals[gid] : gid;
          if (source >= sources || destination >= destinations) return damaged(absl::StrCat("an end of an edge of ", text, " is out of range"));
          FARHOP_RETURN_IF_ERROR(pairs.putPair(edges.edgeIds[i], source, destination, origin));
        }
      }
      done += edges.edges();
      report(absl::StrCat("writing ", file), done * pairs.rowBytes(), relation.count * pairs.rowBytes());
    }
    FARHOP_RETURN_IF_ERROR(pairs.finish(absl::StrCat(store_.directory(), ", edges of ", text)));
    description_.edges.push_back({text, file});
    for (const FeatureSpec& spec : relation.features) {
      const auto tableOf = [&](const GraphShard& shard) { return shard.edgeFeature(index, spec.name); };
      const auto idOf = [&](const GraphShard& shard, uint64_t row) { return shard.relation(index).edgeIds[row]; };
      FARHOP_RETURN_IF_ERROR(addFeature({"edge", text, spec.name, ""}, spec, relation.count, tableOf, idOf));
    }
    return absl::OkStatus();
  }

  // An array of the store, which is mapped for as long as this exporter lives.
  static ArrayView viewOf(const void* data, DType dtype, std::vector<uint64_t> shape, std::string origin) {
    ArrayView view;
    view.dtype = dtype;
    view.strides = contiguousStrides(shape);
    view.shape = std::move(shape);
    view.data = static_cast<const std::byte*>(data);
    view.origin = std::move(origin);
    return view;
  }

  // Labels of all nodes, as just written.
  absl::StatusOr<std::optional<ArrayView>> labelsOf(const std::string& type) const {
    for (const DatasetDescription::Feature& feature : description_.features) {
      if (feature.domain != "node" || feature.type != type || feature.name != partition::kLabelFeature) continue;
      FARHOP_ASSIGN_OR_RETURN(ArrayView labels, openNpy(output_.pathOf(feature.path)));
      return std::optional<ArrayView>(std::move(labels));
    }
    return std::optional<ArrayView>();
  }

  absl::Status addTask() {
    const partition::Manifest& manifest = store_.manifest();
    TaskWriter task(manifest.task, &output_);
    for (const partition::SplitInfo& split : manifest.splits) {
      const partition::NodeType& nodes = store_.schema().nodeTypes[split.nodeType];
      FARHOP_ASSIGN_OR_RETURN(const auto ids, store_.splitOriginalIds(split.name, split.nodeType));
      FARHOP_ASSIGN_OR_RETURN(const std::optional<ArrayView> labels, labelsOf(nodes.name));
      const ArrayView seeds = viewOf(ids.data(), DType::kUInt64, {ids.size()}, absl::StrCat(store_.directory(), ", split '", split.name, "'"));
      FARHOP_RETURN_IF_ERROR(task.addNodes(split.name, {nodes.name, nodes.count, "", ""}, seeds, labels));
    }
    for (const partition::EdgeSplitInfo& split : manifest.edgeSplits) {
      FARHOP_ASSIGN_OR_RETURN(const partition::EdgeSeeds edges, store_.edgeSplitOriginalIds(split.name, split.relation));
      const std::string origin = absl::StrCat(store_.directory(), ", split '", split.name, "'");
      std::optional<ArrayView> labels;
      if (split.labels) {
        std::vector<uint64_t> shape = {edges.size()};
        shape.insert(shape.end(), split.labels->rowShape.begin(), split.labels->rowShape.end());
        labels = viewOf(edges.labels.data, split.labels->dtype, std::move(shape), origin);
      }
      const ArrayView pairs = viewOf(edges.ends.data(), DType::kInt64, {edges.size(), 2}, origin);
      FARHOP_RETURN_IF_ERROR(task.addPairs(split.name, store_.schema().relationText(split.relation), pairs, labels));
    }
    FARHOP_RETURN_IF_ERROR(task.finish());
    if (!description_.tasks.empty()) {
      description_.tasks.back().numClasses.reset();
      if (manifest.numClasses > 0) description_.tasks.back().numClasses = static_cast<uint64_t>(manifest.numClasses);
    }
    return absl::OkStatus();
  }

  const GraphStore& store_;
  const ExportOptions& options_;
  DatasetOutput& output_;
  DatasetDescription& description_;
  std::vector<GraphShard> shards_;
};

}  // namespace

absl::StatusOr<DatasetDescription> exportStore(const ExportOptions& options) {
  FARHOP_ASSIGN_OR_RETURN(const std::shared_ptr<const GraphStore> store, GraphStore::open(options.store));
  FARHOP_ASSIGN_OR_RETURN(DatasetOutput output, DatasetOutput::create(options.directory, options.force));
  FARHOP_RETURN_IF_ERROR(StoreExporter(*store, options, &output).run());
  FARHOP_RETURN_IF_ERROR(output.commit("export", {options.store}));
  return std::move(output.description());
}

}  // namespace farhop::importers
