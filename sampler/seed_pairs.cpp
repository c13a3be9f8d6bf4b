#include "sampler/seed_pairs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "partition/layout.h"
#include "sampler/seed_set.h"

namespace farhop::sampler {
namespace {

// Pairs by original id, all or those with some indices.
class ListedPairs : public SeedPairs {
 public:
  static absl::StatusOr<std::shared_ptr<ListedPairs>> make(std::shared_ptr<const PartitionedGraph> graph, int relation) {
    auto pairs = std::make_shared<ListedPairs>();
    const partition::Relation& edges = graph->schema().relations[relation];
    FARHOP_ASSIGN_OR_RETURN(pairs->sourceGids_, graph->store().gidsByOriginalId(edges.source));
    FARHOP_ASSIGN_OR_RETURN(pairs->destinationGids_, graph->store().gidsByOriginalId(edges.destination));
    pairs->graph_ = std::move(graph);
    pairs->source_ = edges.source;
    pairs->destination_ = edges.destination;
    return pairs;
  }
  // `ends` belong to the graph; or to this.
  void borrow(std::span<const uint64_t> ends) { ends_ = ends; }
  void own(std::vector<uint64_t> ends) { borrow(owned_ = std::move(ends)); }
  // Of every pair; none where the list is empty. InvalidArgument for another number.
  absl::Status takeTimes(std::vector<int64_t> times) {
    times_ = std::move(times);
    if (times_.empty() || times_.size() == ends_.size() / 2) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(times_.size(), " times for ", ends_.size() / 2, " seed edges"));
  }
  bool hasTimes() const override { return !times_.empty(); }

  // Counts the pairs of each machine; under kByOwner at() then goes by the own ones. DataLoss where the id map names
  // nodes that there are not.
  absl::Status deal(Deal deal, SeedSet* set) {
    const uint64_t sources = graph_->book().numNodes(source_), destinations = graph_->book().numNodes(destination_);
    for (size_t i = 0; i < ends_.size(); i += 2) {
      if (sourceGids_[ends_[i]] >= sources) return damagedIdMap(*graph_, source_);
      if (destinationGids_[ends_[i + 1]] >= destinations) return damagedIdMap(*graph_, destination_);
    }
    set->byPosition = true;
    set->nodeType = destination_;
    set->allPositions = ends_.size() / 2;
    if (deal == Deal::kGlobal) return absl::OkStatus();
    set->perMachine.assign(static_cast<size_t>(graph_->machines()), 0);
    filtered_ = true;
    for (uint64_t i = 0; i < set->allPositions; ++i) {
      const int owner = graph_->owner(graph_->book().partitionOf(destination_, destinationGids_[ends_[2 * i + 1]]));
      ++set->perMachine[owner];
      if (owner == graph_->machine()) indices_.push_back(i);
    }
    set->ownPositions = indices_.size();
    return absl::OkStatus();
  }

  SeedPair at(uint64_t index) const override {
    const uint64_t i = filtered_ ? indices_[index] : index;
    return {sourceGids_[ends_[2 * i]], destinationGids_[ends_[2 * i + 1]], i, times_.empty() ? 0 : times_[i]};
  }

 private:
  std::shared_ptr<const PartitionedGraph> graph_;
  int source_ = 0, destination_ = 0;
  std::span<const uint64_t> sourceGids_, destinationGids_, ends_;
  std::vector<uint64_t> owned_, indices_;
  std::vector<int64_t> times_;
  bool filtered_ = false;
};

// A partition's part of a split.
class OwnedSplit : public SeedPairs {
 public:
  OwnedSplit(std::shared_ptr<const PartitionedGraph> graph, partition::EdgeSeeds seeds)
      : graph_(std::move(graph)), seeds_(seeds) {}
  SeedPair at(uint64_t index) const override { return {seeds_.source(index), seeds_.destination(index), index, 0}; }

