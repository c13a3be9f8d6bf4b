#include "sampler/batch_sampler.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "sampler/reply_group.h"
#include "sampler/tree_nodes.h"

namespace farhop::sampler {
namespace {

// Neighbours of several partitions that are brought behind each other before they are numbered.
constexpr size_t kNumberingBuffer = 1024;

// Reads a hop's rows of one relation in frontier order, wherever they were drawn, and writes their bounds and edge ids.
template <typename Id>
class RowReader {
 public:
  // Makes room for the rows and for `total` edges.
  RowReader(std::span<const uint16_t> partitionOfRow, std::vector<DrawSlice>* slices, uint64_t total, bool edgeIds,
            SampledRelation* sampled)
      : partitionOfRow_(partitionOfRow), slices_(*slices), sampled_(sampled), edgeIds_(edgeIds),
        end_(sampled->indptr.back()) {
    indptr_ = sampled->indptr.reserveMore(partitionOfRow.size());
    sampled->indptr.addSize(partitionOfRow.size());
    if (edgeIds) sampled->edgeIds.reserve(sampled->edgeIds.size() + total);
  }

  // The neighbours of row `row`; rows in order.
  std::span<const Id> take(size_t row) {
    DrawSlice& slice = slices_[partitionOfRow_[row]];  // advanced as rows are read
    const uint32_t count = *slice.counts++;
    const Id* neighbors = static_cast<const Id*>(slice.neighbors);
    slice.neighbors = neighbors + count;
    *indptr_++ = end_ += count;
    if (edgeIds_) {
      sampled_->edgeIds.append(slice.edgeIds, count);
      slice.edgeIds += count;
    }
    return {neighbors, count};
  }

