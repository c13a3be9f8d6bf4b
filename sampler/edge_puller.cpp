#include "sampler/edge_puller.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "sampler/sized_sink.h"

namespace farhop::sampler {
namespace {

constexpr int kChunksUnderWay = 2;

constexpr char kWrongSizes[] = "malformed reply with edge features: not the edges that were asked for";

// The batch's draw and the one made again differ: a bug, or stores that differ.
absl::Status otherDraw() {
  return absl::InternalError(
      "drawing the batch's edges again gave other edges; all processes must open the same store, unchanged");
}

}  // namespace

// One pull. Used on the executor's thread alone.
struct EdgePuller::Pull {
  EdgePullRequest request;
  std::function<void(absl::Status)> done;
  bool wantsById = false;              // a second stage asks for rows by edge id
  std::vector<uint64_t> edgeIds;       // of all edges, where the second stage needs them

  // The stage at hand.
  std::vector<EdgeTarget> targets;
  std::vector<uint32_t> features;      // of the targets
  std::vector<RowCopy> copies;         // of the targets
  std::vector<RowPart> parts;          // of the targets; empty: all want whole rows
  uint64_t chunkEdges = 1;
  std::vector<std::unique_ptr<EdgeChunkSource>> sources;
  int underWay = 0;                    // chunks, and one for the stage's start
  absl::Status status;

  bool cancelled() const { return request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed); }
  // Puts the rows of a chunk where they belong.
  void place(const EdgeChunk& chunk, const std::vector<rpc::Bytes>& arrays) const {
    for (size_t t = 0; t < targets.size(); ++t) {
      if (copies[t].sourceBytes() == 0) continue;
      const std::byte* from = arrays[t].data();
      for (const SlotRun& run : chunk.slots) {
        copies[t].copy(from, targets[t].destination + run.first * copies[t].destinationBytes(), run.count);
        from += run.count * copies[t].sourceBytes();
      }
    }
  }
  // Hands out the ids that are here.
  void placeEdgeIds() const {
    for (const EdgeTarget& target : request.targets) {
      if (target.feature != kEdgeIdFeature || edgeIds.empty() || target.format.part) continue;
      std::memcpy(target.destination, edgeIds.data(), edgeIds.size() * sizeof(uint64_t));
    }
  }
  // All that is wanted but edge ids.
  std::vector<EdgeTarget> rowTargets() const {
    std::vector<EdgeTarget> rows;
    for (const EdgeTarget& target : request.targets) {
      if (target.feature != kEdgeIdFeature) rows.push_back(target);
    }
    return rows;
  }
};

EdgePuller::EdgePuller(std::shared_ptr<const EdgeReader> reader, rpc::Agent* agent,
                       std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes)
    : reader_(std::move(reader)),
      agent_(agent),
      metrics_(std::move(metrics)),
      maxReplyBytes_(maxReplyBytes),
      executor_("farhop-edges", 1) {}

EdgePuller::~EdgePuller() = default;

void EdgePuller::pull(EdgePullRequest request, std::function<void(absl::Status)> done) {
  auto pull = std::make_shared<Pull>();
  pull->request = std::move(request);
  pull->done = std::move(done);
  executor_.post([this, pull] { begin(pull); });
}

