#include "sampler/walk_wire.h"

#include <algorithm>

#include "sampler/walk_kernels.h"

namespace farhop::sampler {
namespace {

constexpr const char* kStepName = "walk request";
constexpr const char* kAdjacencyName = "adjacency request";

template <typename Id>
absl::Status copyGids(std::span<const Id> reply, uint64_t known, const PartitionedGraph& graph, PodVector<uint64_t>* gids) {
  gids->resizeUninitialized(reply.size());
  for (size_t i = 0; i < reply.size(); ++i) {
    const bool none = reply[i] == kNoStep<Id>;
    if (!none && reply[i] >= known) {
      return absl::DataLossError(absl::StrCat(graph.store().directory(), ": gid ", reply[i], " of ", known,
                                              " does not exist; check the store with farhop inspect --verify"));
    }
    (*gids)[i] = none ? kNoNode : reply[i];
  }
  return absl::OkStatus();
}

}  // namespace

rpc::Bytes encodeStepRequest(const StepRequest& request) {
  StepRequestHeader header;
  header.stepKey = request.stepKey;
  header.relation = static_cast<uint32_t>(request.step.relation);
  header.weighted = request.step.weighted ? 1 : 0;
  header.weight = request.step.weighted ? request.step.weight : 0;
  header.firstTry = request.firstTry;
  header.tries = request.tries;
  header.runs = static_cast<uint32_t>(request.runs.size());
  WireWriter writer(sizeof(header) + request.runs.size() * sizeof(PartitionRun) + request.rows.size() * 2 * sizeof(uint32_t));
  writer.put(&header, 1);
  writer.putAll(request.runs);
  writer.putAll(request.rows);
  writer.putAll(request.walks);
  return writer.finish();
}

absl::StatusOr<StepRequest> decodeStepRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 1) return absl::InvalidArgumentError("malformed walk request: not one array");
  WireReader reader(arrays[0], kStepName);
  StepRequestHeader header;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "header", &header));
  StepRequest request;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.runs, "runs", &request.runs));
  const uint64_t rows = reader.left() / (2 * sizeof(uint32_t));
  if (header.tries < 1 || header.tries > kMaxStepTries) return reader.malformed(absl::StrCat(header.tries, " tries"));
  if (rows > kMaxCandidates / header.tries) {
    return reader.malformed(absl::StrCat(header.tries, " tries for each of ", rows, " walks"));
  }
  FARHOP_RETURN_IF_ERROR(reader.takeAll(rows, "rows", &request.rows));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(rows, "walks", &request.walks));
  FARHOP_RETURN_IF_ERROR(reader.finish());
  if (header.relation >= graph.schema().relations.size()) return reader.malformed(absl::StrCat("relation ", header.relation));
  request.step.relation = static_cast<int>(header.relation);
  if (header.weighted > 1) return reader.malformed(absl::StrCat("weighted is ", header.weighted));
  request.step.weighted = header.weighted == 1;
  if (request.step.weighted) {
    request.step.weight = header.weight;
    FARHOP_RETURN_IF_ERROR(annotate(graph.checkWeight(request.step.relation, request.step.weight), "malformed walk request"));
  }
  request.stepKey = header.stepKey;
  request.firstTry = header.firstTry;
  request.tries = header.tries;
  const int nodeType = graph.schema().relations[request.step.relation].destination;
  FARHOP_RETURN_IF_ERROR(annotate(checkRuns(request.runs, request.rows, nodeType, graph), "malformed walk request"));
  return request;
}

absl::Status decodeStepReply(const StepRequest& request, std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph,
                             PodVector<uint64_t>* gids) {
  const bool narrow = graph.narrowIds(request.step.relation);
  const size_t count = request.rows.size() * request.tries;
  if (arrays.size() != 1 || arrays[0].size() != count * (narrow ? sizeof(uint32_t) : sizeof(uint64_t))) {
    return absl::InternalError("malformed walk reply: its length does not fit the request");
  }
  const uint64_t known = graph.schema().nodeTypes[graph.schema().relations[request.step.relation].source].count;
  return narrow ? copyGids(arrays[0].as<uint32_t>(), known, graph, gids) : copyGids(arrays[0].as<uint64_t>(), known, graph, gids);
}

rpc::Bytes encodeAdjacencyRequest(const AdjacencyRequest& request, const PartitionedGraph& graph) {
  const bool narrow = graph.narrowIds(request.relation);
  const AdjacencyRequestHeader header{static_cast<uint32_t>(request.relation), static_cast<uint32_t>(request.runs.size())};
  WireWriter writer(sizeof(header) + request.runs.size() * sizeof(PartitionRun) +
                    request.rows.size() * (sizeof(uint32_t) + (narrow ? sizeof(uint32_t) : sizeof(uint64_t))));
  writer.put(&header, 1);
  writer.putAll(request.runs);
  writer.putAll(request.rows);
  if (narrow) {
    writer.putAll(std::vector<uint32_t>(request.gids.begin(), request.gids.end()));
  } else {
    writer.putAll(request.gids);
  }
  return writer.finish();
}

absl::StatusOr<AdjacencyRequest> decodeAdjacencyRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 1) return absl::InvalidArgumentError("malformed adjacency request: not one array");
  WireReader reader(arrays[0], kAdjacencyName);
  AdjacencyRequestHeader header;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "header", &header));
  if (header.relation >= graph.schema().relations.size()) return reader.malformed(absl::StrCat("relation ", header.relation));
  AdjacencyRequest request;
  request.relation = static_cast<int>(header.relation);
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.runs, "runs", &request.runs));
  const bool narrow = graph.narrowIds(request.relation);
  const uint64_t rows = reader.left() / (narrow ? 8 : 12);
  FARHOP_RETURN_IF_ERROR(reader.takeAll(rows, "rows", &request.rows));
  if (narrow) {
    std::vector<uint32_t> gids;
    FARHOP_RETURN_IF_ERROR(reader.takeAll(rows, "nodes", &gids));
    request.gids.assign(gids.begin(), gids.end());
  } else {
    FARHOP_RETURN_IF_ERROR(reader.takeAll(rows, "nodes", &request.gids));
  }
  FARHOP_RETURN_IF_ERROR(reader.finish());
  const int nodeType = graph.schema().relations[request.relation].destination;
  FARHOP_RETURN_IF_ERROR(annotate(checkRuns(request.runs, request.rows, nodeType, graph), "malformed adjacency request"));
  return request;
}

absl::Status decodeAdjacencyReply(const AdjacencyRequest& request, std::span<const rpc::Bytes> arrays,
                                  PodVector<uint8_t>* isNeighbor) {
  const absl::Status bad = absl::InternalError("malformed adjacency reply: it does not fit the request");
  if (arrays.size() != 1 || arrays[0].size() != request.rows.size()) return bad;
  const std::span<const uint8_t> values = arrays[0].as<uint8_t>();
  if (std::any_of(values.begin(), values.end(), [](uint8_t value) { return value > 1; })) return bad;
  isNeighbor->clear();
  isNeighbor->append(values.data(), values.size());
  return absl::OkStatus();
}

}  // namespace farhop::sampler
