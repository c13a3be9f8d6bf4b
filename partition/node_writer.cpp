#include "partition/node_writer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/parallel.h"
#include "partition/row_buckets.h"
#include "partition/row_shuffle.h"

namespace farhop::partition {
namespace {

// Files that one thread writes at a time: a buffer of a megabyte each.
constexpr int kOpenFiles = 32;

}  // namespace

absl::Status NodeWriter::writeIds(int t) {
  const std::vector<uint64_t>& gids = gids_[static_cast<size_t>(t)];
  FARHOP_RETURN_IF_ERROR(
      sink_.writeColumn<uint64_t>(gidMapPath(schema(), t), gids.size(), [&](uint64_t i) { return gids[i]; }));
  std::vector<uint64_t> originalIds(gids.size());  // by gid
  for (uint64_t id = 0; id < gids.size(); ++id) originalIds[gids[id]] = id;
  const auto originalId = [&](uint64_t gid) { return originalIds[gid]; };
  FARHOP_RETURN_IF_ERROR(
      gids.size() < kSmallNodeCount
          ? sink_.writeColumn<uint32_t>(globalOriginalIdsPath(schema(), t), gids.size(), originalId)
          : sink_.writeColumn<uint64_t>(globalOriginalIdsPath(schema(), t), gids.size(), originalId));
  return runInParallel(resources_.threads, static_cast<uint64_t>(parts()), [&](uint64_t part, int) {
    const int k = static_cast<int>(part);
    const auto own = std::span<const uint64_t>(originalIds).subspan(book_.begin(t, k), book_.count(t, k));
    return sink_.writeColumn<uint64_t>(originalIdsPath(schema(), k, t), own.size(), [&](uint64_t i) { return own[i]; });
  });
}

absl::Status NodeWriter::writeFeature(int t, int f) {
  const std::vector<uint64_t>& gids = gids_[static_cast<size_t>(t)];
  const std::vector<int32_t>& partitionOf = assignment_.partitionOf[static_cast<size_t>(t)];
  const NodeType& type = schema().nodeTypes[static_cast<size_t>(t)];
  resources_.begin(absl::StrCat(type.name, ": ", type.features[static_cast<size_t>(f)].name), "rows", gids.size());
  std::vector<uint64_t> last(static_cast<size_t>(parts()), 0);
  bool ascends = true;
  for (uint64_t id = 0; ascends && id < gids.size(); ++id) {
    uint64_t& before = last[static_cast<size_t>(partitionOf[id])];
    ascends = gids[id] >= before;
    before = gids[id];
  }
  return ascends ? copyInOrder(t, f) : copyShuffled(t, f);
}

// Rows lie in the partitions in the order in which they come: each thread reads all and appends those of its
// partitions.
absl::Status NodeWriter::copyInOrder(int t, int f) {
  const NodeType& type = schema().nodeTypes[static_cast<size_t>(t)];
  const FeatureSpec& spec = type.features[static_cast<size_t>(f)];
  const FeatureColumn& column = dataset_.nodeFeatures[static_cast<size_t>(t)][static_cast<size_t>(f)];
  const std::vector<int32_t>& partitionOf = assignment_.partitionOf[static_cast<size_t>(t)];
  const size_t rowBytes = spec.rowBytes();
  const int perGroup = std::clamp((parts() + resources_.threads - 1) / resources_.threads, 1, kOpenFiles);
  const int groups = (parts() + perGroup - 1) / perGroup;
  return runInParallel(resources_.threads, static_cast<uint64_t>(groups), [&](uint64_t group, int) -> absl::Status {
    const int first = static_cast<int>(group) * perGroup, end = std::min(parts(), first + perGroup);
    std::vector<std::optional<SinkArray>> arrays;
    for (int k = first; k < end; ++k) {
      std::vector<uint64_t> shape = {book_.count(t, k)};
      shape.insert(shape.end(), spec.rowShape.begin(), spec.rowShape.end());
      FARHOP_ASSIGN_OR_RETURN(
          arrays.emplace_back(),
          sink_.create(nodeFeaturePath(schema(), k, t, spec.name), spec.dtype, std::move(shape)));
    }
    for (uint64_t id = 0; rowBytes > 0 && id < partitionOf.size(); ++id) {
      const int k = partitionOf[id];
      if (k < first || k >= end) continue;
      FARHOP_RETURN_IF_ERROR(arrays[static_cast<size_t>(k - first)]->write(column.data + id * rowBytes, rowBytes));
      resources_.advance(1);
    }
    for (auto& array : arrays) FARHOP_RETURN_IF_ERROR(sink_.commit(std::move(array)));
    return absl::OkStatus();
  });
}

absl::Status NodeWriter::copyShuffled(int t, int f) {
  const FeatureColumn& column = dataset_.nodeFeatures[static_cast<size_t>(t)][static_cast<size_t>(f)];
  const std::vector<uint64_t>& gids = gids_[static_cast<size_t>(t)];
  ShuffledRows rows;
  rows.spec = schema().nodeTypes[static_cast<size_t>(t)].features[static_cast<size_t>(f)];
  rows.count = gids.size();
  const uint64_t items = resources_.bucketItems(shuffledRowBytes(rows.spec));
  const RowBuckets buckets(book_, t, {}, {items, items});
  rows.bucketsOf = [&](uint64_t first, std::span<uint32_t> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint32_t>(buckets.bucketOf(gids[first + i]));
  };
  const size_t rowBytes = rows.spec.rowBytes();
  rows.rows = [&column, rowBytes](uint64_t first, uint64_t count, std::byte* out) {
    std::memcpy(out, column.data + first * rowBytes, count * rowBytes);
  };
  rows.path = [&](int k) { return nodeFeaturePath(schema(), k, t, rows.spec.name); };
  rows.rowsOf = [&](int k) { return book_.count(t, k); };
  rows.idsOf = [&](const RowBucket& bucket) -> absl::StatusOr<std::vector<uint64_t>> {
    const std::string path = absl::StrCat(sink_.root(), "/", originalIdsPath(schema(), bucket.partition, t));
    FARHOP_ASSIGN_OR_RETURN(const NpyArray array, NpyArray::open(path));
    FARHOP_ASSIGN_OR_RETURN(const auto ids, array.as<uint64_t>());
    const auto own = ids.subspan(bucket.firstRow - book_.begin(t, bucket.partition), bucket.rows());
    return std::vector<uint64_t>(own.begin(), own.end());
  };
  return shuffleRows(rows, buckets, resources_, &sink_);
}

absl::Status NodeWriter::writeSplits() {
  for (const SplitSeeds& split : dataset_.splits) FARHOP_RETURN_IF_ERROR(writeNodeSplit(split));
  for (const EdgeSplitSeeds& split : dataset_.edgeSplits) FARHOP_RETURN_IF_ERROR(writeEdgeSplit(split));
  return absl::OkStatus();
}

absl::Status NodeWriter::writeNodeSplit(const SplitSeeds& split) {
  SplitInfo info{split.name, split.nodeType, split.ids.size(), {}};
  std::vector<std::vector<uint64_t>> seeds(static_cast<size_t>(parts()));
  for (uint64_t id : split.ids) {
    const uint64_t gid = gids_[static_cast<size_t>(split.nodeType)][id];
    seeds[static_cast<size_t>(assignment_.partitionOf[static_cast<size_t>(split.nodeType)][id])].push_back(gid);
  }
  FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint64_t>(globalSplitPath(schema(), split.nodeType, split.name),
                                                     split.ids.size(), [&](uint64_t i) { return split.ids[i]; }));
  for (int k = 0; k < parts(); ++k) {
    std::vector<uint64_t>& own = seeds[static_cast<size_t>(k)];
    std::sort(own.begin(), own.end());
    FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint64_t>(splitPath(schema(), k, split.nodeType, split.name), own.size(),
                                                       [&](uint64_t i) { return own[i]; }));
    info.partitionCounts.push_back(own.size());
  }
  manifest_.splits.push_back(std::move(info));
  return absl::OkStatus();
}

