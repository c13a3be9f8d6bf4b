#include "sampler/feature_service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sampler/wire_parts.h"

namespace farhop::sampler {
namespace {

constexpr size_t kRowsAhead = 8;

constexpr char kFeatureRequestName[] = "feature request";

absl::Status malformedFeatureRequest(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed ", kFeatureRequestName, ": ", what));
}

absl::StatusOr<std::vector<rpc::OutArray>> gatherReply(const FeatureRequest& request, const PartitionedGraph& graph,
                                                       size_t maxReplyBytes, SamplerMetrics* metrics) {
  const int type = static_cast<int>(request.nodeType);
  std::vector<RowCopy> copies;
  size_t rowBytes = 0;
  for (size_t f = 0; f < request.features.size(); ++f) {
    const partition::FeatureSpec spec = featureSpec(graph, type, request.features[f]);
    // A part need not be of whole numbers: nothing is converted here.
    partition::FeatureSpec bytes{spec.name, DType::kUInt8, {spec.rowBytes()}};
    FARHOP_ASSIGN_OR_RETURN(RowCopy copy, RowCopy::make(bytes, {partOf(request.parts, f, spec.rowBytes()), {}}));
    rowBytes += copy.sourceBytes();
    copies.push_back(copy);
  }
  const size_t total = rowBytes * request.rows.size();
  if (rowBytes > maxReplyBytes || total > maxReplyBytes) {
    return malformedFeatureRequest(absl::StrCat("a reply of ", total, " bytes exceeds ", maxReplyBytes));
  }
  std::vector<rpc::OutArray> reply;
  for (size_t f = 0; f < copies.size(); ++f) {
    const size_t partBytes = copies[f].sourceBytes();
    rpc::Bytes gathered = rpc::Bytes::allocate(partBytes * request.rows.size());
    size_t at = 0;
    for (const FeatureRun& run : request.runs) {
      FARHOP_ASSIGN_OR_RETURN(const OwnTable table,
                              ownTable(graph, type, request.features[f], static_cast<int>(run.partition)));
      gatherRows(table, std::span(request.rows).subspan(at, run.count), {}, copies[f], gathered.data() + at * partBytes);
      at += run.count;
    }
    reply.push_back(rpc::OutArray::fromBytes(std::move(gathered)));
  }
  metrics->featureBytesRead.add(static_cast<double>(total));
  return reply;
}

}  // namespace

std::vector<rpc::OutArray> encodeFeatureRequest(FeatureRequest request) {
  std::vector<FeatureRequestHeader> header(1);
  header[0].nodeType = request.nodeType;
  std::vector<rpc::OutArray> arrays;
  arrays.push_back(rpc::OutArray::fromVector(std::move(header)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.features)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.runs)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.rows)));
  if (!request.parts.empty()) arrays.push_back(rpc::OutArray::fromVector(std::move(request.parts)));
  return arrays;
}

absl::StatusOr<FeatureRequest> decodeFeatureRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 4 && arrays.size() != 5) return malformedFeatureRequest("not 4 or 5 arrays");
  FeatureRequestHeader header;
  if (arrays[0].size() != sizeof(header)) return malformedFeatureRequest("header size");
  std::memcpy(&header, arrays[0].data(), sizeof(header));
  FeatureRequest request;
  request.nodeType = header.nodeType;
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[1], kFeatureRequestName, &request.features));
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[2], kFeatureRequestName, &request.runs));
  FARHOP_RETURN_IF_ERROR(copyArray(arrays[3], kFeatureRequestName, &request.rows));
  if (arrays.size() == 5) FARHOP_RETURN_IF_ERROR(copyArray(arrays[4], kFeatureRequestName, &request.parts));
  FARHOP_RETURN_IF_ERROR(checkFeatureRequest(request, graph));
  return request;
}

