#include "sampler/edge_lookup.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "sampler/reply_group.h"

namespace farhop::sampler {
namespace {

absl::Status malformedLookup(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed edge lookup: ", what));
}

// Whether one of `count` neighbours is `source`: several compared at once.
template <typename Id>
bool hasNeighbor(const Id* neighbors, uint64_t count, uint64_t source) {
  constexpr uint64_t kLanes = 64;
  const Id wanted = static_cast<Id>(source);
  if (source != wanted) return false;
  uint64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    Id hit = 0;
    for (uint64_t lane = 0; lane < kLanes; ++lane) hit = static_cast<Id>(hit | static_cast<Id>(neighbors[at + lane] == wanted));
    if (hit != 0) return true;
  }
  return std::find(neighbors + at, neighbors + count, wanted) != neighbors + count;
}

// Rows are prefetched this far ahead: first their bounds, then what they begin with.
constexpr size_t kAhead = 8;

// Longer rows are searched by original id, their order, where they have no times, which come first in it. Up to here a
// pass over the row costs less than the search's reads all over the id map.
constexpr uint64_t kScannedEdges = 8192;

// `originalIds`: of source gids; empty where rows have another order.
template <typename Id>
bool searchRow(const CsrView<Id>& view, uint64_t from, uint64_t to, const partition::IdArray& originalIds, uint64_t source) {
  if (source >= originalIds.size()) return false;
  const uint64_t wanted = originalIds[source];
  const Id* const first = std::lower_bound(view.neighbors + from, view.neighbors + to, wanted, [&](Id neighbor, uint64_t id) {
    return neighbor < originalIds.size() && originalIds[neighbor] < id;
  });
  return first != view.neighbors + to && *first == source;
}

template <typename Id>
void lookUpRun(const CsrView<Id>& view, const partition::IdArray& originalIds, std::span<const uint64_t> sources,
               std::span<const uint32_t> rows, uint8_t* found) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + 2 * kAhead < rows.size()) __builtin_prefetch(view.indptr + rows[i + 2 * kAhead]);
    if (i + kAhead < rows.size()) __builtin_prefetch(view.neighbors + view.indptr[rows[i + kAhead]]);
    const uint64_t from = view.indptr[rows[i]], to = view.indptr[rows[i] + 1];
    const bool searches = to - from > kScannedEdges && originalIds.size() > 0;
    found[i] = (searches ? searchRow(view, from, to, originalIds, sources[i])
                         : hasNeighbor(view.neighbors + from, to - from, sources[i])) ? 1 : 0;
  }
}

void lookUp(const PartitionedGraph& graph, int relation, uint32_t partition, std::span<const uint64_t> sources,
            std::span<const uint32_t> rows, uint8_t* found) {
  const int k = static_cast<int>(partition);
  partition::IdArray originalIds;
  if (!graph.schema().hasTimes(relation)) {
    const auto ids = graph.store().originalIdsByGid(graph.schema().relations[relation].source);
    if (ids.ok()) originalIds = *ids;  // else rows are scanned
  }
  if (graph.narrowIds(relation)) {
    lookUpRun(graph.view<uint32_t>(k, relation), originalIds, sources, rows, found);
  } else {
    lookUpRun(graph.view<uint64_t>(k, relation), originalIds, sources, rows, found);
  }
}

// What is asked of one machine, and which pairs that is.
struct Question {
  int machine = 0;
  EdgeLookupRequest request;
  std::vector<uint32_t> pairs;
  std::shared_ptr<rpc::BytesSink> reply;
};