absl::Status NodeWriter::writeEdgeSplit(const EdgeSplitSeeds& split) {
  EdgeSplitInfo info{split.name, split.relation, split.source.size(), {}, split.labelSpec};
  FARHOP_RETURN_IF_ERROR(sink_.writeValues<uint64_t>(
      globalEdgeSplitPath(schema(), split.relation, split.name), {info.count, 2},
      [&](uint64_t i) { return i % 2 == 0 ? split.source[i / 2] : split.destination[i / 2]; }));
  std::vector<std::vector<uint64_t>> seeds(static_cast<size_t>(parts()));  // by partition: positions in the list
  const Relation& relation = schema().relations[static_cast<size_t>(split.relation)];
  const std::vector<int32_t>& partitionOf = assignment_.partitionOf[static_cast<size_t>(relation.destination)];
  for (uint64_t i = 0; i < info.count; ++i) {
    seeds[static_cast<size_t>(partitionOf[split.destination[i]])].push_back(i);
  }
  for (int k = 0; k < parts(); ++k) {
    const std::vector<uint64_t>& own = seeds[static_cast<size_t>(k)];
    info.partitionCounts.push_back(own.size());
    FARHOP_RETURN_IF_ERROR(sink_.writeValues<uint64_t>(
        edgeSplitPath(schema(), k, split.relation, split.name), {own.size(), 2}, [&](uint64_t i) {
          const uint64_t seed = own[i / 2];
          return i % 2 == 0 ? gids_[static_cast<size_t>(relation.source)][split.source[seed]]
                            : gids_[static_cast<size_t>(relation.destination)][split.destination[seed]];
        }));
    if (!split.labelSpec) continue;
    FARHOP_RETURN_IF_ERROR(sink_.writeFeature(edgeSplitLabelsPath(schema(), k, split.relation, split.name),
                                              *split.labelSpec, split.labels, own));
  }
  FARHOP_RETURN_IF_ERROR(writeEdgeLabels(split));
  manifest_.edgeSplits.push_back(std::move(info));
  return absl::OkStatus();
}

absl::Status NodeWriter::writeEdgeLabels(const EdgeSplitSeeds& split) {
  if (!split.labelSpec) return absl::OkStatus();
  std::vector<uint64_t> shape = {split.labels.rows};
  shape.insert(shape.end(), split.labelSpec->rowShape.begin(), split.labelSpec->rowShape.end());
  return sink_.writeArray(globalEdgeSplitLabelsPath(schema(), split.relation, split.name), split.labelSpec->dtype,
                          std::move(shape), [&](SinkArray& array) {
                            return array.write(split.labels.data, split.labels.rows * split.labelSpec->rowBytes());
                          });
}

}  // namespace farhop::partition
