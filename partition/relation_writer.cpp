#include "partition/relation_writer.h"

#include <algorithm>
#include <limits>

#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/sampling_features.h"

namespace farhop::partition {

const IdColumn& RelationWriter::sourceOf(int r) const {
  const int forward = schema().relations[r].reverseOf;
  return forward < 0 ? dataset_.edges[r].source : dataset_.edges[forward].destination;
}

const IdColumn& RelationWriter::destinationOf(int r) const {
  const int forward = schema().relations[r].reverseOf;
  return forward < 0 ? dataset_.edges[r].destination : dataset_.edges[forward].source;
}

absl::Status RelationWriter::write(int r) {
  const Relation& relation = schema().relations[r];
  RelationCsr csr = buildRelationCsr(sourceOf(r), schema().nodeTypes[relation.source].count, destinationOf(r),
                                     gids_[relation.destination]);
  if (schema().hasTimes(r)) sortRowsByTime(VisibleTimes(dataset_, schema(), r), &csr);
  if (relation.reverseOf < 0) FARHOP_RETURN_IF_ERROR(writeDegrees(r, csr));
  manifest_.partitionEdges.emplace_back();
  manifest_.remoteEdges.emplace_back();
  for (int k = 0; k < book_.numPartitions(); ++k) FARHOP_RETURN_IF_ERROR(writePartition(r, k, csr));
  return absl::OkStatus();
}

absl::Status RelationWriter::writePartition(int r, int k, const RelationCsr& csr) {
  const Relation& relation = schema().relations[r];
  const uint64_t firstRow = book_.begin(relation.destination, k), rows = book_.count(relation.destination, k);
  const uint64_t firstEdge = csr.indptr[firstRow];
  const auto edgeIds =
      std::span<const uint64_t>(csr.edgeIds).subspan(firstEdge, csr.indptr[firstRow + rows] - firstEdge);
  FARHOP_RETURN_IF_ERROR(
      sink_.writeColumn<uint64_t>(relationPath(schema(), k, r, "indptr"), rows + 1,
                                  [&](uint64_t i) { return csr.indptr[firstRow + i] - firstEdge; }));
  FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint64_t>(relationPath(schema(), k, r, "edge_ids"), edgeIds.size(),
                                                     [&](uint64_t i) { return edgeIds[i]; }));
  FARHOP_RETURN_IF_ERROR(writeNeighbors(r, k, edgeIds));
  FARHOP_RETURN_IF_ERROR(writeSamplingColumns(r, k, edgeIds));
  for (size_t f = 0; f < relation.features.size(); ++f) {
    FARHOP_RETURN_IF_ERROR(sink_.writeFeature(edgeFeaturePath(schema(), k, r, relation.features[f].name),
                                              relation.features[f], dataset_.edgeFeatures[r][f], edgeIds));
  }
  return absl::OkStatus();
}

absl::Status RelationWriter::writeNeighbors(int r, int k, std::span<const uint64_t> edgeIds) {
  const int type = schema().relations[r].source;
  const IdColumn& source = sourceOf(r);
  const std::vector<uint64_t>& gids = gids_[type];
  uint64_t remote = 0;
  auto neighbor = [&](uint64_t i) {
    const uint64_t gid = gids[source[edgeIds[i]]];
    remote += gid < book_.begin(type, k) || gid >= book_.end(type, k);
    return gid;
  };
  const std::string path = relationPath(schema(), k, r, "neighbors");
  if (schema().nodeTypes[type].count < kSmallNodeCount) {
    FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint32_t>(path, edgeIds.size(), neighbor));
  } else {
    FARHOP_RETURN_IF_ERROR(sink_.writeColumn<uint64_t>(path, edgeIds.size(), neighbor));
  }
  manifest_.partitionEdges.back().push_back(edgeIds.size());
  manifest_.remoteEdges.back().push_back(remote);
  return absl::OkStatus();
}

absl::Status RelationWriter::writeSamplingColumns(int r, int k, std::span<const uint64_t> edgeIds) {
  if (schema().hasTimes(r)) {
    const VisibleTimes times(dataset_, schema(), r);
    FARHOP_RETURN_IF_ERROR(sink_.writeColumn<int64_t>(relationPath(schema(), k, r, "times"), edgeIds.size(),
                                                      [&](uint64_t i) { return times(edgeIds[i]); }));
  }
  if (!schema().storesWeights(r)) return absl::OkStatus();
  const DeclaredWeights weights(dataset_, schema(), r);
  return sink_.writeColumn<float>(relationPath(schema(), k, r, "weights"), edgeIds.size(),
                                  [&](uint64_t i) { return weights(edgeIds[i]); });
}

absl::Status RelationWriter::writeDegrees(int r, const RelationCsr& csr) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const Relation& relation = schema().relations[r];
  const std::vector<uint64_t>& gids = gids_[relation.destination];
  FARHOP_RETURN_IF_ERROR(
      sink_.writeColumn<uint32_t>(globalRelationPath(schema(), r, "in_degree"), gids.size(), [&](uint64_t id) {
        return std::min(csr.indptr[gids[id] + 1] - csr.indptr[gids[id]], kMost);
      }));
  std::vector<uint32_t> outDegrees(schema().nodeTypes[relation.source].count, 0);
  const IdColumn& source = sourceOf(r);
  for (uint64_t edge = 0; edge < source.size(); ++edge) {
    uint32_t& degree = outDegrees[source[edge]];
    degree += degree < kMost;
  }
  return sink_.writeColumn<uint32_t>(globalRelationPath(schema(), r, "out_degree"), outDegrees.size(),
                                     [&](uint64_t id) { return outDegrees[id]; });
}

}  // namespace farhop::partition