std::vector<Question> questionsFor(const PartitionedGraph& graph, int relation, std::span<const NodePair> pairs) {
  const int destination = graph.schema().relations[relation].destination;
  const partition::PartitionBook& book = graph.book();
  std::vector<std::vector<uint32_t>> byPartition(static_cast<size_t>(book.numPartitions()));
  for (uint32_t i = 0; i < pairs.size(); ++i) byPartition[book.partitionOf(destination, pairs[i].destination)].push_back(i);
  std::vector<Question> questions;
  for (int machine = 0; machine < graph.machines(); ++machine) {
    Question question;
    question.machine = machine;
    question.request.relation = static_cast<uint32_t>(relation);
    for (int k = 0; k < book.numPartitions(); ++k) {
      if (graph.owner(k) != machine || byPartition[k].empty()) continue;
      question.request.runs.push_back({static_cast<uint32_t>(k), static_cast<uint32_t>(byPartition[k].size())});
      for (uint32_t i : byPartition[k]) {
        question.request.sources.push_back(pairs[i].source);
        question.request.rows.push_back(static_cast<uint32_t>(pairs[i].destination - book.begin(destination, k)));
        question.pairs.push_back(i);
      }
    }
    if (!question.pairs.empty()) questions.push_back(std::move(question));
  }
  return questions;
}

absl::Status takeAnswers(const Question& question, std::span<const uint8_t> answers, std::vector<uint8_t>* found) {
  if (answers.size() != question.pairs.size()) {
    return absl::InternalError(absl::StrCat("machine ", question.machine, ": malformed reply to an edge lookup"));
  }
  for (size_t i = 0; i < answers.size(); ++i) (*found)[question.pairs[i]] = answers[i];
  return absl::OkStatus();
}

}  // namespace

std::vector<rpc::OutArray> encodeEdgeLookup(const EdgeLookupRequest& request) {
  const EdgeLookupHeader header{request.relation, static_cast<uint32_t>(request.runs.size())};
  rpc::Bytes bytes = rpc::Bytes::allocate(sizeof(header) + request.runs.size() * sizeof(EdgeLookupRun) +
                                          request.rows.size() * (sizeof(uint64_t) + sizeof(uint32_t)));
  std::byte* at = bytes.data();
  const auto append = [&at](const void* data, size_t size) {
    if (size > 0) std::memcpy(at, data, size);
    at += size;
  };
  append(&header, sizeof(header));
  append(request.runs.data(), request.runs.size() * sizeof(EdgeLookupRun));
  append(request.sources.data(), request.sources.size() * sizeof(uint64_t));
  append(request.rows.data(), request.rows.size() * sizeof(uint32_t));
  std::vector<rpc::OutArray> arrays;
  arrays.push_back(rpc::OutArray::fromBytes(std::move(bytes)));
  return arrays;
}

absl::StatusOr<EdgeLookupRequest> decodeEdgeLookup(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 1) return malformedLookup("not one array");
  const std::byte* at = arrays[0].data();
  size_t left = arrays[0].size();
  EdgeLookupHeader header;
  const auto take = [&at, &left](void* data, size_t size) {
    if (size > 0) std::memcpy(data, at, size);
    at += size;
    left -= size;
  };
  if (left < sizeof(header)) return malformedLookup("too short for its header");
  take(&header, sizeof(header));
  if (header.relation >= graph.schema().relations.size()) return malformedLookup(absl::StrCat("relation ", header.relation));
  if (header.runs > left / sizeof(EdgeLookupRun)) return malformedLookup(absl::StrCat("too short for ", header.runs, " runs"));
  EdgeLookupRequest request;
  request.relation = header.relation;
  request.runs.resize(header.runs);
  take(request.runs.data(), header.runs * sizeof(EdgeLookupRun));
  constexpr size_t kPairBytes = sizeof(uint64_t) + sizeof(uint32_t);
  if (left % kPairBytes != 0) return malformedLookup("a part of a pair");
  const size_t count = left / kPairBytes;
  request.sources.resize(count);
  request.rows.resize(count);
  take(request.sources.data(), count * sizeof(uint64_t));
  take(request.rows.data(), count * sizeof(uint32_t));
  const int destination = graph.schema().relations[header.relation].destination;
  uint64_t total = 0;
  for (const EdgeLookupRun& run : request.runs) {
    if (run.partition >= static_cast<uint32_t>(graph.book().numPartitions())) {
      return malformedLookup(absl::StrCat("partition ", run.partition));
    }
    if (!graph.isOwn(static_cast<int>(run.partition))) {
      return absl::FailedPreconditionError(absl::StrCat("partition ", run.partition, " is not served by machine ",
                                                        graph.machine(), "; all processes must open the same store"));
    }
    if (run.count > count - total) return malformedLookup("fewer pairs than the runs say");
    const uint64_t rows = graph.book().count(destination, static_cast<int>(run.partition));
    for (uint64_t i = total; i < total + run.count; ++i) {
      if (request.rows[i] >= rows) return malformedLookup(absl::StrCat("a row beyond the ", rows, " of partition ", run.partition));
    }
    total += run.count;
  }
  if (total != count) return malformedLookup("more pairs than the runs say");
  return request;
}

