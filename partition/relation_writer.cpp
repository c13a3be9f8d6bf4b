#include "partition/relation_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "partition/edge_counts.h"
#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/parallel.h"
#include "partition/relation_edges.h"
#include "partition/row_shuffle.h"
#include "partition/sampling_features.h"

namespace farhop::partition {
namespace {

constexpr uint64_t kPieceEdges = 1 << 14;

// The arrays of one partition while they are written.
class CsrArrays {
 public:
  CsrArrays(const Schema& schema, int relation, ArraySink* sink) : schema_(schema), relation_(relation), sink_(*sink) {}

  absl::Status begin(int k, uint64_t edges) {
    const uint64_t sources = schema_.nodeTypes[schema_.relations[relation_].source].count;
    narrow_ = sources < kSmallNodeCount;
    FARHOP_ASSIGN_OR_RETURN(neighbors_, sink_.create(relationPath(schema_, k, relation_, "neighbors"),
                                                     narrow_ ? DType::kUInt32 : DType::kUInt64, {edges}));
    FARHOP_ASSIGN_OR_RETURN(edgeIds_,
                            sink_.create(relationPath(schema_, k, relation_, "edge_ids"), DType::kUInt64, {edges}));
    if (!schema_.hasTimes(relation_)) return absl::OkStatus();
    FARHOP_ASSIGN_OR_RETURN(times_, sink_.create(relationPath(schema_, k, relation_, "times"), DType::kInt64, {edges}));
    return absl::OkStatus();
  }

  absl::Status add(const SortedEdges& edges) {
    std::vector<uint64_t> sources(kPieceEdges), edgeIds(kPieceEdges);
    std::vector<int64_t> times(kPieceEdges);
    std::vector<uint32_t> narrow(kPieceEdges);
    for (uint64_t first = 0; first < edges.size; first += kPieceEdges) {
      const uint64_t n = std::min(kPieceEdges, edges.size - first);
      edges.copy(first, n, sources.data(), edgeIds.data(), times.data());
      if (narrow_) {
        for (uint64_t i = 0; i < n; ++i) narrow[i] = static_cast<uint32_t>(sources[i]);
        FARHOP_RETURN_IF_ERROR(neighbors_->write(narrow.data(), n * sizeof(uint32_t)));
      } else {
        FARHOP_RETURN_IF_ERROR(neighbors_->write(sources.data(), n * sizeof(uint64_t)));
      }
      FARHOP_RETURN_IF_ERROR(edgeIds_->write(edgeIds.data(), n * sizeof(uint64_t)));
      if (times_) FARHOP_RETURN_IF_ERROR(times_->write(times.data(), n * sizeof(int64_t)));
    }
    return absl::OkStatus();
  }

  absl::Status end() {
    for (std::optional<SinkArray>* array : {&neighbors_, &edgeIds_, &times_}) {
      if (*array) FARHOP_RETURN_IF_ERROR(sink_.commit(std::exchange(*array, std::nullopt)));
    }
    return absl::OkStatus();
  }

