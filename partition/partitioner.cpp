#include "partition/partitioner.h"

#include <metis.h>

#include <array>

#include "base/random.h"
#include "partition/metis_graph.h"
#include "partition/termination_guard.h"

namespace farhop::partition {
namespace {

constexpr int kMaxParts = 1 << 16;
// How far METIS may let the largest partition exceed the mean, for nodes and for train seeds. The seeds are
// fewer, so the same share of them is a coarser unit.
constexpr real_t kNodeImbalance = 1.03F;
constexpr real_t kTrainImbalance = 1.05F;

PartitionAssignment assignRandomly(const Dataset& dataset, const PartitionOptions& options) {
  const uint64_t parts = static_cast<uint64_t>(options.parts);
  const std::vector<std::vector<bool>> train = trainSeeds(dataset);
  PartitionAssignment assignment;
  assignment.numPartitions = options.parts;
  for (size_t t = 0; t < dataset.schema.nodeTypes.size(); ++t) {
    const NodeType& type = dataset.schema.nodeTypes[t];
    uint64_t key = combineKey(options.seed, static_cast<uint64_t>(Purpose::kPartition));
    key = combineKey(key, hashName(type.name));
    const KeyedPermutation permutation(key, type.count);
    std::vector<int32_t> partitionOf(type.count);
    // Round robin along the permutation, train seeds and others apart. Each type begins at another partition,
    // so that many small types do not all land in the first ones.
    std::array<uint64_t, 2> next = {key % parts, key % parts};
    for (uint64_t position = 0; position < type.count; ++position) {
      const uint64_t id = permutation(position);
      uint64_t& turn = next[options.balanceTrain && train[t][id] ? 1 : 0];
      partitionOf[id] = static_cast<int32_t>(turn);
      turn = turn + 1 == parts ? 0 : turn + 1;
    }
    assignment.partitionOf.push_back(std::move(partitionOf));
  }
  return assignment;
}

PartitionAssignment assignByRange(const Dataset& dataset, int parts) {
  PartitionAssignment assignment;
  assignment.numPartitions = parts;
  for (const NodeType& type : dataset.schema.nodeTypes) {
    std::vector<int32_t> partitionOf;
    partitionOf.reserve(type.count);
    for (uint64_t part = 0; part < static_cast<uint64_t>(parts); ++part) {
      const uint64_t end = static_cast<uint64_t>(static_cast<Uint128>(part + 1) * type.count / static_cast<uint64_t>(parts));
      partitionOf.resize(end, static_cast<int32_t>(part));
    }
    assignment.partitionOf.push_back(std::move(partitionOf));
  }
  return assignment;
}

absl::Status metisStatus(int code) {
  switch (code) {
    case METIS_OK:
      return absl::OkStatus();
    case METIS_ERROR_INPUT:
      return absl::InternalError("METIS refused the graph or an option of it");
    case METIS_ERROR_MEMORY:
      return absl::ResourceExhaustedError(
          "METIS ran out of memory; use a machine with more memory, or --method random");
    default:
      return absl::InternalError(absl::StrCat("METIS failed or was interrupted (code ", code, ")"));
  }
}

absl::StatusOr<std::vector<idx_t>> runMetis(MetisGraph& graph, const PartitionOptions& options) {
  idx_t nodes = static_cast<idx_t>(graph.indptr.size() - 1);
  idx_t constraints = graph.constraints;
  idx_t parts = options.parts;
  std::array<real_t, 2> imbalance = {kNodeImbalance, kTrainImbalance};
  std::array<idx_t, METIS_NOPTIONS> settings;
  METIS_SetDefaultOptions(settings.data());
  settings[METIS_OPTION_OBJTYPE] = METIS_OBJTYPE_CUT;
  settings[METIS_OPTION_NUMBERING] = 0;
  settings[METIS_OPTION_SEED] = static_cast<idx_t>(mix64(options.seed) & 0x3FFFFFFF);
  std::vector<idx_t> partition(static_cast<size_t>(nodes));
  idx_t cut = 0;
  const TerminationGuard guard;
  const int code = METIS_PartGraphKway(&nodes, &constraints, graph.indptr.data(), graph.neighbors.data(),
                                       graph.nodeWeights.data(), nullptr, graph.edgeWeights.data(), &parts,
                                       nullptr, imbalance.data(), settings.data(), &cut, partition.data());
  FARHOP_RETURN_IF_ERROR(metisStatus(code));
  return partition;
}

absl::StatusOr<PartitionAssignment> assignByMetis(const Dataset& dataset, const PartitionOptions& options) {
  uint64_t nodes = 0;
  for (const NodeType& type : dataset.schema.nodeTypes) nodes += type.count;
  if (static_cast<uint64_t>(options.parts) > nodes) {
    return absl::InvalidArgumentError(absl::StrCat("cannot cut ", nodes, " nodes into ", options.parts,
                                                   " partitions with METIS; ask for at most ", nodes));
  }
  const std::vector<std::vector<bool>> train = trainSeeds(dataset);
  FARHOP_ASSIGN_OR_RETURN(MetisGraph graph,
                          buildMetisGraph(dataset, options.balanceTrain ? &train : nullptr));
  // Without an edge there is nothing to cut, and METIS 5.1 divides by the number of edges.
  if (graph.neighbors.empty()) return assignRandomly(dataset, options);
  FARHOP_ASSIGN_OR_RETURN(std::vector<idx_t> partition, runMetis(graph, options));

  PartitionAssignment assignment;
  assignment.numPartitions = options.parts;
  auto at = partition.begin();
  for (const NodeType& type : dataset.schema.nodeTypes) {
    auto end = at + static_cast<ptrdiff_t>(type.count);
    assignment.partitionOf.emplace_back(at, end);
    at = end;
  }
  return assignment;
}

}  // namespace

absl::StatusOr<PartitionMethod> parsePartitionMethod(absl::string_view name) {
  if (name == "metis") return PartitionMethod::kMetis;
  if (name == "random") return PartitionMethod::kRandom;
  if (name == "range") return PartitionMethod::kRange;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown partition method '", name, "'; there are: metis, random, range"));
}

absl::string_view partitionMethodName(PartitionMethod method) {
  switch (method) {
    case PartitionMethod::kMetis:
      return "metis";
    case PartitionMethod::kRandom:
      return "random";
    case PartitionMethod::kRange:
      return "range";
  }
  return "";
}

absl::StatusOr<PartitionAssignment> assignPartitions(const Dataset& dataset,
                                                     const PartitionOptions& options) {
  if (options.parts < 1 || options.parts > kMaxParts) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make ", options.parts, " partitions; 1 to ", kMaxParts, " are possible"));
  }
  if (options.parts == 1) {
    PartitionAssignment assignment;
    assignment.numPartitions = 1;
    for (const NodeType& type : dataset.schema.nodeTypes) assignment.partitionOf.emplace_back(type.count, 0);
    return assignment;
  }
  switch (options.method) {
    case PartitionMethod::kRandom:
      return assignRandomly(dataset, options);
    case PartitionMethod::kRange:
      return assignByRange(dataset, options.parts);
    case PartitionMethod::kMetis:
      break;
  }
  return assignByMetis(dataset, options);
}