std::vector<uint8_t> serveEdgeLookup(const EdgeLookupRequest& request, const PartitionedGraph& graph) {
  std::vector<uint8_t> found(request.rows.size());
  size_t at = 0;
  for (const EdgeLookupRun& run : request.runs) {
    lookUp(graph, static_cast<int>(request.relation), run.partition, std::span(request.sources).subspan(at, run.count),
           std::span(request.rows).subspan(at, run.count), found.data() + at);
    at += run.count;
  }
  return found;
}

void registerEdgeLookup(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph) {
  agent->handle(kEdgeLookupMethod, [graph = std::move(graph)](rpc::Request request, rpc::Responder responder) {
    absl::StatusOr<EdgeLookupRequest> decoded = decodeEdgeLookup(request.arrays, *graph);
    if (!decoded.ok()) {
      responder.fail(decoded.status());
      return;
    }
    std::vector<rpc::OutArray> reply;
    reply.push_back(rpc::OutArray::fromVector(serveEdgeLookup(*decoded, *graph)));
    responder.reply(std::move(reply));
  });
}

Task<absl::StatusOr<std::vector<uint8_t>>> findEdges(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent,
                                                     Executor* executor, int relation, std::vector<NodePair> pairs,
                                                     std::chrono::milliseconds timeout) {
  using Result = absl::StatusOr<std::vector<uint8_t>>;
  std::vector<uint8_t> found(pairs.size());
  std::vector<Question> questions = questionsFor(*graph, relation, pairs);
  ReplyGroup replies(executor);
  absl::Status status;
  // What has been sent is awaited also after an error: the completions refer to this frame.
  try {
    for (Question& question : questions) {
      if (question.machine == graph->machine()) continue;
      question.reply = std::make_shared<rpc::BytesSink>();
      std::vector<rpc::OutArray> arrays = encodeEdgeLookup(question.request);
      replies.begin([&] {
        agent->call(question.machine, kEdgeLookupMethod, std::move(arrays), Deadline::after(timeout), question.reply,
                    [&replies](absl::Status reply) { replies.finish(reply); });
      });
    }
    for (const Question& question : questions) {
      if (question.machine != graph->machine()) continue;
      const std::vector<uint8_t> own = serveEdgeLookup(question.request, *graph);
      status = takeAnswers(question, own, &found);
    }
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  }
  const absl::Status answered = co_await replies;
  if (status.ok()) status = answered;
  for (const Question& question : questions) {
    if (!status.ok() || question.reply == nullptr) continue;
    const std::vector<rpc::Bytes>& arrays = question.reply->arrays;
    status = takeAnswers(question, arrays.empty() ? std::span<const uint8_t>() : arrays[0].as<uint8_t>(), &found);
  }
  if (!status.ok()) co_return Result(annotate(status, "looking up edges"));
  co_return Result(std::move(found));
}

}  // namespace farhop::sampler