void EdgePuller::begin(const std::shared_ptr<Pull>& pull) {
  pull->underWay = 1;
  absl::Status status;
  try {
    const PartitionedGraph& graph = reader_->graph();
    const EdgeRange& range = pull->request.range;
    const bool byId = !range.drawn || featureRelation(graph, range.relation) != range.relation;
    pull->targets = pull->rowTargets();
    pull->wantsById = byId && !pull->targets.empty();
    const bool wantsIds = pull->targets.size() < pull->request.targets.size();
    if (wantsIds || pull->wantsById) pull->edgeIds = carriedEdgeIds(graph, range);
    if (!range.drawn && !range.sampling->edgeIds) {
      pull->targets.clear();
      status = absl::FailedPreconditionError("these edges are no result of draws; features need their ids carried");
    } else if (!pull->edgeIds.empty()) {
      pull->placeEdgeIds();
      if (pull->wantsById) pull->targets.clear();
    } else if (pull->wantsById && range.drawn) {
      pull->edgeIds.resize(edgeCount(graph, range));
      pull->targets = {{kEdgeIdFeature, reinterpret_cast<std::byte*>(pull->edgeIds.data())}};
    } else {
      pull->targets = pull->request.targets;
    }
    if (!pull->targets.empty() && range.drawn) {
      auto sources = drawnEdgeChunks(graph, range);
      status = sources.status();
      if (sources.ok()) pull->sources = *std::move(sources);
    }
    if (status.ok()) status = startStage(pull);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  }
  release(pull, status);
}

absl::Status EdgePuller::addCopies(Pull* pull) const {
  pull->features.clear();
  pull->copies.clear();
  pull->parts.clear();
  bool whole = true;
  for (const EdgeTarget& target : pull->targets) {
    FARHOP_ASSIGN_OR_RETURN(
        const RowCopy copy, RowCopy::make(edgeFeatureSpec(reader_->graph(), pull->request.range.relation, target.feature), target.format));
    pull->features.push_back(target.feature);
    pull->copies.push_back(copy);
    pull->parts.push_back(copy.part());
    whole = whole && copy.isWholeRow();
  }
  if (whole) pull->parts.clear();
  return absl::OkStatus();
}

// Begins with the chunks of other machines, which travel while the own ones are read.
absl::Status EdgePuller::startStage(const std::shared_ptr<Pull>& pull) {
  const PartitionedGraph& graph = reader_->graph();
  FARHOP_RETURN_IF_ERROR(addCopies(pull.get()));
  size_t edgeBytes = 0;
  for (const RowCopy& copy : pull->copies) edgeBytes += copy.sourceBytes();
  pull->chunkEdges = std::max<uint64_t>(1, maxReplyBytes_ / std::max<size_t>(1, edgeBytes));
  for (size_t s = 0; s < pull->sources.size(); ++s) {
    if (pull->sources[s]->machine() == graph.machine()) continue;
    for (int i = 0; i < kChunksUnderWay; ++i) startChunk(pull, s);
  }
  for (size_t s = 0; s < pull->sources.size(); ++s) {
    if (pull->sources[s]->machine() != graph.machine() || !pull->status.ok()) continue;
    FARHOP_RETURN_IF_ERROR(readOwn(pull.get(), s));
  }
  return absl::OkStatus();
}

absl::Status EdgePuller::readOwn(Pull* pull, size_t source) {
  EdgeChunk chunk;
  while (pull->sources[source]->next(pull->chunkEdges, &chunk)) {
    std::vector<rpc::Bytes> arrays;
    std::vector<std::byte*> addresses;
    size_t bytes = 0;
    for (const RowCopy& copy : pull->copies) {
      arrays.push_back(rpc::Bytes::allocate(copy.sourceBytes() * chunk.count));
      addresses.push_back(arrays.back().data());
      bytes += arrays.back().size();
    }
    if (chunk.byId) {
      chunk.edges.features = pull->features;
      chunk.edges.parts = pull->parts;
      FARHOP_RETURN_IF_ERROR(reader_->readById(chunk.edges, addresses));
    } else {
      chunk.drawn.features = pull->features;
      chunk.drawn.parts = pull->parts;
      uint64_t checksum = 0;
      FARHOP_RETURN_IF_ERROR(reader_->readDrawn(chunk.drawn, addresses, &checksum));
      if (checksum != chunk.checksum) return otherDraw();
    }
    pull->place(chunk, arrays);
    metrics_->ownRows.add(static_cast<double>(chunk.count));
    metrics_->featureBytesRead.add(static_cast<double>(bytes));
  }
  return absl::OkStatus();
}

