#include "sampler/bulk_wire.h"

#include <algorithm>
#include <utility>

#include "sampler/wire_parts.h"

namespace farhop::sampler {
namespace {

constexpr size_t kMaxErrorBytes = 4096;

// Rows [0, rows) of `rowBytes` each, or those of `slots`, within the target.
bool fits(const BulkTarget& target, size_t rowBytes, size_t rows, std::span<const uint32_t> slots) {
  if (target.offset > target.bytes) return false;
  if (rowBytes == 0 || rows == 0) return true;
  const uint64_t room = (target.bytes - target.offset) / rowBytes;
  if (target.scattered == 0) return rows <= room;
  return *std::max_element(slots.begin(), slots.end()) < room;
}

}  // namespace

rpc::OutArray encodeBulkPull(const BulkPullRequest& request) {
  BulkPullHeader header;
  header.slot = request.slot;
  header.nodeType = request.rows.nodeType;
  header.features = static_cast<uint32_t>(request.rows.features.size());
  header.runs = static_cast<uint32_t>(request.rows.runs.size());
  header.rows = static_cast<uint32_t>(request.rows.rows.size());
  header.flags = (request.rows.parts.empty() ? 0 : kHasParts) | (request.slots.empty() ? 0 : kHasSlots);
  header.workMs = request.workMs;
  WireWriter writer(sizeof(header) + header.features * (sizeof(BulkTarget) + sizeof(uint32_t)) +
                    request.rows.parts.size() * sizeof(RowPart) + header.runs * sizeof(FeatureRun) +
                    (request.rows.rows.size() + request.slots.size()) * sizeof(uint32_t));
  writer.put(&header, 1);
  writer.putAll(request.targets);
  writer.putAll(request.rows.parts);
  writer.putAll(request.rows.features);
  writer.putAll(request.rows.runs);
  writer.putAll(request.rows.rows);
  writer.putAll(request.slots);
  return rpc::OutArray::fromBytes(writer.finish());
}

absl::StatusOr<BulkPullRequest> decodeBulkPull(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 1) return absl::InvalidArgumentError("malformed bulk pull: not one array");
  WireReader reader(arrays[0], "bulk pull");
  BulkPullHeader header;
  BulkPullRequest request;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "header", &header));
  if (header.slot >= (1U << 16)) return reader.malformed("slot");
  request.slot = header.slot;
  request.workMs = header.workMs;
  request.rows.nodeType = header.nodeType;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.features, "targets", &request.targets));
  if ((header.flags & kHasParts) != 0) {
    FARHOP_RETURN_IF_ERROR(reader.takeAll(header.features, "parts", &request.rows.parts));
  }
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.features, "features", &request.rows.features));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.runs, "runs", &request.rows.runs));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.rows, "rows", &request.rows.rows));
  if ((header.flags & kHasSlots) != 0) {
    FARHOP_RETURN_IF_ERROR(reader.takeAll(header.rows, "slots", &request.slots));
  }
  FARHOP_RETURN_IF_ERROR(reader.finish());
  FARHOP_RETURN_IF_ERROR(checkFeatureRequest(request.rows, graph));
  for (size_t f = 0; f < request.targets.size(); ++f) {
    const BulkTarget& target = request.targets[f];
    if (target.scattered != 0 && request.slots.size() != request.rows.rows.size()) return reader.malformed("no slots");
    const size_t rowBytes = featureSpec(graph, static_cast<int>(header.nodeType), request.rows.features[f]).rowBytes();
    const size_t partBytes = static_cast<size_t>(partOf(request.rows.parts, f, rowBytes).bytes);
    if (!fits(target, partBytes, request.rows.rows.size(), request.slots)) {
      return reader.malformed(absl::StrCat("rows of ", partBytes, " bytes do not fit the region of ", target.bytes));
    }
  }
  return request;
}

rpc::OutArray encodeBulkPullReply(const BulkPullReply& counts, const absl::Status& status) {
  BulkPullReply reply = counts;
  reply.code = static_cast<uint32_t>(status.code());
  const size_t text = std::min(status.message().size(), kMaxErrorBytes);
  WireWriter writer(sizeof(reply) + text);
  writer.put(&reply, 1);
  writer.put(status.message().data(), text);
  return rpc::OutArray::fromBytes(writer.finish());
}

absl::StatusOr<BulkPullEnd> decodeBulkPullReply(std::span<const rpc::Bytes> arrays) {
  if (arrays.size() != 1) return absl::InternalError("malformed reply to a bulk pull: not one array");
  WireReader reader(arrays[0], "reply to a bulk pull");
  BulkPullEnd end;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "counts", &end.counts));
  if (end.counts.code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) return reader.malformed("status");
  std::vector<char> text;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(reader.left(), "text", &text));
  end.status = absl::Status(static_cast<absl::StatusCode>(end.counts.code), absl::string_view(text.data(), text.size()));
  return end;
}

}  // namespace farhop::sampler