 private:
  const Schema& schema_;
  const int relation_;
  ArraySink& sink_;
  bool narrow_ = true;
  std::optional<SinkArray> neighbors_, edgeIds_, times_;
};

}  // namespace

// Edges with times of their own are events: two of the same nodes are two.
bool RelationWriter::merges(int r) const {
  return mergeParallel_ && schema().relations[forwardOf(r)].timeFeature.empty();
}

const IdColumn& RelationWriter::sourceOf(int r) const {
  const int forward = schema().relations[r].reverseOf;
  return forward < 0 ? dataset_.edges[r].source : dataset_.edges[forward].destination;
}

const IdColumn& RelationWriter::destinationOf(int r) const {
  const int forward = schema().relations[r].reverseOf;
  return forward < 0 ? dataset_.edges[r].destination : dataset_.edges[forward].source;
}

RowBuckets RelationWriter::bucketsOf(int r, const std::vector<uint64_t>& indptr, uint64_t edgeBytes) const {
  // A bucket's rows take 8 bytes each while it is sorted.
  const RowBucketLimits limits{resources_.bucketItems(edgeBytes), std::max<uint64_t>(1, resources_.bucketBytes() / 8)};
  return RowBuckets(book_, schema().relations[r].destination, indptr, limits);
}

absl::Status RelationWriter::writeEdges(int r) {
  Relation& relation = manifest_.schema.relations[static_cast<size_t>(r)];
  std::vector<bool> keptEdges;
  const std::vector<bool>* kept = nullptr;
  if (merges(r)) {
    if (relation.reverseOf < 0) {
      FARHOP_ASSIGN_OR_RETURN(keptEdges, chooseKept(r));
    } else {
      FARHOP_ASSIGN_OR_RETURN(keptEdges, readKept(relation.reverseOf));
    }
    kept = &keptEdges;
    relation.inputCount = keptEdges.size();
    relation.count = static_cast<uint64_t>(std::count(keptEdges.begin(), keptEdges.end(), true));
  }
  resources_.begin(absl::StrCat(schema().relationText(r), ": counting"), "edges", sourceOf(r).size());
  FARHOP_ASSIGN_OR_RETURN(std::vector<uint64_t> inDegrees,
                          countIds(destinationOf(r), gids_[relation.destination].size(), kept, resources_));
  FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> indptr, makeIndptr(r, inDegrees));
  if (relation.reverseOf < 0) FARHOP_RETURN_IF_ERROR(writeDegrees(r, inDegrees, kept));
  inDegrees = {};
  FARHOP_RETURN_IF_ERROR(writeIndptr(r, indptr));
  return writeCsr(r, indptr, kept);
}

absl::StatusOr<std::vector<uint64_t>> RelationWriter::makeIndptr(int r, const std::vector<uint64_t>& inDegrees) const {
  const std::vector<uint64_t>& gids = gids_[schema().relations[r].destination];
  std::vector<uint64_t> indptr(gids.size() + 1, 0);
  for (uint64_t id = 0; id < gids.size(); ++id) indptr[gids[id] + 1] = inDegrees[id];
  for (uint64_t row = 1; row < indptr.size(); ++row) indptr[row] += indptr[row - 1];
  return indptr;
}

absl::Status RelationWriter::writeIndptr(int r, const std::vector<uint64_t>& indptr) {
  const int type = schema().relations[r].destination;
  return runInParallel(resources_.threads, static_cast<uint64_t>(book_.numPartitions()), [&](uint64_t part, int) {
    const int k = static_cast<int>(part);
    const uint64_t first = book_.begin(type, k);
    return sink_.writeColumn<uint64_t>(relationPath(schema(), k, r, "indptr"), book_.count(type, k) + 1,
                                       [&](uint64_t i) { return indptr[first + i] - indptr[first]; });
  });
}

absl::StatusOr<std::vector<uint64_t>> RelationWriter::readIndptr(int r) const {
  const int type = schema().relations[r].destination;
  std::vector<uint64_t> indptr = {0};
  indptr.reserve(book_.numNodes(type) + 1);
  for (int k = 0; k < book_.numPartitions(); ++k) {
    const std::string path = absl::StrCat(sink_.root(), "/", relationPath(schema(), k, r, "indptr"));
    FARHOP_ASSIGN_OR_RETURN(const NpyArray array, NpyArray::open(path));
    FARHOP_ASSIGN_OR_RETURN(const auto rows, array.as<uint64_t>());
    const uint64_t before = indptr.back();
    for (uint64_t row = 1; row < rows.size(); ++row) indptr.push_back(before + rows[row]);
  }
  return indptr;
}

