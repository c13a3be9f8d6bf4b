// Samples one batch: hop by hop, the own part here, the rest by the machines that own it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "rpc/agent.h"
#include "sampler/batch_exclusion.h"
#include "sampler/hop_plan.h"
#include "sampler/link_workspace.h"
#include "sampler/neighbor_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/relabel.h"
#include "sampler/sampled_batch.h"
#include "sampler/sampling_options.h"
#include "sampler/subgraph_wire.h"
#include "sampler/walker.h"

namespace farhop::sampler {

// Which batch, of which seeds.
struct BatchRequest {
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint64_t number = 0;
  int seedType = 0;
  std::vector<uint64_t> seeds;  // gids, repeats allowed
  // Seeds of another type, or of the same, numbered after these; usually none.
  int otherType = 0;
  std::vector<uint64_t> otherSeeds = {};
  // What no row of the batch draws. The destinations must be seeds.
  std::vector<ExcludedPair> excluded = {};
  // Where seeds are disjoint: the tree of each of `seeds` and then of `otherSeeds`, several may share one; empty: each
  // its own, by position.
  std::vector<uint32_t> trees = {};
  // [tree]: nothing later than this is drawn in it. Where sampling is temporal.
  std::vector<int64_t> treeTimes = {};
};

// Memory that one batch under way works in, reused from batch to batch. One batch at a time.
class BatchWorkspace {
 public:
  explicit BatchWorkspace(const PartitionedGraph& graph);

  LinkWorkspace link;  // of batches of seed edges

 private:
  friend class BatchSampler;

  // What is on its way to one machine.
  struct Exchange {
    int machine = 0;
    NeighborRequest request;
    std::shared_ptr<rpc::BytesSink> reply;
  };

  struct InducingWorkspace {
    PositionsByType positions;
    std::vector<uint64_t> setSizes;         // [node type]
    std::vector<SubgraphRequest> requests;  // [machine]
    InducedEdges own;
  };

  std::vector<NodeNumbering> numbering_;                     // [node type]
  std::vector<PodVector<uint64_t>> treeNodes_;               // [node type] what is numbered where seeds are disjoint
  std::vector<HopFrontier> frontiers_;                       // [node type]
  std::vector<std::vector<DrawnNeighbors<uint32_t>>> own32_;  // [relation][partition]
  std::vector<std::vector<DrawnNeighbors<uint64_t>>> own64_;
  std::vector<std::vector<DrawSlice>> slices_;               // [relation][partition]
  std::vector<Exchange> exchanges_;
  PositionSet positions_;
  InducingWorkspace inducing_;
  WalkWorkspace walk_;
  NodeNumbering visited_;  // the nodes that one node's walks have visited
  std::vector<MachineMessage> messages_;
};

// Stateless but for its parts; one per loader. `agent` may be null when this machine owns everything; it and
// the executor must outlive all batches under way.
class BatchSampler {
 public:
  BatchSampler(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent, Executor* executor,
               SamplingOptions options);

  // Samples `request` into a new batch. Resumes on the executor after waits. The result is a function of the
  // options, the request and the graph alone, whatever the partitioning. The workspace is the batch's until
  // the task ends. `memory` is a batch that is over, whose memory the new one takes; null for none.
  Task<absl::StatusOr<std::unique_ptr<SampledBatch>>> sample(BatchRequest request, BatchWorkspace* workspace,
                                                             std::unique_ptr<SampledBatch> memory = nullptr) const;

  BatchSampler(const BatchSampler&) = delete;
  BatchSampler& operator=(const BatchSampler&) = delete;

  const SamplingOptions& options() const { return options_; }
  // What bounds the time of a batch, in request timeouts: one per hop, for all walks, and for the induced edges.
  static size_t timeoutsPerBatch(const SamplingOptions& options) {
    return options.fanouts.size() + (options.walks ? 1 : 0) + (options.subgraph == Subgraph::kInduced ? 1 : 0);
  }
  // Where batches resume after waits.
  Executor* executor() const { return executor_; }

