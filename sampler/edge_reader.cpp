#include "sampler/edge_reader.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace farhop::sampler {
namespace {

constexpr size_t kPrefetchEdges = 8;
// Rows that are drawn before their features are read: what is kept of a draw stays small, whatever is asked for.
constexpr uint32_t kRowsPerDraw = 64;

// Copies the part of the rows at `positions` behind each other.
void gatherEdges(const partition::FeatureTable& table, const RowPart& part, std::span<const uint64_t> positions,
                 std::byte* destination) {
  const size_t rowBytes = table.spec.rowBytes();
  if (part.bytes == 0) return;  // perhaps neither side has an address
  const std::byte* const data = table.data + part.firstByte;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i + kPrefetchEdges < positions.size()) __builtin_prefetch(data + positions[i + kPrefetchEdges] * rowBytes);
    std::memcpy(destination + i * part.bytes, data + positions[i] * rowBytes, part.bytes);
  }
}

}  // namespace

std::shared_ptr<const EdgeIdIndex::Order> EdgeIdIndex::orderOf(uint32_t row) const {
  {
    std::lock_guard lock(mutex_);
    const auto known = orders_.find(row);
    if (known != orders_.end()) return known->second;
  }
  const uint64_t from = edges_.indptr[row];
  auto order = std::make_shared<Order>(edges_.indptr[row + 1] - from);
  std::iota(order->begin(), order->end(), 0);
  const uint64_t* const ids = edges_.edgeIds.data() + from;
  std::sort(order->begin(), order->end(), [ids](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
  std::lock_guard lock(mutex_);
  return orders_.try_emplace(row, std::move(order)).first->second;
}

uint64_t EdgeIdIndex::findInLongRow(uint32_t row, uint64_t edgeId) const {
  const std::shared_ptr<const Order> order = orderOf(row);
  const uint64_t* const ids = edges_.edgeIds.data() + edges_.indptr[row];
  const auto at = std::lower_bound(order->begin(), order->end(), edgeId,
                                   [ids](uint32_t position, uint64_t id) { return ids[position] < id; });
  return at == order->end() || ids[*at] != edgeId ? kNotThere : edges_.indptr[row] + *at;
}

absl::Status EdgeIdIndex::find(std::span<const uint32_t> rows, std::span<const uint64_t> edgeIds,
                               std::vector<uint64_t>* positions) const {
  const uint64_t* const indptr = edges_.indptr.data();
  const uint64_t* const ids = edges_.edgeIds.data();
  positions->reserve(positions->size() + rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + 2 * kPrefetchEdges < rows.size()) __builtin_prefetch(indptr + rows[i + 2 * kPrefetchEdges]);
    if (i + kPrefetchEdges < rows.size()) __builtin_prefetch(ids + indptr[rows[i + kPrefetchEdges]]);
    const uint64_t from = indptr[rows[i]], to = indptr[rows[i] + 1];
    uint64_t position = kNotThere;
    if (to - from > kShortRow && to - from <= std::numeric_limits<uint32_t>::max()) {
      position = findInLongRow(rows[i], edgeIds[i]);
    } else {
      const uint64_t* const at = std::find(ids + from, ids + to, edgeIds[i]);
      if (at != ids + to) position = static_cast<uint64_t>(at - ids);
    }
    if (position == kNotThere) {
      return absl::InvalidArgumentError(absl::StrCat("row ", rows[i], " has no edge ", edgeIds[i],
                                                     "; all processes must open the same store"));
    }
    positions->push_back(position);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<partition::FeatureTable>> EdgeReader::tables(int relation, std::span<const uint32_t> features,
                                                                        int partition) const {
  const partition::GraphShard& shard = *graph_->shard(partition);
  std::vector<partition::FeatureTable> tables;
  for (uint32_t feature : features) {
    if (feature == kEdgeIdFeature) {
      const std::span<const uint64_t> ids = shard.relation(relation).edgeIds;
      tables.push_back({edgeFeatureSpec(*graph_, relation, feature), ids.size(),
                        reinterpret_cast<const std::byte*>(ids.data())});
      continue;
    }
    const std::string& name = graph_->schema().relations[relation].features[feature].name;
    const partition::FeatureTable* const table = shard.edgeFeature(relation, name);
    if (table == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("partition ", partition, " has no feature '", name, "' of relation ",
                                                        graph_->schema().relationText(relation)));
    }
    tables.push_back(*table);
  }
  return tables;
}

const EdgeIdIndex& EdgeReader::index(int relation, int partition) const {
  std::lock_guard lock(mutex_);
  std::unique_ptr<EdgeIdIndex>& index = indexes_[{relation, partition}];
  if (!index) index = std::make_unique<EdgeIdIndex>(graph_->shard(partition)->relation(relation));
  return *index;
}

template <typename Id>
absl::Status EdgeReader::readDrawnAs(const DrawnEdgesRequest& request, std::span<std::byte* const> destinations,
                                     uint64_t* checksum) const {
  const RelationDraw& draw = request.rows.draws[0];
  const int relation = static_cast<int>(draw.relation);
  const std::vector<RowPart> parts = edgeRowParts(*graph_, relation, request.features, request.parts);
  const uint64_t skip = request.header.skip, end = skip + request.header.edges;
  DrawnNeighbors<Id> drawn;
  PositionSet scratch;
  uint64_t seen = 0;  // edges drawn so far
  *checksum = 0;
  uint32_t first = 0;
  for (const RowRun& run : request.rows.runs) {
    const int partition = static_cast<int>(run.partition);
    FARHOP_ASSIGN_OR_RETURN(const auto features, tables(relation, request.features, partition));
    const uint32_t runEnd = first + run.count;
    for (; first < runEnd; first += std::min(kRowsPerDraw, runEnd - first)) {
      if (seen >= end) return absl::InvalidArgumentError("malformed request for edge features: rows beyond the last edge");
      DrawRows rows = request.rows.rowsOf(0, first, std::min(kRowsPerDraw, runEnd - first));
      rows.positionsAsIds = true;
      drawn.clear();
      FARHOP_RETURN_IF_ERROR(drawNeighbors<Id>(*graph_, partition, draw, rows, true, &drawn, &scratch));
      const uint64_t count = drawn.edgeIds.size();
      const uint64_t from = std::min(count, skip - std::min(skip, seen)), to = std::min(count, end - seen);
      if (from < to) {
        const uint64_t at = seen + from - skip;
        const std::span<const uint64_t> positions(drawn.edgeIds.data() + from, to - from);
        for (size_t f = 0; f < features.size(); ++f) {
          gatherEdges(features[f], parts[f], positions, destinations[f] + at * parts[f].bytes);
        }
        for (uint64_t i = from; i < to; ++i) *checksum += drawnEdgesChecksum(at + i - from, drawn.neighbors[i]);
      }
      seen += count;
    }
  }
  if (seen < end) {
    return absl::InvalidArgumentError(absl::StrCat("the rows draw ", seen, " edges, not ", end,
                                                   "; all processes must open the same store"));
  }
  return absl::OkStatus();
}

absl::Status EdgeReader::readDrawn(const DrawnEdgesRequest& request, std::span<std::byte* const> destinations,
                                   uint64_t* checksum) const {
  return graph_->narrowIds(static_cast<int>(request.rows.draws[0].relation))
             ? readDrawnAs<uint32_t>(request, destinations, checksum)
             : readDrawnAs<uint64_t>(request, destinations, checksum);
}

absl::Status EdgeReader::readById(const EdgesByIdRequest& request, std::span<std::byte* const> destinations) const {
  const int relation = static_cast<int>(request.relation);
  const std::vector<RowPart> parts = edgeRowParts(*graph_, relation, request.features, request.parts);
  std::vector<uint64_t> positions;
  size_t at = 0;
  for (const EdgeRun& run : request.runs) {
    const int partition = static_cast<int>(run.partition);
    FARHOP_ASSIGN_OR_RETURN(const auto features, tables(relation, request.features, partition));
    positions.clear();
    FARHOP_RETURN_IF_ERROR(index(relation, partition)
                               .find(std::span(request.rows).subspan(at, run.count),
                                     std::span(request.edgeIds).subspan(at, run.count), &positions));
    for (size_t f = 0; f < features.size(); ++f) {
      gatherEdges(features[f], parts[f], positions, destinations[f] + at * parts[f].bytes);
    }
    at += run.count;
  }
  return absl::OkStatus();
}

namespace {

// Memory for the parts of `edges` rows of each feature, or an error for more than `maxReplyBytes`.
struct ReplyArrays {
  std::vector<rpc::Bytes> arrays;
  std::vector<std::byte*> addresses;
  size_t bytes = 0;
};

absl::StatusOr<ReplyArrays> allocateReply(const std::vector<RowPart>& parts, uint64_t edges, size_t maxReplyBytes) {
  ReplyArrays reply;
  size_t edgeBytes = 0;
  for (const RowPart& part : parts) edgeBytes += part.bytes;
  if (edgeBytes > 0 && edges > maxReplyBytes / edgeBytes) {
    return absl::InvalidArgumentError(absl::StrCat("malformed request for edge features: ", edges, " edges of ", edgeBytes,
                                                   " bytes exceed the ", maxReplyBytes, " bytes of a reply"));
  }
  reply.bytes = edges * edgeBytes;
  for (const RowPart& part : parts) {
    reply.arrays.push_back(rpc::Bytes::allocate(edges * part.bytes));
    reply.addresses.push_back(reply.arrays.back().data());
  }
  return reply;
}

void answer(absl::StatusOr<ReplyArrays> reply, SamplerMetrics* metrics, rpc::Responder* responder) {
  if (!reply.ok()) {
    responder->fail(reply.status());
    return;
  }
  metrics->featureBytesRead.add(static_cast<double>(reply->bytes));
  std::vector<rpc::OutArray> arrays;
  for (rpc::Bytes& array : reply->arrays) arrays.push_back(rpc::OutArray::fromBytes(std::move(array)));
  responder->reply(std::move(arrays));
}

}  // namespace

void registerEdgeService(rpc::Agent* agent, std::shared_ptr<const EdgeReader> reader,
                         std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes) {
  agent->handle(kDrawnEdgesMethod, [reader, metrics, maxReplyBytes](rpc::Request request, rpc::Responder responder) {
    const auto serve = [&]() -> absl::StatusOr<ReplyArrays> {
      FARHOP_ASSIGN_OR_RETURN(const DrawnEdgesRequest decoded, decodeDrawnEdges(request.arrays, reader->graph()));
      FARHOP_ASSIGN_OR_RETURN(ReplyArrays reply,
                              allocateReply(edgeRowParts(reader->graph(), static_cast<int>(decoded.rows.draws[0].relation),
                                                         decoded.features, decoded.parts),
                                            decoded.header.edges, maxReplyBytes));
      uint64_t checksum = 0;
      FARHOP_RETURN_IF_ERROR(reader->readDrawn(decoded, reply.addresses, &checksum));
      reply.arrays.push_back(rpc::Bytes::allocate(sizeof(checksum)));
      std::memcpy(reply.arrays.back().data(), &checksum, sizeof(checksum));
      return reply;
    };
    answer(serve(), metrics.get(), &responder);
  });
  agent->handle(kEdgesByIdMethod, [reader, metrics, maxReplyBytes](rpc::Request request, rpc::Responder responder) {
    const auto serve = [&]() -> absl::StatusOr<ReplyArrays> {
      FARHOP_ASSIGN_OR_RETURN(const EdgesByIdRequest decoded, decodeEdgesById(request.arrays, reader->graph()));
      FARHOP_ASSIGN_OR_RETURN(ReplyArrays reply,
                              allocateReply(edgeRowParts(reader->graph(), static_cast<int>(decoded.relation),
                                                         decoded.features, decoded.parts),
                                            decoded.rows.size(), maxReplyBytes));
      FARHOP_RETURN_IF_ERROR(reader->readById(decoded, reply.addresses));
      return reply;
    };
    answer(serve(), metrics.get(), &responder);
  });
}

}  // namespace farhop::sampler