 private:
  std::shared_ptr<const PartitionedGraph> graph_;  // whose mapping it is
  partition::EdgeSeeds seeds_;
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
    const int64_t* const times = graph_->edgeTimes(static_cast<int>(row.partition), relation_);
    return {source, graph_->book().begin(destination_, static_cast<int>(row.partition)) + row.index, index,
            times == nullptr ? 0 : times[edge]};
  }
  bool hasTimes() const override { return graph_->schema().hasTimes(relation_); }

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

}  // namespace

absl::StatusOr<LinkSeedSet> linkSeedsOfSplit(std::shared_ptr<const PartitionedGraph> graph, int relation,
                                             const std::string& name, Deal deal, std::vector<int64_t> times) {
  // Says which splits there are, where this one is none.
  FARHOP_ASSIGN_OR_RETURN(const partition::EdgeSeeds all, graph->store().edgeSplitOriginalIds(name, relation));
  LinkSeedSet seeds;
  seeds.relation = relation;
  seeds.set.name = name;
  const std::vector<int> own = graph->ownPartitions();
  // Times go by the position among all seeds, which a partition's part does not know.
  if (deal == Deal::kByOwner && own.size() == 1 && times.empty()) {
    const partition::EdgeSeeds part = graph->shard(own[0])->edgeSplit(name, relation);
    seeds.labels = part.labels;
    seeds.set.byPosition = true;
    seeds.set.nodeType = graph->schema().relations[relation].destination;
    seeds.set.ownPositions = part.size();
    seeds.set.perMachine.assign(static_cast<size_t>(graph->machines()), 0);
    for (const partition::EdgeSplitInfo& split : graph->store().edgeSplits()) {
      if (split.relation != relation || split.name != partition::canonicalSplitName(name)) continue;
      for (size_t k = 0; k < split.partitionCounts.size(); ++k) {
        seeds.set.perMachine[graph->owner(static_cast<int>(k))] += split.partitionCounts[k];
      }
    }
    seeds.pairs = std::make_shared<OwnedSplit>(std::move(graph), part);
    return seeds;
  }
  FARHOP_ASSIGN_OR_RETURN(auto pairs, ListedPairs::make(std::move(graph), relation));
  pairs->borrow(all.ends);
  FARHOP_RETURN_IF_ERROR(pairs->takeTimes(std::move(times)));
  FARHOP_RETURN_IF_ERROR(pairs->deal(deal, &seeds.set));
  seeds.labels = all.labels;
  seeds.pairs = std::move(pairs);
  return seeds;
}

absl::StatusOr<LinkSeedSet> linkSeedsOfPairs(std::shared_ptr<const PartitionedGraph> graph, int relation,
                                             std::span<const int64_t> ends, Deal deal, std::vector<int64_t> times) {
  const partition::Relation& edges = graph->schema().relations[relation];
  const int types[2] = {edges.source, edges.destination};
  std::vector<uint64_t> checked;
  checked.reserve(ends.size());
  for (uint64_t i = 0; i < ends.size(); ++i) {
    const uint64_t nodes = graph->book().numNodes(types[i % 2]);
    if (ends[i] < 0 || static_cast<uint64_t>(ends[i]) >= nodes) {
      return absl::InvalidArgumentError(absl::StrCat(
          i % 2 == 0 ? "source " : "destination ", ends[i], " of pair ", i / 2, " is out of range: node type '",
          graph->schema().nodeTypes[types[i % 2]].name, "' has ", nodes, " nodes"));
    }
    checked.push_back(static_cast<uint64_t>(ends[i]));
  }
  LinkSeedSet seeds;
  seeds.relation = relation;
  seeds.set.name = "pairs";
  FARHOP_ASSIGN_OR_RETURN(auto pairs, ListedPairs::make(std::move(graph), relation));
  pairs->own(std::move(checked));
  FARHOP_RETURN_IF_ERROR(pairs->takeTimes(std::move(times)));
  FARHOP_RETURN_IF_ERROR(pairs->deal(deal, &seeds.set));
  seeds.pairs = std::move(pairs);
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
