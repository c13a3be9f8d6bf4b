#include "sampler/edge_wire.h"

#include <cstring>
#include <utility>

#include "sampler/wire_parts.h"

namespace farhop::sampler {
namespace {

// Enough for any feature list by name, and no amplifier for a hostile one.
constexpr size_t kMaxFeatures = 64;

constexpr char kEdgeRequestName[] = "request for edge features";

absl::Status malformedEdgeRequest(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed ", kEdgeRequestName, ": ", what));
}

template <typename T>
absl::Status copyHeader(const rpc::Bytes& bytes, T* header) {
  if (bytes.size() != sizeof(T)) return malformedEdgeRequest("header size");
  std::memcpy(static_cast<void*>(header), bytes.data(), sizeof(T));
  return absl::OkStatus();
}

template <typename T>
rpc::OutArray headerArray(const T& header) {
  return rpc::OutArray::fromVector(std::vector<T>(1, header));
}

absl::Status checkFeatures(const PartitionedGraph& graph, int relation, std::span<const uint32_t> features,
                           std::span<const RowPart> parts) {
  if (features.empty() || features.size() > kMaxFeatures) return malformedEdgeRequest(absl::StrCat(features.size(), " features"));
  const size_t known = graph.schema().relations[relation].features.size();
  for (uint32_t feature : features) {
    if (feature != kEdgeIdFeature && feature >= known) return malformedEdgeRequest(absl::StrCat("feature ", feature));
  }
  std::vector<size_t> rowBytes;
  for (uint32_t feature : features) rowBytes.push_back(edgeFeatureSpec(graph, relation, feature).rowBytes());
  const absl::Status status = checkParts(parts, rowBytes);
  return status.ok() ? status : malformedEdgeRequest(status.message());
}

}  // namespace

int featureRelation(const PartitionedGraph& graph, int relation) {
  const int forward = graph.schema().relations[relation].reverseOf;
  return forward >= 0 ? forward : relation;
}

absl::StatusOr<uint32_t> edgeFeatureIndex(const PartitionedGraph& graph, int relation, const std::string& name) {
  const partition::Relation& edges = graph.schema().relations[featureRelation(graph, relation)];
  std::string known;
  for (size_t i = 0; i < edges.features.size(); ++i) {
    if (edges.features[i].name == name) return static_cast<uint32_t>(i);
    absl::StrAppend(&known, "'", edges.features[i].name, "', ");
  }
  if (name == kEdgeIdName) return kEdgeIdFeature;
  return absl::NotFoundError(absl::StrCat("relation ", graph.schema().relationText(relation), " has no edge feature '",
                                          name, "'; it has ", known, "'", kEdgeIdName, "'"));
}

partition::FeatureSpec edgeFeatureSpec(const PartitionedGraph& graph, int relation, uint32_t feature) {
  if (feature == kEdgeIdFeature) return {kEdgeIdName, DType::kInt64, {}};
  return graph.schema().relations[featureRelation(graph, relation)].features[feature];
}

std::vector<RowPart> edgeRowParts(const PartitionedGraph& graph, int relation, std::span<const uint32_t> features,
                                  std::span<const RowPart> parts) {
  std::vector<RowPart> wanted;
  for (size_t f = 0; f < features.size(); ++f) {
    wanted.push_back(partOf(parts, f, edgeFeatureSpec(graph, relation, features[f]).rowBytes()));
  }
  return wanted;
}

std::vector<rpc::OutArray> encodeDrawnEdges(DrawnEdgesRequest request) {
  std::vector<rpc::OutArray> arrays;
  arrays.push_back(headerArray(request.header));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.features)));
  for (rpc::OutArray& array : encodeNeighborRequest(request.rows)) arrays.push_back(std::move(array));
  if (!request.parts.empty()) arrays.push_back(rpc::OutArray::fromVector(std::move(request.parts)));
  return arrays;
}

