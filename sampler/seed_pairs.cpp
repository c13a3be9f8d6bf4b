#include "sampler/seed_pairs.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace farhop::sampler {
namespace {

class PairList : public SeedPairs {
 public:
  void add(SeedPair pair) { pairs_.push_back(pair); }
  void reserve(size_t count) { pairs_.reserve(count); }
  uint64_t size() const { return pairs_.size(); }
  SeedPair at(uint64_t index) const override { return pairs_[index]; }

 private:
  std::vector<SeedPair> pairs_;
};

// The edges of the own partitions, row after row.
class RelationEdges : public SeedPairs {
 public:
  RelationEdges(std::shared_ptr<const PartitionedGraph> graph, int relation)
      : graph_(std::move(graph)), relation_(relation), destination_(graph_->schema().relations[relation].destination) {
    const std::vector<int> own = graph_->ownPartitions();
    only_ = own.size() == 1 ? own[0] : -1;
    if (only_ >= 0) return;
    for (int k : own) {
      const uint32_t rows = static_cast<uint32_t>(graph_->book().count(destination_, k));
      for (uint32_t row = 0; row < rows; ++row) rows_.push_back({row, static_cast<uint32_t>(k)});
    }
    const auto originalId = [&](const Row& row) {
      return graph_->shard(static_cast<int>(row.partition))->originalIds(destination_)[row.index];
    };
    std::sort(rows_.begin(), rows_.end(), [&](const Row& a, const Row& b) { return originalId(a) < originalId(b); });
    uint64_t before = 0;
    for (const Row& row : rows_) {
      firstEdges_.push_back(before);
      before += edgesOf(row.partition).indptr[row.index + 1] - edgesOf(row.partition).indptr[row.index];
    }
  }

  SeedPair at(uint64_t index) const override {
    const std::span<const uint64_t> firstEdges =
        only_ >= 0 ? edgesOf(static_cast<uint32_t>(only_)).indptr : std::span<const uint64_t>(firstEdges_);
    const size_t number = static_cast<size_t>(std::upper_bound(firstEdges.begin(), firstEdges.end(), index) - firstEdges.begin()) - 1;
    const Row row = only_ >= 0 ? Row{static_cast<uint32_t>(number), static_cast<uint32_t>(only_)} : rows_[number];
    const partition::RelationShard& edges = edgesOf(row.partition);
    const uint64_t edge = edges.indptr[row.index] + index - firstEdges[number];
    const uint64_t source = edges.neighbors32.empty() ? edges.neighbors64[edge] : edges.neighbors32[edge];
    return {source, graph_->book().begin(destination_, static_cast<int>(row.partition)) + row.index, index};
  }

 private:
  struct Row {
    uint32_t index, partition;
  };
  const partition::RelationShard& edgesOf(uint32_t partition) const {
    return graph_->shard(static_cast<int>(partition))->relation(relation_);
  }

  std::shared_ptr<const PartitionedGraph> graph_;
  int relation_, destination_;
  int only_ = -1;                     // the one own partition, whose indptr says all
  std::vector<Row> rows_;             // else: own rows by original id
  std::vector<uint64_t> firstEdges_;  // and the number of edges before each
};

absl::Status damagedMap(const PartitionedGraph& graph, int nodeType) {
  return absl::DataLossError(absl::StrCat(graph.store().directory(), ": the id map of node type '",
                                          graph.schema().nodeTypes[nodeType].name,
                                          "' is damaged; check the store with farhop inspect --verify"));
}

}  // namespace

absl::StatusOr<LinkSeedSet> linkSeedsOfPairs(const PartitionedGraph& graph, int relation, std::span<const int64_t> ends,
                                             Deal deal) {
  const partition::Relation& edges = graph.schema().relations[relation];
  const int types[2] = {edges.source, edges.destination};
  std::span<const uint64_t> gidOf[2];
  FARHOP_ASSIGN_OR_RETURN(gidOf[0], graph.store().gidsByOriginalId(edges.source));
  FARHOP_ASSIGN_OR_RETURN(gidOf[1], graph.store().gidsByOriginalId(edges.destination));
  LinkSeedSet seeds;
  seeds.relation = relation;
  seeds.set.name = "pairs";
  seeds.set.byPosition = true;
  seeds.set.nodeType = edges.destination;
  seeds.set.perMachine.assign(static_cast<size_t>(graph.machines()), 0);
  auto list = std::make_shared<PairList>();
  if (deal == Deal::kGlobal) list->reserve(ends.size() / 2);
  for (uint64_t i = 0; i < ends.size() / 2; ++i) {
    uint64_t gids[2];
    for (int end : {0, 1}) {
      const int64_t id = ends[2 * i + static_cast<uint64_t>(end)];
      if (id < 0 || static_cast<uint64_t>(id) >= gidOf[end].size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            end == 0 ? "source " : "destination ", id, " of pair ", i, " is out of range: node type '",
            graph.schema().nodeTypes[types[end]].name, "' has ", gidOf[end].size(), " nodes"));
      }
      gids[end] = gidOf[end][static_cast<uint64_t>(id)];
      if (gids[end] >= gidOf[end].size()) return damagedMap(graph, types[end]);
    }
    const int owner = graph.owner(graph.book().partitionOf(edges.destination, gids[1]));
    ++seeds.set.perMachine[owner];
    if (deal == Deal::kGlobal || owner == graph.machine()) list->add({gids[0], gids[1], i});
  }
  (deal == Deal::kGlobal ? seeds.set.allPositions : seeds.set.ownPositions) = list->size();
  seeds.pairs = std::move(list);
  return seeds;
}

absl::StatusOr<LinkSeedSet> linkSeedsOfRelation(std::shared_ptr<const PartitionedGraph> graph, int relation, Deal deal) {
  const std::string text = graph->schema().relationText(relation);
  if (deal == Deal::kGlobal && graph->machines() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "all edges of ", text, " cannot be dealt globally, since each machine knows its own only; deal them by owner, or "
        "name an edge split or pairs"));
  }
  LinkSeedSet seeds;
  seeds.relation = relation;
  seeds.set.name = absl::StrCat("all edges of ", text);
  seeds.set.byPosition = true;
  seeds.set.nodeType = graph->schema().relations[relation].destination;
  seeds.set.perMachine.assign(static_cast<size_t>(graph->machines()), 0);
  for (int k = 0; k < graph->book().numPartitions(); ++k) {
    seeds.set.perMachine[graph->owner(k)] += graph->store().manifest().partitionEdges[relation][k];
  }
  seeds.set.ownPositions = seeds.set.allPositions = seeds.set.perMachine[graph->machine()];
  seeds.pairs = std::make_shared<RelationEdges>(std::move(graph), relation);
  return seeds;
}

}  // namespace farhop::sampler
