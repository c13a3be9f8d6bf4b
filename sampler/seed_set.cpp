#include "sampler/seed_set.h"

#include <algorithm>

#include "sampler/node_times.h"

namespace farhop::sampler {
namespace {

// The list's gids, those of this machine, and how many each machine owns. `times`: of the list, or empty.
SeedSet fromGids(const PartitionedGraph& graph, std::vector<uint64_t> gids, const std::vector<int64_t>& times,
                 int nodeType, Deal deal) {
  SeedSet set;
  set.nodeType = nodeType;
  if (deal == Deal::kGlobal) {
    set.all = std::move(gids);
    set.times = times;
    return set;
  }
  set.perMachine.assign(static_cast<size_t>(graph.machines()), 0);
  for (size_t i = 0; i < gids.size(); ++i) {
    const int owner = graph.owner(graph.book().partitionOf(nodeType, gids[i]));
    ++set.perMachine[owner];
    if (owner != graph.machine()) continue;
    set.own.push_back(gids[i]);
    if (!times.empty()) set.times.push_back(times[i]);
  }
  return set;
}

absl::Status checkGids(const PartitionedGraph& graph, const std::vector<uint64_t>& gids, int nodeType) {
  const uint64_t known = graph.book().numNodes(nodeType);
  if (std::all_of(gids.begin(), gids.end(), [known](uint64_t gid) { return gid < known; })) return absl::OkStatus();
  return damagedIdMap(graph, nodeType);
}

// Several partitions of one machine: merged into the order of their original ids, which no partitioning
// changes.
absl::StatusOr<SeedSet> ownedSplit(const PartitionedGraph& graph, const partition::SplitInfo& split) {
  SeedSet set;
  set.nodeType = split.nodeType;
  set.perMachine.assign(static_cast<size_t>(graph.machines()), 0);
  std::vector<std::pair<uint64_t, uint64_t>> own;  // original id, gid
  for (int k = 0; k < graph.book().numPartitions(); ++k) {
    set.perMachine[graph.owner(k)] += split.partitionCounts[k];
    if (!graph.isOwn(k)) continue;
    const partition::GraphShard& shard = *graph.shard(k);
    for (uint64_t gid : shard.split(split.name, split.nodeType)) {
      own.emplace_back(shard.originalIds(split.nodeType)[gid - graph.book().begin(split.nodeType, k)], gid);
    }
  }
  std::sort(own.begin(), own.end());
  for (const auto& [originalId, gid] : own) set.own.push_back(gid);
  return set;
}

}  // namespace

absl::Status damagedIdMap(const PartitionedGraph& graph, int nodeType) {
  return absl::DataLossError(absl::StrCat(graph.store().directory(), ": the id map of node type '",
                                          graph.schema().nodeTypes[nodeType].name,
                                          "' is damaged; check the store with farhop inspect --verify"));
}

absl::StatusOr<SeedSet> seedSetOfSplit(const PartitionedGraph& graph, const std::string& name, int nodeType, Deal deal) {
  for (const partition::SplitInfo& split : graph.store().splits()) {
    if (split.name != name || split.nodeType != nodeType) continue;
    SeedSet set;
    if (deal == Deal::kByOwner) {
      FARHOP_ASSIGN_OR_RETURN(set, ownedSplit(graph, split));
    } else {
      FARHOP_ASSIGN_OR_RETURN(const auto originalIds, graph.store().splitOriginalIds(name, nodeType));
      FARHOP_ASSIGN_OR_RETURN(const auto gidOf, graph.store().gidsByOriginalId(nodeType));
      std::vector<uint64_t> gids;
      gids.reserve(originalIds.size());
      for (uint64_t id : originalIds) gids.push_back(gidOf[id]);
      FARHOP_RETURN_IF_ERROR(checkGids(graph, gids, nodeType));
      set = fromGids(graph, std::move(gids), {}, nodeType, deal);
    }
    set.name = name;
    return set;
  }
  return absl::NotFoundError(absl::StrCat(graph.store().directory(), " has no split '", name, "'"));
}

absl::StatusOr<SeedSet> seedSetOfIds(const PartitionedGraph& graph, const std::vector<int64_t>& originalIds,
                                     int nodeType, Deal deal, const std::vector<int64_t>& times) {
  if (!times.empty() && times.size() != originalIds.size()) {
    return absl::InvalidArgumentError(absl::StrCat(times.size(), " times for ", originalIds.size(), " seeds"));
  }
  FARHOP_ASSIGN_OR_RETURN(const auto gidOf, graph.store().gidsByOriginalId(nodeType));
  std::vector<uint64_t> gids;
  gids.reserve(originalIds.size());
  for (int64_t id : originalIds) {
    if (id < 0 || static_cast<uint64_t>(id) >= gidOf.size()) {
      return absl::InvalidArgumentError(absl::StrCat("seed ", id, " is out of range: there are ", gidOf.size(), " nodes"));
    }
    gids.push_back(gidOf[static_cast<uint64_t>(id)]);
  }
  FARHOP_RETURN_IF_ERROR(checkGids(graph, gids, nodeType));
  SeedSet set = fromGids(graph, std::move(gids), times, nodeType, deal);
  set.name = "seeds";
  return set;
}

std::string timesText(const partition::Schema& schema) {
  std::string relations, types;
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    if (!schema.hasTimes(static_cast<int>(r))) continue;
    absl::StrAppend(&relations, relations.empty() ? "relations " : ", ", schema.relationText(static_cast<int>(r)));
  }
  for (const partition::NodeType& type : schema.nodeTypes) {
    if (!type.timeFeature.empty()) absl::StrAppend(&types, types.empty() ? "node types " : ", ", type.name);
  }
  if (relations.empty() && types.empty()) return "none";
  return absl::StrCat(relations, relations.empty() || types.empty() ? "" : "; ", types);
}

absl::Status addNodeTimes(const PartitionedGraph& graph, FeaturePuller* puller, Deal deal, Deadline deadline,
                          SeedSet* set) {
  FARHOP_ASSIGN_OR_RETURN(set->times, pullNodeTimes(graph, puller, set->nodeType, deal == Deal::kGlobal ? set->all : set->own,
                                                    deadline, absl::StrCat("seeds '", set->name, "'")));
  return absl::OkStatus();
}

absl::StatusOr<SeedSet> seedSetOfNodes(const PartitionedGraph& graph, int nodeType, Deal deal) {
  SeedSet set;
  set.nodeType = nodeType;
  set.name = "nodes";
  if (deal == Deal::kGlobal) {
    FARHOP_ASSIGN_OR_RETURN(const auto gidOf, graph.store().gidsByOriginalId(nodeType));
    set.all.assign(gidOf.begin(), gidOf.end());
    FARHOP_RETURN_IF_ERROR(checkGids(graph, set.all, nodeType));
    return set;
  }
  set.perMachine.assign(static_cast<size_t>(graph.machines()), 0);
  std::vector<std::pair<uint64_t, uint64_t>> own;  // original id, gid
  for (int k = 0; k < graph.book().numPartitions(); ++k) {
    set.perMachine[graph.owner(k)] += graph.book().count(nodeType, k);
    if (!graph.isOwn(k)) continue;
    const std::span<const uint64_t> ids = graph.shard(k)->originalIds(nodeType);
    for (uint64_t row = 0; row < ids.size(); ++row) own.emplace_back(ids[row], graph.book().begin(nodeType, k) + row);
  }
  std::sort(own.begin(), own.end());
  set.own.reserve(own.size());
  for (const auto& [originalId, gid] : own) set.own.push_back(gid);
  return set;
}

}  // namespace farhop::sampler
