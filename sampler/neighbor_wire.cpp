#include "sampler/neighbor_wire.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <tuple>

#include "sampler/wire_parts.h"

namespace farhop::sampler {
namespace {

constexpr char kNeighborRequestName[] = "neighbour request";

absl::Status malformedNeighborRequest(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed ", kNeighborRequestName, ": ", what));
}

absl::Status checkExcluded(const NeighborRequest& request) {
  const ExcludedEdge* before = nullptr;
  for (const ExcludedEdge& edge : request.excluded) {
    if (edge.draw >= request.draws.size()) return malformedNeighborRequest(absl::StrCat("excludes from draw ", edge.draw));
    if (edge.row >= request.rows.size()) return malformedNeighborRequest(absl::StrCat("excludes from row ", edge.row));
    if (before != nullptr && std::tie(edge.draw, edge.row) < std::tie(before->draw, before->row)) {
      return malformedNeighborRequest("excluded edges are not in order");
    }
    before = &edge;
  }
  return absl::OkStatus();
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

DrawRows NeighborRequest::rowsOf(uint32_t draw, uint32_t first, uint32_t count) const {
  DrawRows part;
  part.rows = std::span(rows).subspan(first, count);
  if (!occurrences.empty()) part.occurrences = std::span(occurrences).subspan(first, count);
  if (!times.empty()) part.times = std::span(times).subspan(first, count);
  part.firstRow = first;
  const auto begin = std::partition_point(excluded.begin(), excluded.end(), [&](const ExcludedEdge& edge) {
    return edge.draw < draw || (edge.draw == draw && edge.row < first);
  });
  const auto end = std::partition_point(begin, excluded.end(), [&](const ExcludedEdge& edge) {
    return edge.draw == draw && edge.row - first < count;
  });
  part.excluded = std::span(begin, end);
  return part;
}

std::vector<rpc::OutArray> encodeNeighborRequest(const NeighborRequest& request) {
  NeighborRequestHeader header;
  header.flags = (request.wantEdgeIds ? kWantEdgeIds : 0) | (request.occurrences.empty() ? 0 : kRowOccurrences) |
                 (request.times.empty() ? 0 : kRowTimes);
  header.draws = static_cast<uint32_t>(request.draws.size());
  header.runs = static_cast<uint32_t>(request.runs.size());
  header.excluded = static_cast<uint32_t>(request.excluded.size());
  WireWriter writer(sizeof(header) + request.draws.size() * sizeof(RelationDraw) + request.runs.size() * sizeof(RowRun) +
                    request.excluded.size() * sizeof(ExcludedEdge) + request.times.size() * sizeof(int64_t) +
                    (request.occurrences.size() + request.rows.size()) * sizeof(uint32_t));
  writer.put(&header, 1);
  writer.putAll(request.draws);
  writer.putAll(request.runs);
  writer.putAll(request.excluded);
  writer.putAll(request.times);
  writer.putAll(request.occurrences);
  writer.putAll(request.rows);
  return oneArray(writer.finish());
}

absl::StatusOr<NeighborRequest> decodeNeighborRequest(std::span<const rpc::Bytes> arrays,
                                                      const PartitionedGraph& graph) {
  if (arrays.size() != 1) return malformedNeighborRequest("not one array");
  WireReader reader(arrays[0], kNeighborRequestName);
  NeighborRequestHeader header;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "header", &header));
  NeighborRequest request;
  request.wantEdgeIds = (header.flags & kWantEdgeIds) != 0;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.draws, "relations", &request.draws));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.runs, "runs", &request.runs));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.excluded, "excluded edges", &request.excluded));
  const bool hasOccurrences = (header.flags & kRowOccurrences) != 0, hasTimes = (header.flags & kRowTimes) != 0;
  const size_t rowBytes = sizeof(uint32_t) * (hasOccurrences ? 2 : 1) + (hasTimes ? sizeof(int64_t) : 0);
  if (reader.left() % rowBytes != 0) return malformedNeighborRequest("a part of a row");
  const uint64_t rowCount = reader.left() / rowBytes;
  if (hasTimes) FARHOP_RETURN_IF_ERROR(reader.takeAll(rowCount, "times", &request.times));
  if (hasOccurrences) FARHOP_RETURN_IF_ERROR(reader.takeAll(rowCount, "occurrences", &request.occurrences));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(rowCount, "rows", &request.rows));
  if (request.draws.size() > graph.schema().relations.size()) return malformedNeighborRequest("more draws than relations");
  for (const RelationDraw& draw : request.draws) {
    FARHOP_RETURN_IF_ERROR(annotate(checkDraw(draw, graph), "malformed neighbour request"));
  }
  uint64_t total = 0;
  for (const RowRun& run : request.runs) {
    if (run.nodeType >= graph.schema().nodeTypes.size()) return malformedNeighborRequest(absl::StrCat("node type ", run.nodeType));
    if (run.partition >= static_cast<uint32_t>(graph.book().numPartitions())) {
      return malformedNeighborRequest(absl::StrCat("partition ", run.partition));
    }
    if (!graph.isOwn(static_cast<int>(run.partition))) {
      return absl::FailedPreconditionError(absl::StrCat("partition ", run.partition, " is not served by machine ",
                                                        graph.machine(), "; all processes must open the same store"));
    }
    if (run.count > request.rows.size() - total) return malformedNeighborRequest("fewer rows than the runs say");
    const uint64_t rows = graph.book().count(static_cast<int>(run.nodeType), static_cast<int>(run.partition));
    if (!allBelow<uint32_t>(std::span(request.rows).subspan(total, run.count), rows)) {
      return malformedNeighborRequest(absl::StrCat("a row beyond the ", rows, " of partition ", run.partition));
    }
    total += run.count;
  }
  if (total != request.rows.size()) return malformedNeighborRequest("more rows than the runs say");
  FARHOP_RETURN_IF_ERROR(checkExcluded(request));
  for (const RelationDraw& draw : request.draws) {
    if (!drawsWithReplacement(static_cast<DrawKind>(draw.kind)) || draw.fanout <= 0) continue;
    if (total > kMaxEdges / static_cast<uint64_t>(draw.fanout)) {
      return malformedNeighborRequest(absl::StrCat(draw.fanout, " draws with replacement from ", total, " rows"));
    }
  }
  return request;
}