absl::Status checkFeatureRequest(const FeatureRequest& request, const PartitionedGraph& graph) {
  if (request.nodeType >= graph.schema().nodeTypes.size()) return malformedFeatureRequest("node type");
  const int type = static_cast<int>(request.nodeType);
  std::vector<size_t> rowBytes;
  for (uint32_t feature : request.features) {
    const bool known = feature == kOriginalIdFeature || feature < graph.schema().nodeTypes[type].features.size() ||
                       graph.jobFeatures().known(type, feature);
    if (!known) return malformedFeatureRequest("feature index");
    rowBytes.push_back(featureSpec(graph, type, feature).rowBytes());
  }
  const absl::Status parts = checkParts(request.parts, rowBytes);
  if (!parts.ok()) return malformedFeatureRequest(parts.message());
  uint64_t total = 0;
  for (const FeatureRun& run : request.runs) {
    if (run.partition >= static_cast<uint32_t>(graph.book().numPartitions())) return malformedFeatureRequest("partition");
    if (!graph.isOwn(static_cast<int>(run.partition))) {
      return absl::FailedPreconditionError(absl::StrCat("partition ", run.partition, " is not served by machine ",
                                                        graph.machine(), "; all processes must open the same store"));
    }
    if (run.count > request.rows.size() - total) return malformedFeatureRequest("fewer rows than the runs say");
    const uint64_t rows = graph.book().count(type, static_cast<int>(run.partition));
    for (uint64_t i = total; i < total + run.count; ++i) {
      if (request.rows[i] >= rows) return malformedFeatureRequest("a row beyond its partition");
    }
    total += run.count;
  }
  if (total != request.rows.size()) return malformedFeatureRequest("more rows than the runs say");
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> featureIndex(const PartitionedGraph& graph, int nodeType, const std::string& name) {
  const partition::NodeType& type = graph.schema().nodeTypes[nodeType];
  std::string known;
  for (size_t i = 0; i < type.features.size(); ++i) {
    if (type.features[i].name == name) return static_cast<uint32_t>(i);
    absl::StrAppend(&known, "'", type.features[i].name, "', ");
  }
  if (name == kOriginalIdName) return kOriginalIdFeature;
  const absl::StatusOr<uint32_t> ofJob = graph.jobFeatures().find(nodeType, name);
  if (ofJob.ok() || !absl::IsNotFound(ofJob.status())) return ofJob;
  for (const std::string& other : graph.jobFeatures().names(nodeType)) absl::StrAppend(&known, "'", other, "', ");
  return absl::NotFoundError(absl::StrCat("node type '", type.name, "' has no feature '", name, "'; it has ", known,
                                          "'", kOriginalIdName, "'"));
}

partition::FeatureSpec featureSpec(const PartitionedGraph& graph, int nodeType, uint32_t feature) {
  if (feature == kOriginalIdFeature) return {kOriginalIdName, DType::kInt64, {}};
  if (feature >= JobFeatures::kFirstIndex) return graph.jobFeatures().spec(feature);
  return graph.schema().nodeTypes[nodeType].features[feature];
}

absl::StatusOr<OwnTable> ownTable(const PartitionedGraph& graph, int nodeType, uint32_t feature, int partition) {
  const partition::GraphShard& shard = *graph.shard(partition);
  OwnTable table;
  if (feature == kOriginalIdFeature) {
    const std::span<const uint64_t> ids = shard.originalIds(nodeType);
    table.spec = featureSpec(graph, nodeType, feature);
    table.rows = ids.size();
    table.data = reinterpret_cast<const std::byte*>(ids.data());
    return table;
  }
  if (feature >= JobFeatures::kFirstIndex) {
    return graph.jobFeatures().table(feature, partition, graph.book().count(nodeType, partition));
  }
  const partition::NodeType& type = graph.schema().nodeTypes[nodeType];
  const partition::FeatureTable* stored = shard.nodeFeature(nodeType, type.features[feature].name);
  if (stored == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("partition ", partition, " has no feature '",
                                                      type.features[feature].name, "' of node type '", type.name, "'"));
  }
  static_cast<partition::FeatureTable&>(table) = *stored;
  return table;
}

void gatherRows(const partition::FeatureTable& table, std::span<const uint32_t> rows, std::span<const uint32_t> slots,
                const RowCopy& copy, std::byte* destination) {
  if (copy.sourceBytes() == 0) return;
  const size_t rowBytes = copy.rowBytes();
  const std::byte* const data = table.data + copy.part().firstByte;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kRowsAhead < rows.size()) __builtin_prefetch(data + rows[i + kRowsAhead] * rowBytes);
    const size_t slot = slots.empty() ? i : slots[i];
    copy.copy(data + rows[i] * rowBytes, destination + slot * copy.destinationBytes(), 1);
  }
}

void registerFeatureService(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph,
                            std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes) {
  agent->handle(kFeatureMethod, [graph = std::move(graph), metrics = std::move(metrics), maxReplyBytes](
                                    rpc::Request request, rpc::Responder responder) {
    absl::StatusOr<FeatureRequest> decoded = decodeFeatureRequest(request.arrays, *graph);
    if (!decoded.ok()) {
      responder.fail(decoded.status());
      return;
    }
    auto reply = gatherReply(*decoded, *graph, maxReplyBytes, metrics.get());
    if (reply.ok()) {
      responder.reply(*std::move(reply));
    } else {
      responder.fail(reply.status());
    }
  });
}

}  // namespace farhop::sampler