absl::Status RelationWriter::writeCsr(int r, const std::vector<uint64_t>& indptr, const std::vector<bool>* kept) {
  const Relation& relation = schema().relations[r];
  std::optional<VisibleTimes> times;
  if (schema().hasTimes(r)) times.emplace(dataset_, schema(), r);
  const RelationEdges edges{sourceOf(r),
                            destinationOf(r),
                            schema().nodeTypes[relation.source].count,
                            gids_[relation.source],
                            gids_[relation.destination],
                            times ? &*times : nullptr,
                            kept};
  const RowBuckets buckets = bucketsOf(r, indptr, sortedEdgeBytes(edges));
  std::vector<uint64_t> counts(static_cast<size_t>(book_.numPartitions())), remote(counts.size(), 0);
  for (int k = 0; k < book_.numPartitions(); ++k) {
    counts[static_cast<size_t>(k)] =
        indptr[book_.end(relation.destination, k)] - indptr[book_.begin(relation.destination, k)];
  }
  CsrArrays arrays(schema(), r, &sink_);
  EdgeSortOptions options;
  options.step = schema().relationText(r);
  options.ownSources = [&](int k) { return std::pair(book_.begin(relation.source, k), book_.end(relation.source, k)); };
  const auto consume = [&](const SortedEdges& sorted) -> absl::Status {
    const int k = sorted.bucket.partition;
    if (sorted.bucket.firstRow == book_.begin(relation.destination, k)) {
      FARHOP_RETURN_IF_ERROR(arrays.begin(k, counts[static_cast<size_t>(k)]));
    }
    remote[static_cast<size_t>(k)] += sorted.remote;
    FARHOP_RETURN_IF_ERROR(arrays.add(sorted));
    return sorted.bucket.endRow == book_.end(relation.destination, k) ? arrays.end() : absl::OkStatus();
  };
  FARHOP_RETURN_IF_ERROR(sortEdges(edges, indptr, buckets, resources_, options, consume));
  manifest_.partitionEdges[static_cast<size_t>(r)] = std::move(counts);
  manifest_.remoteEdges[static_cast<size_t>(r)] = std::move(remote);
  return absl::OkStatus();
}

// Of edges between the same two nodes the one with the lowest id.
absl::StatusOr<std::vector<bool>> RelationWriter::chooseKept(int r) const {
  const Relation& relation = schema().relations[r];
  const uint64_t count = sourceOf(r).size();
  FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> inDegrees,
                          countIds(destinationOf(r), gids_[relation.destination].size(), nullptr, resources_));
  FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> indptr, makeIndptr(r, inDegrees));
  const RelationEdges edges{sourceOf(r),
                            destinationOf(r),
                            schema().nodeTypes[relation.source].count,
                            gids_[relation.source],
                            gids_[relation.destination],
                            nullptr,
                            nullptr};
  const RowBuckets buckets = bucketsOf(r, indptr, sortedEdgeBytes(edges));
  std::vector<bool> kept(count, false);
  EdgeSortOptions options;
  options.step = absl::StrCat(schema().relationText(r), ": finding parallel edges");
  options.keepOriginalSources = true;
  const auto consume = [&](const SortedEdges& sorted) -> absl::Status {
    uint64_t row = sorted.bucket.firstRow, last = 0;
    std::vector<uint64_t> sources(kPieceEdges), edgeIds(kPieceEdges);
    for (uint64_t first = 0; first < sorted.size; first += kPieceEdges) {
      const uint64_t n = std::min(kPieceEdges, sorted.size - first);
      sorted.copy(first, n, sources.data(), edgeIds.data(), nullptr);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t position = sorted.bucket.firstItem + first + i;
        while (position >= indptr[row + 1]) ++row;
        if (position == indptr[row] || sources[i] != last) kept[edgeIds[i]] = true;
        last = sources[i];
      }
    }
    return absl::OkStatus();
  };
  FARHOP_RETURN_IF_ERROR(sortEdges(edges, indptr, buckets, resources_, options, consume));
  return kept;
}

absl::StatusOr<std::vector<bool>> RelationWriter::readKept(int forward) const {
  std::vector<bool> kept(sourceOf(forward).size(), false);
  for (int k = 0; k < book_.numPartitions(); ++k) {
    const std::string path = absl::StrCat(sink_.root(), "/", relationPath(schema(), k, forward, "edge_ids"));
    FARHOP_ASSIGN_OR_RETURN(const NpyArray array, NpyArray::open(path));
    FARHOP_ASSIGN_OR_RETURN(const auto ids, array.as<uint64_t>());
    for (uint64_t id : ids) {
      if (id < kept.size()) kept[id] = true;
    }
  }
  return kept;
}

