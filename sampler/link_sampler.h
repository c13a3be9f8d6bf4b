// Batches of seed edges: negatives, and the seed edges kept out of the neighbourhoods. docs/sampling.md, "Links".
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/task.h"
#include "rpc/agent.h"
#include "sampler/batch_sampler.h"
#include "sampler/edge_lookup.h"
#include "sampler/negative_nodes.h"
#include "sampler/seed_pairs.h"

namespace farhop::sampler {

struct LinkOptions {
  int relation = 0;
  // Negatives of a batch of n seed edges: ceil(n * negativesPerEdge); 0 for none.
  double negativesPerEdge = 0;
  // A negative has the source of its seed edge and another destination; or both ends are drawn.
  bool drawSources = false;
  NegativeNodes nodes = NegativeNodes::kUniform;
  // Negatives that are edges of the store, or seed edges of the batch, are drawn again, at most kMaxRedraws times.
  bool strict = false;
  bool excludeSeeds = false;   // seed edges are not drawn from `relation`
  int reverseRelation = -1;    // nor their reverses from this one; -1: from none
  // Of the relation's destinations and sources. A negative's node that is drawn is then not later than its seed edge,
  // where sampling is temporal. Null: nodes have no times.
  std::shared_ptr<const NodeTimes> destinationTimes, sourceTimes;
  uint64_t seed = 0;
  std::chrono::milliseconds requestTimeout{60'000};
};

// Negative j of m belongs to seed edge j * n / m; with a whole number k per edge, edge i has negatives [i k, i k + k).
inline uint64_t edgeOfNegative(uint64_t j, uint64_t edges, uint64_t negatives) { return j * edges / negatives; }

// Rounds of lookups of a batch at most, and how often a negative is drawn again.
inline constexpr int kMaxRedraws = 12;

// Stateless but for its parts; one per loader. `agent` may be null with one machine, and must outlive all batches.
class LinkSampler {
 public:
  // NotFound or InvalidArgument when negatives cannot be drawn as asked.
  static absl::StatusOr<std::shared_ptr<const LinkSampler>> make(std::shared_ptr<const PartitionedGraph> graph,
                                                                 rpc::Agent* agent,
                                                                 std::shared_ptr<const SeedPairs> pairs,
                                                                 LinkOptions options);

  // As BatchSampler::sample(), where request.seeds are indices of pairs. The batch's seeds are the sources of the seed
  // edges, then those of the negatives where they are drawn; its otherSeeds the destinations of both; its link says the
  // rest. Where seeds are disjoint, seed edge i of the batch, its negatives and what they find are tree i, which does not
  // draw this edge where it is excluded; where sampling is temporal, the pair's time is the tree's. This and the sampler
  // outlive the task.
  Task<absl::StatusOr<std::unique_ptr<SampledBatch>>> sample(const BatchSampler* sampler, BatchRequest request,
                                                             BatchWorkspace* workspace,
                                                             std::unique_ptr<SampledBatch> memory) const;

  const LinkOptions& options() const { return options_; }

 private:
  LinkSampler() = default;
  // A batch on its way.
  struct Drawing {
    uint64_t key = 0;          // of its negatives
    bool temporal = false;     // negatives are not later than their seed edges
    LinkSeeds* link = nullptr;
    LinkWorkspace* work = nullptr;
  };

  // The batch's negative number j, drawn for the (occurrence + 1)st time.
  NodePair drawNegative(const Drawing& drawing, uint64_t j, uint64_t occurrence) const;
  // Whether both ends of negative j could be drawn: nodes that are not too late exist.
  bool hasCandidates(const Drawing& drawing, uint64_t j) const;
  absl::Status drawNegatives(const Drawing& drawing) const;
  absl::Status checkNegatives(const std::vector<NodePair>& negatives) const;
  // Draws negatives again until none is an edge; adds the indices of those that stayed to the unresolved ones.
  Task<absl::Status> redraw(Drawing drawing, Executor* executor) const;
  // Turns the pairs into seeds, with trees and times as the options say.
  void fillRequest(const Drawing& drawing, const SamplingOptions& sampling, BatchRequest* request) const;
  void excludeSeedEdges(const std::vector<SeedPair>& seeds, bool disjoint, std::vector<ExcludedPair>* excluded) const;

  std::shared_ptr<const PartitionedGraph> graph_;
  rpc::Agent* agent_ = nullptr;
  std::shared_ptr<const SeedPairs> pairs_;
  LinkOptions options_;
  std::optional<NegativeNodeDraw> destinations_, sources_;
};

}  // namespace farhop::sampler