std::vector<rpc::OutArray> encodeEdgesById(EdgesByIdRequest request) {
  std::vector<rpc::OutArray> arrays;
  arrays.push_back(headerArray(EdgesByIdHeader{request.relation, 0}));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.features)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.runs)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.rows)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.edgeIds)));
  if (!request.parts.empty()) arrays.push_back(rpc::OutArray::fromVector(std::move(request.parts)));
  return arrays;
}

absl::StatusOr<DrawnEdgesRequest> decodeDrawnEdges(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 3 && arrays.size() != 4) return malformedEdgeRequest("not 3 or 4 arrays");
  DrawnEdgesRequest request;
  FARHOP_RETURN_IF_ERROR(copyHeader(arrays[0], &request.header));
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[1], kEdgeRequestName, &request.features));
  FARHOP_ASSIGN_OR_RETURN(request.rows, decodeNeighborRequest(arrays.subspan(2, 1), graph));
  if (arrays.size() == 4) FARHOP_RETURN_IF_ERROR(copyArray(arrays[3], kEdgeRequestName, &request.parts));
  if (request.rows.draws.size() != 1) return malformedEdgeRequest(absl::StrCat(request.rows.draws.size(), " draws"));
  const int relation = static_cast<int>(request.rows.draws[0].relation);
  const partition::Relation& edges = graph.schema().relations[relation];
  for (const RowRun& run : request.rows.runs) {
    if (static_cast<int>(run.nodeType) != edges.destination) return malformedEdgeRequest(absl::StrCat("rows of node type ", run.nodeType));
  }
  FARHOP_RETURN_IF_ERROR(checkFeatures(graph, relation, request.features, request.parts));
  if (request.header.edges > kMaxEdges || request.header.skip > kMaxEdges) {
    return malformedEdgeRequest(absl::StrCat(request.header.edges, " edges after ", request.header.skip));
  }
  return request;
}

absl::StatusOr<EdgesByIdRequest> decodeEdgesById(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 5 && arrays.size() != 6) return malformedEdgeRequest("not 5 or 6 arrays");
  EdgesByIdHeader header;
  FARHOP_RETURN_IF_ERROR(copyHeader(arrays[0], &header));
  EdgesByIdRequest request;
  request.relation = header.relation;
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[1], kEdgeRequestName, &request.features));
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[2], kEdgeRequestName, &request.runs));
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[3], kEdgeRequestName, &request.rows));
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[4], kEdgeRequestName, &request.edgeIds));
  if (arrays.size() == 6) FARHOP_RETURN_IF_ERROR(copyArray(arrays[5], kEdgeRequestName, &request.parts));
  if (request.relation >= graph.schema().relations.size()) return malformedEdgeRequest(absl::StrCat("relation ", request.relation));
  const int relation = static_cast<int>(request.relation);
  FARHOP_RETURN_IF_ERROR(checkFeatures(graph, relation, request.features, request.parts));
  if (request.edgeIds.size() != request.rows.size()) return malformedEdgeRequest("not one edge id per row");
  const int type = graph.schema().relations[relation].destination;
  uint64_t total = 0;
  for (const EdgeRun& run : request.runs) {
    if (run.partition >= static_cast<uint32_t>(graph.book().numPartitions())) {
      return malformedEdgeRequest(absl::StrCat("partition ", run.partition));
    }
    const int partition = static_cast<int>(run.partition);
    if (!graph.isOwn(partition)) {
      return absl::FailedPreconditionError(absl::StrCat("partition ", run.partition, " is not served by machine ",
                                                        graph.machine(), "; all processes must open the same store"));
    }
    if (run.count > request.rows.size() - total) return malformedEdgeRequest("fewer rows than the runs say");
    const uint64_t rows = graph.book().count(type, partition);
    for (uint64_t i = total; i < total + run.count; ++i) {
      if (request.rows[i] >= rows) return malformedEdgeRequest("a row beyond its partition");
    }
    total += run.count;
  }
  if (total != request.rows.size()) return malformedEdgeRequest("more rows than the runs say");
  return request;
}

}  // namespace farhop::sampler
