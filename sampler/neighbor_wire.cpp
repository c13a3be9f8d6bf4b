#include "sampler/neighbor_wire.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

namespace farhop::sampler {
namespace {

absl::Status malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed neighbour request: ", what));
}

template <typename T>
absl::StatusOr<std::vector<T>> copyArray(const rpc::Bytes& bytes, absl::string_view what) {
  if (bytes.size() % sizeof(T) != 0) return malformed(absl::StrCat(what, " has ", bytes.size(), " bytes"));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <typename Id>
bool allBelow(std::span<const Id> gids, uint64_t limit) {
  return std::all_of(gids.begin(), gids.end(), [limit](Id gid) { return gid < limit; });
}

// Reads consecutive pieces of a typed reply array.
template <typename T>
class PieceReader {
 public:
  explicit PieceReader(std::span<const T> values) : values_(values) {}
  // nullptr when fewer than `count` are left.
  const T* take(uint64_t count) {
    if (count > values_.size() - at_) return nullptr;
    const T* piece = values_.data() + at_;
    at_ += count;
    return piece == nullptr ? reinterpret_cast<const T*>(this) : piece;  // an empty array has no address
  }
  bool finished() const { return at_ == values_.size(); }

 private:
  std::span<const T> values_;
  size_t at_ = 0;
};

}  // namespace

std::vector<rpc::OutArray> encodeNeighborRequest(NeighborRequest request) {
  std::vector<NeighborRequestHeader> header(1);
  header[0].flags = request.wantEdgeIds ? kWantEdgeIds : 0;
  std::vector<rpc::OutArray> arrays;
  arrays.push_back(rpc::OutArray::fromVector(std::move(header)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.draws)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.runs)));
  arrays.push_back(rpc::OutArray::fromVector(std::move(request.rows)));
  return arrays;
}

absl::StatusOr<NeighborRequest> decodeNeighborRequest(std::span<const rpc::Bytes> arrays,
                                                      const PartitionedGraph& graph) {
  if (arrays.size() != 4) return malformed("not 4 arrays");
  NeighborRequestHeader header;
  if (arrays[0].size() != sizeof(header)) return malformed("header size");
  std::memcpy(&header, arrays[0].data(), sizeof(header));
  NeighborRequest request;
  request.wantEdgeIds = (header.flags & kWantEdgeIds) != 0;
  FARHOP_ASSIGN_OR_RETURN(request.draws, copyArray<RelationDraw>(arrays[1], "relations"));
  FARHOP_ASSIGN_OR_RETURN(request.runs, copyArray<RowRun>(arrays[2], "runs"));
  FARHOP_ASSIGN_OR_RETURN(request.rows, copyArray<uint32_t>(arrays[3], "rows"));
  if (request.draws.size() > graph.schema().relations.size()) return malformed("more draws than relations");
  for (const RelationDraw& draw : request.draws) {
    FARHOP_RETURN_IF_ERROR(annotate(checkDraw(draw, graph), "malformed neighbour request"));
  }
  uint64_t total = 0;
  for (const RowRun& run : request.runs) {
    if (run.nodeType >= graph.schema().nodeTypes.size()) return malformed(absl::StrCat("node type ", run.nodeType));
    if (run.partition >= static_cast<uint32_t>(graph.book().numPartitions())) {
      return malformed(absl::StrCat("partition ", run.partition));
    }
    if (!graph.isOwn(static_cast<int>(run.partition))) {
      return absl::FailedPreconditionError(absl::StrCat("partition ", run.partition, " is not served by machine ",
                                                        graph.machine(), "; all processes must open the same store"));
    }
    if (run.count > request.rows.size() - total) return malformed("fewer rows than the runs say");
    const uint64_t rows = graph.book().count(static_cast<int>(run.nodeType), static_cast<int>(run.partition));
    if (!allBelow<uint32_t>(std::span(request.rows).subspan(total, run.count), rows)) {
      return malformed(absl::StrCat("a row beyond the ", rows, " of partition ", run.partition));
    }
    total += run.count;
  }
  if (total != request.rows.size()) return malformed("more rows than the runs say");
  for (const RelationDraw& draw : request.draws) {
    if (!drawsWithReplacement(static_cast<DrawKind>(draw.kind)) || draw.fanout <= 0) continue;
    if (total > kMaxEdges / static_cast<uint64_t>(draw.fanout)) {
      return malformed(absl::StrCat(draw.fanout, " draws with replacement from ", total, " rows"));
    }
  }
  return request;
}

absl::StatusOr<std::vector<std::vector<DrawSlice>>> sliceNeighborReply(const NeighborRequest& request,
                                                                       std::span<const rpc::Bytes> reply,
                                                                       const PartitionedGraph& graph) {
  if (reply.size() != 4) return absl::InternalError("malformed neighbour reply: not 4 arrays");
  PieceReader<uint32_t> counts(reply[0].as<uint32_t>()), narrow(reply[1].as<uint32_t>());
  PieceReader<uint64_t> wide(reply[2].as<uint64_t>()), edgeIds(reply[3].as<uint64_t>());
  const absl::Status bad = absl::InternalError("malformed neighbour reply: lengths do not fit the request");
  std::vector<std::vector<DrawSlice>> slices(request.draws.size());
  for (size_t d = 0; d < request.draws.size(); ++d) {
    const RelationDraw& draw = request.draws[d];
    const int relation = static_cast<int>(draw.relation);
    const partition::Relation& edges = graph.schema().relations[relation];
    const uint64_t sources = graph.schema().nodeTypes[edges.source].count;
    slices[d].resize(request.runs.size());
    for (size_t r = 0; r < request.runs.size(); ++r) {
      const RowRun& run = request.runs[r];
      if (static_cast<int>(run.nodeType) != edges.destination) continue;
      DrawSlice& slice = slices[d][r];
      slice.counts = counts.take(run.count);
      if (slice.counts == nullptr) return bad;
      uint64_t total = 0;
      for (uint32_t i = 0; i < run.count; ++i) {
        if (draw.fanout >= 0 && slice.counts[i] > static_cast<uint32_t>(draw.fanout)) return bad;
        total += slice.counts[i];
      }
      slice.edges = total;
      bool inRange;
      if (graph.narrowIds(relation)) {
        const uint32_t* piece = narrow.take(total);
        inRange = piece != nullptr && allBelow<uint32_t>({piece, total}, sources);
        slice.neighbors = piece;
      } else {
        const uint64_t* piece = wide.take(total);
        inRange = piece != nullptr && allBelow<uint64_t>({piece, total}, sources);
        slice.neighbors = piece;
      }
      if (!inRange) return bad;
      if (request.wantEdgeIds && (slice.edgeIds = edgeIds.take(total)) == nullptr) return bad;
    }
  }
  if (!counts.finished() || !narrow.finished() || !wide.finished() || !edgeIds.finished()) return bad;
  return slices;
}

}  // namespace farhop::sampler