 private:
  std::span<const uint16_t> partitionOfRow_;
  std::vector<DrawSlice>& slices_;
  SampledRelation* sampled_;
  bool edgeIds_;
  uint32_t end_;
  uint32_t* indptr_;
};

uint64_t edgesOf(std::span<const DrawSlice> slices) {
  uint64_t total = 0;
  for (const DrawSlice& slice : slices) total += slice.edges;
  return total;
}

}  // namespace

BatchWorkspace::BatchWorkspace(const PartitionedGraph& graph)
    : numbering_(graph.schema().nodeTypes.size()),
      treeNodes_(graph.schema().nodeTypes.size()),
      frontiers_(graph.schema().nodeTypes.size()),
      walk_(graph) {
  const size_t partitions = static_cast<size_t>(graph.book().numPartitions());
  const size_t relations = graph.schema().relations.size();
  for (HopFrontier& frontier : frontiers_) {
    frontier.rows.resize(partitions);
    frontier.trees.resize(partitions);
    frontier.times.resize(partitions);
  }
  own32_.assign(relations, std::vector<DrawnNeighbors<uint32_t>>(partitions));
  own64_.assign(relations, std::vector<DrawnNeighbors<uint64_t>>(partitions));
  slices_.assign(relations, std::vector<DrawSlice>(partitions));
}

BatchSampler::BatchSampler(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent, Executor* executor,
                           SamplingOptions options)
    : graph_(std::move(graph)), agent_(agent), executor_(executor), options_(std::move(options)),
      plan_(graph_.get(), &options_), allRelations_(graph_->schema().relations.size()) {
  options_.kinds.resize(allRelations_.size());
  std::iota(allRelations_.begin(), allRelations_.end(), 0);
  if (options_.walks) walker_.emplace(graph_, agent_, executor_, options_.walks->plan, options_.seed);
  if (options_.importance) walker_.emplace(graph_, agent_, executor_, options_.importance->plan, options_.seed);
}

size_t BatchSampler::numCsrs() const {
  if (options_.walks) return 0;
  if (options_.importance) return 1;
  return options_.kinds.size() * (options_.expand == Expand::kAll ? options_.fanouts.size() : 1);
}

absl::Status BatchSampler::checkFrontier(size_t hop, const BatchWorkspace& work) const {
  const std::vector<partition::Relation>& relations = graph_->schema().relations;
  for (size_t r = 0; r < relations.size(); ++r) {
    const int64_t fanout = options_.fanouts[hop][r];
    if (fanout <= 0 || !drawsWithReplacement(options_.kinds[r].kind)) continue;
    const HopFrontier& frontier = work.frontiers_[relations[r].destination];
    if (frontier.last - frontier.first <= kMaxEdges / static_cast<uint64_t>(fanout)) continue;
    return tooManyEdges(static_cast<int>(r));
  }
  return absl::OkStatus();
}

absl::Status BatchSampler::tooManyEdges(int relation) const {
  return absl::ResourceExhaustedError(absl::StrCat("relation ", graph_->schema().relationText(relation), " has more than ",
                                                   kMaxEdges,
                                                   " sampled edges in one batch; use smaller fanouts or batches"));
}

Task<absl::StatusOr<std::unique_ptr<SampledBatch>>> BatchSampler::sample(BatchRequest request,
                                                                         BatchWorkspace* workspace,
                                                                         std::unique_ptr<SampledBatch> memory) const {
  std::unique_ptr<SampledBatch> batch = memory ? std::move(memory) : std::make_unique<SampledBatch>();
  absl::Status valid = checkRequest(request);
  if (!valid.ok()) co_return absl::StatusOr<std::unique_ptr<SampledBatch>>(std::move(valid));
  if (options_.walks) co_return co_await sampleWalks(std::move(request), workspace, std::move(batch));
  if (options_.importance) co_return co_await sampleImportance(std::move(request), workspace, std::move(batch));
  StageTimer stages(options_.stageClock);
  numberSeeds(&request, workspace, batch.get());
  for (size_t hop = 0; hop < options_.fanouts.size(); ++hop) {
    absl::Status drawn = bucketFrontiers(*batch, hop, workspace);
    if (drawn.ok()) drawn = checkFrontier(hop, *workspace);
    stages.end(Stage::kBucket);
    workspace->exchanges_.clear();
    if (drawn.ok()) planExchanges(*batch, hop, workspace);
    ReplyGroup replies(executor_);
    // What has been sent is awaited also after an error: the replies' memory is the workspace's.
    try {
      for (Exchange& exchange : workspace->exchanges_) {
        std::vector<rpc::OutArray> arrays = encodeNeighborRequest(exchange.request);
        for (const rpc::OutArray& array : arrays) batch->traffic.neighborBytes += array.bytes;
        ++batch->traffic.messages;
        replies.begin([&] {
          agent_->call(exchange.machine, kNeighborMethod, std::move(arrays), Deadline::after(options_.requestTimeout),
                       exchange.reply, [&replies](absl::Status status) { replies.finish(status); });
        });
      }
      stages.end(Stage::kSerialize);
      if (drawn.ok()) drawn = drawOwn(*batch, hop, workspace);
      stages.end(Stage::kOwnDraw);
    } catch (const std::bad_alloc&) {
      drawn = absl::ResourceExhaustedError("out of memory");
    }
    absl::Status status = co_await replies;
    stages.endWait(Stage::kWait);
    if (!drawn.ok()) status = drawn;
    if (status.ok()) status = collectReplies(workspace, batch.get());
    stages.end(Stage::kCheck);
    if (status.ok()) status = appendHop(hop, workspace, batch.get());
    stages.end(Stage::kRelabel);
    if (!status.ok()) {
      co_return absl::StatusOr<std::unique_ptr<SampledBatch>>(
          annotate(status, absl::StrCat("sampling hop ", hop, " of batch ", batch->number)));
    }
  }
  if (options_.subgraph == Subgraph::kInduced) {
    const absl::Status induced = co_await induce(workspace, batch.get());
    if (!induced.ok()) co_return Result(annotate(induced, absl::StrCat("inducing the edges of batch ", batch->number)));
  }
  co_return absl::StatusOr<std::unique_ptr<SampledBatch>>(std::move(batch));
}

absl::Status BatchSampler::checkRequest(const BatchRequest& request) const {
  const std::vector<uint32_t>& trees = request.trees;
  // A request that has lost its times would look ahead, so having them must be what was meant.
  if (options_.temporal != !request.treeTimes.empty() || (options_.temporal && !options_.disjoint)) {
    return absl::InvalidArgumentError(absl::StrCat("a batch has ", request.treeTimes.size(), " times where sampling is ",
                                                   options_.temporal ? "temporal" : "not temporal",
                                                   options_.disjoint ? "" : " and seeds are not disjoint"));
  }
  if (!options_.disjoint) {
    return trees.empty() ? absl::OkStatus() : absl::InvalidArgumentError("trees need seeds that are disjoint");
  }
  if (options_.walks || options_.importance) {
    return absl::InvalidArgumentError("walks and importance neighbours cannot be disjoint");
  }
  const uint64_t seeds = request.seeds.size() + request.otherSeeds.size();
  if (!trees.empty() && trees.size() != seeds) {
    return absl::InvalidArgumentError(absl::StrCat(trees.size(), " trees of ", seeds, " seeds"));
  }
  const uint64_t count = trees.empty() ? seeds : uint64_t{*std::max_element(trees.begin(), trees.end())} + 1;
  if (!request.treeTimes.empty() && request.treeTimes.size() < count) {
    return absl::InvalidArgumentError(absl::StrCat(request.treeTimes.size(), " times for ", count, " trees"));
  }
  return checkTrees(*graph_, count);
}

void BatchSampler::numberSeeds(BatchRequest* request, BatchWorkspace* work, SampledBatch* batch) const {
  batch->reset(work->numbering_.size(), numCsrs());
  batch->epoch = request->epoch;
  batch->step = request->step;
  batch->number = request->number;
  batch->seedType = request->seedType;
  batch->otherType = request->otherType;
  batch->seeds.swap(request->seeds);
  batch->otherSeeds.swap(request->otherSeeds);
  batch->treeTimes.swap(request->treeTimes);
  for (size_t type = 0; type < work->numbering_.size(); ++type) {
    work->numbering_[type].reset(options_.disjoint ? &work->treeNodes_[type] : &batch->nodes[type]);
  }
  uint32_t position = 0;  // of a seed among all
  const auto numberAll = [&](int type, const std::vector<uint64_t>& seeds, std::vector<uint32_t>* index) {
    index->reserve(seeds.size());
    for (uint64_t seed : seeds) {
      const uint32_t tree = request->trees.empty() ? position : request->trees[position];
      ++position;
      index->push_back(work->numbering_[type].number(options_.disjoint ? treeNode(tree, seed) : seed));
    }
  };
  numberAll(batch->seedType, batch->seeds, &batch->seedIndex);
  numberAll(batch->otherType, batch->otherSeeds, &batch->otherIndex);
  if (!request->excluded.empty()) batch->excluded.resize(graph_->schema().relations.size());
  for (const ExcludedPair& pair : request->excluded) {
    NodeNumbering& numbering = work->numbering_[graph_->schema().relations[pair.relation].destination];
    const uint32_t row = numbering.number(options_.disjoint ? treeNode(pair.tree, pair.destination) : pair.destination);
    batch->excluded[pair.relation].push_back({0, row, pair.source});
  }
  for (std::vector<ExcludedEdge>& edges : batch->excluded) sortExcluded(&edges);
  request->excluded.swap(work->link.excluded);
  request->trees.swap(work->link.trees);
  if (options_.disjoint) takeTreeNodes(work, batch);
  for (size_t type = 0; type < work->numbering_.size(); ++type) {
    batch->nodesByHop[type].push_back(work->numbering_[type].size());
  }
  for (SampledRelation& relation : batch->relations) relation.indptr.push_back(0);
}

void BatchSampler::takeTreeNodes(BatchWorkspace* work, SampledBatch* batch) const {
  for (size_t type = 0; type < work->treeNodes_.size(); ++type) {
    PodVector<uint64_t>& nodes = batch->nodes[type];
    const size_t known = nodes.size(), fresh = work->treeNodes_[type].size() - known;
    const uint64_t* const numbered = work->treeNodes_[type].data() + known;
    uint64_t* const gids = nodes.reserveMore(fresh);
    uint32_t* const trees = batch->trees[type].reserveMore(fresh);
    for (size_t i = 0; i < fresh; ++i) {
      gids[i] = gidOfTreeNode(numbered[i]);
      trees[i] = treeOfTreeNode(numbered[i]);
    }
    nodes.addSize(fresh);
    batch->trees[type].addSize(fresh);
  }
}

absl::Status BatchSampler::bucketFrontiers(const SampledBatch& batch, size_t hop, BatchWorkspace* work) const {
  for (size_t type = 0; type < work->frontiers_.size(); ++type) {
    plan_.setRange(batch, hop, static_cast<int>(type), &work->frontiers_[type]);
    FARHOP_RETURN_IF_ERROR(plan_.bucket(batch, static_cast<int>(type), &work->frontiers_[type]));
  }
  return absl::OkStatus();
}

void BatchSampler::planExchanges(const SampledBatch& batch, size_t hop, BatchWorkspace* work) const {
  for (int machine = 0; machine < graph_->machines(); ++machine) {
    if (machine == graph_->machine()) continue;
    NeighborRequest request = plan_.request(batch, hop, work->frontiers_, allRelations_, machine);
    if (request.runs.empty()) continue;
    work->exchanges_.push_back({machine, std::move(request), std::make_shared<rpc::BytesSink>()});
  }
}

absl::Status BatchSampler::drawOwn(const SampledBatch& batch, size_t hop, BatchWorkspace* work) const {
  const std::vector<partition::Relation>& relations = graph_->schema().relations;
  for (size_t r = 0; r < relations.size(); ++r) {
    const int relation = static_cast<int>(r);
    const HopFrontier& frontier = work->frontiers_[relations[r].destination];
    std::fill(work->slices_[r].begin(), work->slices_[r].end(), DrawSlice{});
    if (options_.fanouts[hop][r] == 0) continue;
    const RelationDraw relationDraw = plan_.drawOf(batch, hop, relation);
    for (int k = 0; k < graph_->book().numPartitions(); ++k) {
      if (!graph_->isOwn(k) || frontier.rows[k].empty()) continue;
      auto draw = [&]<typename Id>(DrawnNeighbors<Id>* own) -> absl::Status {
        own->clear();
        FARHOP_RETURN_IF_ERROR(drawNeighbors<Id>(*graph_, k, relationDraw, plan_.ownRows(batch, hop, relation, frontier, k),
                                                 options_.edgeIds, own, &work->positions_));
        work->slices_[r][k] = {own->counts.data(), own->neighbors.data(), own->edgeIds.data(), own->neighbors.size()};
        return absl::OkStatus();
      };
      FARHOP_RETURN_IF_ERROR(graph_->narrowIds(relation) ? draw(&work->own32_[r][k]) : draw(&work->own64_[r][k]));
    }
  }
  return absl::OkStatus();
}

absl::Status BatchSampler::collectReplies(BatchWorkspace* work, SampledBatch* batch) const {
  for (const Exchange& exchange : work->exchanges_) {
    auto slices = sliceNeighborReply(exchange.request, exchange.reply->arrays, *graph_);
    if (!slices.ok()) return annotate(slices.status(), absl::StrCat("machine ", exchange.machine));
    for (size_t d = 0; d < exchange.request.draws.size(); ++d) {
      for (size_t r = 0; r < exchange.request.runs.size(); ++r) {
        if ((*slices)[d][r].counts == nullptr) continue;
        work->slices_[exchange.request.draws[d].relation][exchange.request.runs[r].partition] = (*slices)[d][r];
        batch->traffic.remoteEdges += (*slices)[d][r].edges;
      }
    }
    const std::vector<rpc::Bytes>& arrays = exchange.reply->arrays;
    for (const rpc::Bytes& array : arrays) batch->traffic.neighborBytes += array.size();
    batch->traffic.requestedNodes += exchange.request.rows.size();
  }
  return absl::OkStatus();
}

absl::Status BatchSampler::appendHop(size_t hop, BatchWorkspace* work, SampledBatch* batch) const {
  const std::vector<partition::Relation>& relations = graph_->schema().relations;
  for (size_t r = 0; r < relations.size(); ++r) {
    const HopFrontier& frontier = work->frontiers_[relations[r].destination];
    SampledRelation& sampled = rowsOf(hop, r, batch);
    const size_t edgesBefore = sampled.indices.size();
    if (edgesBefore + edgesOf(work->slices_[r]) > kMaxEdges) {
      return tooManyEdges(static_cast<int>(r));
    }
    const PodVector<uint32_t>& trees = batch->trees[relations[r].destination];
    if (options_.fanouts[hop][r] == 0) {
      sampled.indptr.append(frontier.last - frontier.first, sampled.indptr.back());
    } else if (options_.disjoint && graph_->narrowIds(static_cast<int>(r))) {
      appendTreeRelation<uint32_t>(static_cast<int>(r), trees, work, &sampled);
    } else if (options_.disjoint) {
      appendTreeRelation<uint64_t>(static_cast<int>(r), trees, work, &sampled);
    } else if (graph_->narrowIds(static_cast<int>(r))) {
      appendRelation<uint32_t>(static_cast<int>(r), work, &sampled);
    } else {
      appendRelation<uint64_t>(static_cast<int>(r), work, &sampled);
    }
    batch->traffic.sampledEdges += sampled.indices.size() - edgesBefore;
  }
  if (options_.disjoint) takeTreeNodes(work, batch);
  for (size_t type = 0; type < work->frontiers_.size(); ++type) {
    batch->nodesByHop[type].push_back(work->numbering_[type].size());
  }
  return absl::OkStatus();
}

template <typename Id>
void BatchSampler::appendRelation(int relation, BatchWorkspace* work, SampledRelation* sampled) const {
  const partition::Relation& edges = graph_->schema().relations[relation];
  const HopFrontier& frontier = work->frontiers_[edges.destination];
  NodeNumbering& numbering = work->numbering_[edges.source];
  std::vector<DrawSlice>& slices = work->slices_[relation];
  const uint64_t total = edgesOf(slices);
  uint32_t* indices = sampled->indices.reserveMore(total);
  sampled->indices.addSize(total);
  const size_t rows = frontier.partitionOfRow.size();
  RowReader<Id> reader(frontier.partitionOfRow, &slices, total, options_.edgeIds, sampled);

  // All from one partition: the neighbours lie behind each other in row order already.
  const auto whole = std::find_if(slices.begin(), slices.end(), [&](const DrawSlice& slice) { return slice.edges == total; });
  if (whole != slices.end()) {
    const Id* neighbors = static_cast<const Id*>(whole->neighbors);
    for (size_t row = 0; row < rows; ++row) reader.take(row);
    numbering.numberAll(neighbors, total, indices);
    return;
  }
  // Otherwise the rows are brought behind each other a few at a time, in the cache.
  Id buffer[kNumberingBuffer];
  uint64_t filled = 0;
  const auto numberBuffer = [&] {
    numbering.numberAll(buffer, filled, indices);
    indices += filled;
    filled = 0;
  };
  for (size_t row = 0; row < rows; ++row) {
    const std::span<const Id> neighbors = reader.take(row);
    if (filled + neighbors.size() > kNumberingBuffer) numberBuffer();
    if (neighbors.size() > kNumberingBuffer) {
      numbering.numberAll(neighbors.data(), neighbors.size(), indices);
      indices += neighbors.size();
    } else {
      std::copy(neighbors.begin(), neighbors.end(), buffer + filled);
      filled += neighbors.size();
    }
  }
  numberBuffer();
}

// As above, with the row's tree as a part of what is numbered.
template <typename Id>
void BatchSampler::appendTreeRelation(int relation, const PodVector<uint32_t>& trees, BatchWorkspace* work,
                                      SampledRelation* sampled) const {
  const partition::Relation& edges = graph_->schema().relations[relation];
  const HopFrontier& frontier = work->frontiers_[edges.destination];
  NodeNumbering& numbering = work->numbering_[edges.source];
  std::vector<DrawSlice>& slices = work->slices_[relation];
  const uint64_t total = edgesOf(slices);
  uint32_t* indices = sampled->indices.reserveMore(total);
  sampled->indices.addSize(total);
  RowReader<Id> reader(frontier.partitionOfRow, &slices, total, options_.edgeIds, sampled);
  uint64_t buffer[kNumberingBuffer];
  uint64_t filled = 0;
  for (size_t row = 0; row < frontier.partitionOfRow.size(); ++row) {
    const uint32_t tree = trees[frontier.first + row];
    for (std::span<const Id> left = reader.take(row); !left.empty();) {
      const size_t size = std::min(left.size(), kNumberingBuffer - filled);
      for (size_t i = 0; i < size; ++i) buffer[filled + i] = treeNode(tree, left[i]);
      filled += size;
      left = left.subspan(size);
      if (filled < kNumberingBuffer) continue;
      numbering.numberAll(buffer, filled, indices);
      indices += filled;
      filled = 0;
    }
  }
  numbering.numberAll(buffer, filled, indices);
}

}  // namespace farhop::sampler