std::vector<RelationWriter::Column> RelationWriter::columns(int r) const {
  std::vector<Column> columns;
  const Relation& relation = schema().relations[r];
  for (size_t f = 0; f < relation.features.size(); ++f) {
    columns.push_back({relation.features[f].name, static_cast<int>(f)});
  }
  if (schema().storesWeights(r)) columns.push_back({"weights", -1});
  return columns;
}

absl::Status RelationWriter::writeColumn(int r, const Column& column) {
  const Relation& relation = schema().relations[r];
  FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> indptr, readIndptr(r));
  std::vector<bool> kept;
  if (merges(r)) {
    FARHOP_ASSIGN_OR_RETURN(kept, readKept(forwardOf(r)));
  }
  std::optional<DeclaredWeights> weights;
  if (column.feature < 0) weights.emplace(dataset_, schema(), r);
  ShuffledRows rows;
  rows.spec = weights ? FeatureSpec{"weights", DType::kFloat32, {}}
                      : relation.features[static_cast<size_t>(column.feature)];
  const RowBuckets buckets = bucketsOf(r, indptr, shuffledRowBytes(rows.spec));
  rows.count = sourceOf(r).size();
  const IdColumn& destinations = destinationOf(r);
  const std::vector<uint64_t>& gids = gids_[relation.destination];
  rows.bucketsOf = [&](uint64_t first, std::span<uint32_t> out) {
    std::vector<uint64_t> ids(out.size());
    destinations.copy(first, out.size(), ids.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const bool leftOut = !kept.empty() && !kept[first + i];
      out[i] = leftOut ? kNoBucket : static_cast<uint32_t>(buckets.bucketOf(gids[ids[i]]));
    }
  };
  if (weights) {
    rows.rows = [&](uint64_t first, uint64_t count, std::byte* out) {
      for (uint64_t i = 0; i < count; ++i) {
        const float weight = (*weights)(first + i);
        std::memcpy(out + i * sizeof(weight), &weight, sizeof(weight));
      }
    };
  } else {
    const std::byte* data = dataset_.edgeFeatures[static_cast<size_t>(r)][static_cast<size_t>(column.feature)].data;
    const size_t rowBytes = rows.spec.rowBytes();
    rows.rows = [data, rowBytes](uint64_t first, uint64_t count, std::byte* out) {
      std::memcpy(out, data + first * rowBytes, count * rowBytes);
    };
  }
  rows.path = [&](int k) {
    return weights ? relationPath(schema(), k, r, "weights") : edgeFeaturePath(schema(), k, r, rows.spec.name);
  };
  rows.rowsOf = [&](int k) { return manifest_.partitionEdges[static_cast<size_t>(r)][static_cast<size_t>(k)]; };
  rows.idsOf = [&](const RowBucket& bucket) -> absl::StatusOr<std::vector<uint64_t>> {
    const std::string path = absl::StrCat(sink_.root(), "/", relationPath(schema(), bucket.partition, r, "edge_ids"));
    FARHOP_ASSIGN_OR_RETURN(const NpyArray array, NpyArray::open(path));
    FARHOP_ASSIGN_OR_RETURN(const auto ids, array.as<uint64_t>());
    const uint64_t before = indptr[book_.begin(relation.destination, bucket.partition)];
    const auto own = ids.subspan(bucket.firstItem - before, bucket.items());
    return std::vector<uint64_t>(own.begin(), own.end());
  };
  resources_.begin(absl::StrCat(schema().relationText(r), ": ", column.name), "edges", rows.count);
  return shuffleRows(rows, buckets, resources_, &sink_);
}

absl::Status RelationWriter::writeDegrees(int r, const std::vector<uint64_t>& inDegrees, const std::vector<bool>* kept) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const Relation& relation = schema().relations[r];
  const auto write = [&](const char* array, const std::vector<uint64_t>& degrees) {
    return sink_.writeColumn<uint32_t>(globalRelationPath(schema(), r, array), degrees.size(),
                                       [&](uint64_t id) { return std::min(degrees[id], kMost); });
  };
  FARHOP_RETURN_IF_ERROR(write("in_degree", inDegrees));
  FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> outDegrees,
                          countIds(sourceOf(r), schema().nodeTypes[relation.source].count, kept, resources_));
  return write("out_degree", outDegrees);
}

}  // namespace farhop::partition