 private:
  using Exchange = BatchWorkspace::Exchange;
  using InducingWorkspace = BatchWorkspace::InducingWorkspace;

  using Result = absl::StatusOr<std::unique_ptr<SampledBatch>>;

  // Batches of other kinds than hops of drawn neighbours: batch_walks.cpp, batch_importance.cpp.
  Task<Result> sampleWalks(BatchRequest request, BatchWorkspace* work, std::unique_ptr<SampledBatch> batch) const;
  Task<Result> sampleImportance(BatchRequest request, BatchWorkspace* work, std::unique_ptr<SampledBatch> batch) const;
  void numberWalks(const WalkTrace& trace, BatchWorkspace* work, SampledBatch* batch) const;
  // Appends a row of most visited nodes for every node that the walks in `work` started from.
  absl::Status appendMostVisited(int64_t fanout, BatchWorkspace* work, SampledBatch* batch) const;
  // Replaces the batch's edges by all that the graph has between its nodes: batch_subgraph.cpp.
  Task<absl::Status> induce(BatchWorkspace* work, SampledBatch* batch) const;
  void askForInducedRows(int machine, const BatchWorkspace& work, SubgraphRequest* request) const;
  absl::Status sliceInducedReplies(BatchWorkspace* work, SampledBatch* batch) const;
  // ResourceExhausted when a relation has more edges than a block can index.
  absl::Status placeInducedEdges(BatchWorkspace* work, SampledBatch* batch) const;

  // InvalidArgument when trees or times do not fit the seeds or the options.
  absl::Status checkRequest(const BatchRequest& request) const;
  // Moves the request's columns into the batch, or back to where their memory belongs.
  void numberSeeds(BatchRequest* request, BatchWorkspace* work, SampledBatch* batch) const;
  // Takes the nodes of trees that have been numbered since into the batch.
  void takeTreeNodes(BatchWorkspace* work, SampledBatch* batch) const;
  absl::Status bucketFrontiers(const SampledBatch& batch, size_t hop, BatchWorkspace* work) const;
  // Fills work->exchanges_, one per machine that owns rows some relation draws from.
  void planExchanges(const SampledBatch& batch, size_t hop, BatchWorkspace* work) const;
  absl::Status drawOwn(const SampledBatch& batch, size_t hop, BatchWorkspace* work) const;
  absl::Status collectReplies(BatchWorkspace* work, SampledBatch* batch) const;
  // Turns the hop's slices into rows of the batch's CSRs, numbering new nodes.
  // ResourceExhausted when a relation has more edges than a block can index.
  absl::Status appendHop(size_t hop, BatchWorkspace* work, SampledBatch* batch) const;
  template <typename Id>
  void appendRelation(int relation, BatchWorkspace* work, SampledRelation* sampled) const;
  // Where seeds are disjoint.
  template <typename Id>
  void appendTreeRelation(int relation, const PodVector<uint32_t>& trees, BatchWorkspace* work,
                          SampledRelation* sampled) const;
  // Where a hop's rows of a relation belong.
  SampledRelation& rowsOf(size_t hop, size_t relation, SampledBatch* batch) const {
    const size_t relations = options_.kinds.size();
    return batch->relations[options_.expand == Expand::kAll ? hop * relations + relation : relation];
  }
  // ResourceExhausted, before anything is drawn or sent, when draws with replacement would overflow a block.
  absl::Status checkFrontier(size_t hop, const BatchWorkspace& work) const;
  absl::Status tooManyEdges(int relation) const;
  // CSRs of a batch.
  size_t numCsrs() const;

  std::shared_ptr<const PartitionedGraph> graph_;
  rpc::Agent* agent_;
  Executor* executor_;
  SamplingOptions options_;
  HopPlan plan_;                      // borrows the two
  std::vector<int> allRelations_;
  std::optional<Walker> walker_;      // for walks and importance
};

}  // namespace farhop::sampler
