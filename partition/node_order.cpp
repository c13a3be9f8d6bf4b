#include "partition/node_order.h"

#include <algorithm>
#include <utility>

#include "partition/edge_counts.h"

namespace farhop::partition {
namespace {

using Numbers = std::vector<std::vector<uint64_t>>;  // [node type][original id]

// Numbers the nodes of a type by partition, inside of one in the order of `sorted`, which lists original ids.
std::vector<uint64_t> numberInOrder(const std::vector<int32_t>& partitionOf, const PartitionBook& book, int type,
                                    const std::vector<uint64_t>& sorted) {
  std::vector<uint64_t> next;
  for (int k = 0; k < book.numPartitions(); ++k) next.push_back(book.begin(type, k));
  std::vector<uint64_t> gids(partitionOf.size());
  if (sorted.empty()) {
    for (uint64_t id = 0; id < gids.size(); ++id) gids[id] = next[static_cast<size_t>(partitionOf[id])]++;
  }
  for (uint64_t id : sorted) gids[id] = next[static_cast<size_t>(partitionOf[id])]++;
  return gids;
}

// How often each node is the source of an edge, or the destination, which a reverse relation makes a source.
absl::StatusOr<Numbers> degrees(const Dataset& dataset, const WriterResources& resources) {
  Numbers degrees;
  for (const NodeType& type : dataset.schema.nodeTypes) degrees.emplace_back(type.count, 0);
  for (size_t r = 0; r < dataset.edges.size(); ++r) {
    const Relation& relation = dataset.schema.relations[r];
    resources.begin("degrees for the order of nodes", "edges", 2 * relation.count);
    const auto add = [&](const IdColumn& ids, int type) -> absl::Status {
      std::vector<uint64_t>& total = degrees[static_cast<size_t>(type)];
      FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> counts, countIds(ids, total.size(), nullptr, resources));
      for (uint64_t id = 0; id < total.size(); ++id) total[id] += counts[id];
      return absl::OkStatus();
    };
    FARHOP_RETURN_IF_ERROR(add(dataset.edges[r].source, relation.source));
    FARHOP_RETURN_IF_ERROR(add(dataset.edges[r].destination, relation.destination));
  }
  return degrees;
}

}  // namespace

absl::StatusOr<NodeOrder> parseNodeOrder(absl::string_view name) {
  for (NodeOrder order : {NodeOrder::kOriginalId, NodeOrder::kDegree}) {
    if (nodeOrderName(order) == name) return order;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown order of nodes '", name, "'; there are: id, degree"));
}

absl::string_view nodeOrderName(NodeOrder order) {
  return order == NodeOrder::kDegree ? "degree" : "id";
}

PartitionBook makeBook(const PartitionAssignment& assignment) {
  std::vector<std::vector<uint64_t>> all;
  for (const std::vector<int32_t>& partitionOf : assignment.partitionOf) {
    std::vector<uint64_t> offsets(static_cast<size_t>(assignment.numPartitions) + 1, 0);
    for (int32_t partition : partitionOf) ++offsets[static_cast<size_t>(partition) + 1];
    for (size_t k = 1; k < offsets.size(); ++k) offsets[k] += offsets[k - 1];
    all.push_back(std::move(offsets));
  }
  return PartitionBook(std::move(all));
}

absl::StatusOr<Numbers> numberNodes(const Dataset& dataset, const PartitionAssignment& assignment,
                                    const PartitionBook& book, NodeOrder order, const WriterResources& resources) {
  Numbers gids, rank;
  std::vector<std::vector<bool>> train;
  if (order != NodeOrder::kOriginalId) {
    train = trainSeeds(dataset);
    FARHOP_ASSIGN_OR_RETURN(rank, degrees(dataset, resources));
  }
  for (size_t t = 0; t < dataset.schema.nodeTypes.size(); ++t) {
    std::vector<uint64_t> sorted;
    if (order != NodeOrder::kOriginalId) {
      sorted.resize(rank[t].size());
      for (uint64_t id = 0; id < sorted.size(); ++id) sorted[id] = id;
      std::sort(sorted.begin(), sorted.end(), [&](uint64_t a, uint64_t b) {
        if (train[t][a] != train[t][b]) return static_cast<bool>(train[t][a]);
        return rank[t][a] != rank[t][b] ? rank[t][a] > rank[t][b] : a < b;
      });
      rank[t] = {};
    }
    gids.push_back(numberInOrder(assignment.partitionOf[t], book, static_cast<int>(t), sorted));
  }
  return gids;
}

}  // namespace farhop::partition