void EdgePuller::startChunk(const std::shared_ptr<Pull>& pull, size_t source) {
  if (pull->status.ok() && pull->cancelled()) {
    pull->status = absl::CancelledError("nobody wants the pulled features any more");
  }
  if (!pull->status.ok()) return;
  auto chunk = std::make_shared<EdgeChunk>();
  if (pull->sources[source]->next(pull->chunkEdges, chunk.get())) send(pull, source, std::move(chunk));
}

void EdgePuller::send(const std::shared_ptr<Pull>& pull, size_t source, std::shared_ptr<EdgeChunk> chunk) {
  std::vector<size_t> sizes;
  for (const RowCopy& copy : pull->copies) sizes.push_back(copy.sourceBytes() * chunk->count);
  std::vector<rpc::OutArray> arrays;
  uint16_t method;
  if (chunk->byId) {
    chunk->edges.features = pull->features;
    chunk->edges.parts = pull->parts;
    arrays = encodeEdgesById(std::move(chunk->edges));
    method = kEdgesByIdMethod;
  } else {
    chunk->drawn.features = pull->features;
    chunk->drawn.parts = pull->parts;
    arrays = encodeDrawnEdges(std::move(chunk->drawn));
    method = kDrawnEdgesMethod;
    sizes.push_back(sizeof(uint64_t));
  }
  size_t bytes = 0;
  for (const rpc::OutArray& array : arrays) bytes += array.bytes;
  for (size_t size : sizes) bytes += size;
  metrics_->featureBytes.add(static_cast<double>(bytes));
  auto sink = std::make_shared<SizedSink>(std::move(sizes), kWrongSizes);
  agent_->call(pull->sources[source]->machine(), method, std::move(arrays), pull->request.deadline, sink,
               [this, pull, source, chunk = std::move(chunk), sink](absl::Status status) {
                 // Copying rows is no work for a transport thread.
                 executor_.post([this, pull, source, chunk, sink, status = std::move(status)] {
                   absl::Status result = status;
                   try {
                     if (result.ok()) result = finishChunk(pull, source, *chunk, sink->arrays);
                   } catch (const std::bad_alloc&) {
                     result = absl::ResourceExhaustedError("out of memory");
                   }
                   release(pull, result.ok() ? result
                                             : annotate(result, absl::StrCat("pulling edge features from machine ",
                                                                             pull->sources[source]->machine())));
                 });
               });
  ++pull->underWay;  // after what may throw; the completion is only posted to this thread
}

absl::Status EdgePuller::finishChunk(const std::shared_ptr<Pull>& pull, size_t source, const EdgeChunk& chunk,
                                     const std::vector<rpc::Bytes>& arrays) {
  if (!chunk.byId && arrays.back().as<uint64_t>()[0] != chunk.checksum) return otherDraw();
  if (!pull->cancelled()) pull->place(chunk, arrays);
  metrics_->remoteRows.add(static_cast<double>(chunk.count));
  startChunk(pull, source);
  return absl::OkStatus();
}

// Drops one share; the last one ends the stage.
void EdgePuller::release(const std::shared_ptr<Pull>& pull, const absl::Status& status) {
  if (pull->status.ok()) pull->status = status;
  if (--pull->underWay > 0) return;
  finishStage(pull);
}

void EdgePuller::finishStage(const std::shared_ptr<Pull>& pull) {
  if (!pull->status.ok() || !std::exchange(pull->wantsById, false)) {
    pull->done(pull->status);
    return;
  }
  pull->underWay = 1;
  absl::Status status;
  try {
    pull->placeEdgeIds();
    pull->targets = pull->rowTargets();
    pull->sources = edgeChunksById(reader_->graph(), pull->request.range, pull->edgeIds);
    status = startStage(pull);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  }
  release(pull, status);
}

}  // namespace farhop::sampler