absl::StatusOr<std::vector<std::vector<DrawSlice>>> sliceNeighborReply(const NeighborRequest& request,
                                                                       std::span<const rpc::Bytes> reply,
                                                                       const PartitionedGraph& graph) {
  const absl::Status bad = absl::InternalError("malformed neighbour reply: lengths do not fit the request");
  if (reply.size() != 1 && reply.size() != 2) return bad;
  uint64_t countsInAll = 0;
  for (const RelationDraw& draw : request.draws) {
    const int destination = graph.schema().relations[draw.relation].destination;
    for (const RowRun& run : request.runs) countsInAll += static_cast<int>(run.nodeType) == destination ? run.count : 0;
  }
  const std::span<const uint32_t> narrowPart = reply[0].as<uint32_t>();
  if (countsInAll > narrowPart.size()) return bad;
  const std::span<const uint32_t> countsPart = narrowPart.last(countsInAll);
  const std::span<const uint64_t> widePart = reply.size() == 2 ? reply[1].as<uint64_t>() : std::span<const uint64_t>();
  const uint64_t idsInAll =
      request.wantEdgeIds ? std::accumulate(countsPart.begin(), countsPart.end(), uint64_t{0}) : 0;
  if (idsInAll > widePart.size()) return bad;
  PieceReader<uint32_t> counts(countsPart), narrow(narrowPart.first(narrowPart.size() - countsInAll));
  PieceReader<uint64_t> wide(widePart.first(widePart.size() - idsInAll)), edgeIds(widePart.last(idsInAll));
  std::vector<std::vector<DrawSlice>> slices(request.draws.size());
  for (size_t d = 0; d < request.draws.size(); ++d) {
    const RelationDraw& draw = request.draws[d];
    const int relation = static_cast<int>(draw.relation);
    const partition::Relation& edges = graph.schema().relations[relation];
    const uint64_t sources = graph.schema().nodeTypes[edges.source].count;
    slices[d].resize(request.runs.size());
    const bool bounded = draw.fanout >= 0 && static_cast<DrawKind>(draw.kind) != DrawKind::kLaborPoisson;
    for (size_t r = 0; r < request.runs.size(); ++r) {
      const RowRun& run = request.runs[r];
      if (static_cast<int>(run.nodeType) != edges.destination) continue;
      DrawSlice& slice = slices[d][r];
      slice.counts = counts.take(run.count);
      if (slice.counts == nullptr) return bad;
      uint64_t total = 0;
      for (uint32_t i = 0; i < run.count; ++i) {
        if (bounded && slice.counts[i] > static_cast<uint32_t>(draw.fanout)) return bad;
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