std::vector<std::vector<bool>> trainSeeds(const Dataset& dataset) {
  std::vector<std::vector<bool>> train(dataset.schema.nodeTypes.size());
  for (size_t t = 0; t < train.size(); ++t) train[t].resize(dataset.schema.nodeTypes[t].count);
  for (const SplitSeeds& split : dataset.splits) {
    if (split.name != "train") continue;
    for (uint64_t id : split.ids) train[split.nodeType][id] = true;
  }
  for (const EdgeSplitSeeds& split : dataset.edgeSplits) {
    if (split.name != "train") continue;
    std::vector<bool>& seeds = train[dataset.schema.relations[split.relation].destination];
    for (uint64_t i = 0; i < split.destination.size(); ++i) seeds[split.destination[i]] = true;
  }
  return train;
}

std::string partitionOptionsKey(const PartitionOptions& options) {
  return absl::StrCat(options.parts, " ", partitionMethodName(options.method), " ", options.seed, " ",
                      options.balanceTrain);
}

absl::Status checkAssignment(const Dataset& dataset, const PartitionAssignment& assignment) {
  const Schema& schema = dataset.schema;
  if (assignment.numPartitions < 1 || assignment.numPartitions > kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat("an assignment to ", assignment.numPartitions,
                                                   " partitions; 1 to ", kMaxParts, " are possible"));
  }
  if (assignment.partitionOf.size() != schema.nodeTypes.size()) {
    return absl::InvalidArgumentError("the assignment does not cover every node type");
  }
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
    const NodeType& type = schema.nodeTypes[t];
    if (assignment.partitionOf[t].size() != type.count) {
      return absl::InvalidArgumentError(absl::StrCat("the assignment has ", assignment.partitionOf[t].size(),
                                                     " nodes of type '", type.name, "' instead of ",
                                                     type.count));
    }
    for (int32_t partition : assignment.partitionOf[t]) {
      if (partition < 0 || partition >= assignment.numPartitions) {
        return absl::InvalidArgumentError(absl::StrCat("a node of type '", type.name,
                                                       "' is assigned to partition ", partition, " of ",
                                                       assignment.numPartitions));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace farhop::partition
