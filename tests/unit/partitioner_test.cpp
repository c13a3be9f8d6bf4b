#include "partition/partitioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "partition/metis_graph.h"
#include "tests/fixture_graphs.h"

namespace farhop::partition {
namespace {

using ::testing::HasSubstr;

Dataset homogeneous(uint64_t nodes, std::vector<uint64_t> source, std::vector<uint64_t> destination) {
  Dataset dataset;
  dataset.schema.nodeTypes.push_back({"_N", nodes, {}});
  dataset.schema.relations.push_back({"_E", 0, 0, source.size(), -1, {}});
  dataset.edges.push_back({IdColumn(std::move(source)), IdColumn(std::move(destination)), "test"});
  dataset.nodeFeatures.resize(1);
  dataset.edgeFeatures.resize(1);
  return dataset;
}

// Four groups of 50 nodes, by id modulo 4; 95 % of the edges stay inside a group.
Dataset clustered() {
  std::vector<uint64_t> source, destination;
  KeyedRandom random(3);
  for (int e = 0; e < 2000; ++e) {
    const uint64_t from = random.below(200);
    const bool inside = random.below(100) < 95;
    source.push_back(from);
    destination.push_back(inside ? from % 4 + 4 * random.below(50) : random.below(200));
  }
  return homogeneous(200, std::move(source), std::move(destination));
}

uint64_t cut(const Dataset& dataset, const PartitionAssignment& assignment) {
  uint64_t edges = 0;
  for (uint64_t e = 0; e < dataset.edges[0].source.size(); ++e) {
    edges += assignment.partitionOf[0][dataset.edges[0].source[e]] !=
             assignment.partitionOf[0][dataset.edges[0].destination[e]];
  }
  return edges;
}

std::vector<uint64_t> sizes(const std::vector<int32_t>& partitionOf, int parts) {
  std::vector<uint64_t> counts(static_cast<size_t>(parts));
  for (int32_t k : partitionOf) ++counts[static_cast<size_t>(k)];
  return counts;
}

PartitionAssignment assign(const Dataset& dataset, PartitionMethod method, int parts, uint64_t seed = 0) {
  PartitionOptions options;
  options.method = method;
  options.parts = parts;
  options.seed = seed;
  auto assignment = assignPartitions(dataset, options);
  EXPECT_TRUE(assignment.ok()) << assignment.status();
  EXPECT_TRUE(checkAssignment(dataset, *assignment).ok());
  return *std::move(assignment);
}

TEST(Partitioner, MetisCutsFarLessThanRandom_OnAClusteredGraph) {
  const Dataset dataset = clustered();
  const uint64_t metis = cut(dataset, assign(dataset, PartitionMethod::kMetis, 4));
  const uint64_t random = cut(dataset, assign(dataset, PartitionMethod::kRandom, 4));
  EXPECT_LT(metis * 5, random) << "METIS " << metis << ", random " << random;
}

TEST(Partitioner, MetisBalancesNodesAndTrainSeeds) {
  Dataset dataset = clustered();
  // All train seeds in one group: without the second constraint they would share a partition.
  std::vector<uint64_t> seeds;
  for (uint64_t id = 0; id < 200; id += 4) seeds.push_back(id);
  dataset.splits.push_back({"train", 0, seeds});
  auto spread = [&](bool balance) {
    PartitionOptions options{4, PartitionMethod::kMetis, 1, balance};
    const PartitionAssignment assignment = assignPartitions(dataset, options).value();
    std::vector<uint64_t> perPartition(4);
    for (uint64_t id : seeds) ++perPartition[static_cast<size_t>(assignment.partitionOf[0][id])];
    const auto nodes = sizes(assignment.partitionOf[0], 4);
    EXPECT_LE(*std::max_element(nodes.begin(), nodes.end()), 55u);
    return *std::max_element(perPartition.begin(), perPartition.end());
  };
  EXPECT_LE(spread(true), 16u);
  EXPECT_GT(spread(false), 30u);
}

TEST(Partitioner, RandomDealsEvenly_NodesAndTrainSeedsOfEveryType) {
  testing::FixtureOptions options;
  options.heterogeneous = true;
  options.nodes = 101;
  const Dataset dataset = testing::makeFixtureDataset(options);
  for (int parts : {2, 3, 7}) {
    const PartitionAssignment assignment = assign(dataset, PartitionMethod::kRandom, parts);
    std::vector<int32_t> train;
    for (uint64_t id : dataset.splits[0].ids) train.push_back(assignment.partitionOf[0][id]);
    for (const auto& partitionOf : {assignment.partitionOf[0], assignment.partitionOf[1], train}) {
      const auto counts = sizes(partitionOf, parts);
      EXPECT_LE(
          *std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end()),
          2u);
    }
  }
}

TEST(Partitioner, RangeGivesConsecutiveIdsOfEveryType_EvenlyAndWhateverTheSeed) {
  testing::FixtureOptions options;
  options.heterogeneous = true;
  options.nodes = 101;
  const Dataset dataset = testing::makeFixtureDataset(options);
  for (int parts : {1, 2, 3, 7, 64}) {
    const PartitionAssignment assignment = assign(dataset, PartitionMethod::kRange, parts);
    for (const auto& partitionOf : assignment.partitionOf) {
      EXPECT_TRUE(std::is_sorted(partitionOf.begin(), partitionOf.end()));
      const auto counts = sizes(partitionOf, parts);
      EXPECT_LE(
          *std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end()),
          1u);
    }
    EXPECT_EQ(assignment.partitionOf, assign(dataset, PartitionMethod::kRange, parts, 7).partitionOf);
  }
}

TEST(Partitioner, KnowsItsMethodsByName) {
  for (const char* name : {"metis", "random", "range"}) {
    const auto method = parsePartitionMethod(name);
    ASSERT_TRUE(method.ok()) << method.status();
    EXPECT_EQ(partitionMethodName(*method), name);
  }
  const absl::Status status = parsePartitionMethod("louvain").status();
  EXPECT_NE(status.message().find("'louvain'; there are: metis, random, range"), absl::string_view::npos) << status;
}

TEST(Partitioner, DealsTheNodesEvenlyAtWhichTrainEdgesEnd) {
  Dataset dataset = clustered();
  std::vector<uint64_t> ends;
  for (uint64_t id = 0; id < 80; id += 4) ends.push_back(id);
  EdgeSplitSeeds split;
  split.name = "train";
  split.source = IdColumn(std::vector<uint64_t>(ends.size(), 199));
  split.destination = IdColumn(ends);
  dataset.edgeSplits.push_back(split);
  for (PartitionMethod method : {PartitionMethod::kMetis, PartitionMethod::kRandom}) {
    const PartitionAssignment assignment = assign(dataset, method, 4);
    std::vector<uint64_t> perPartition(4);
    for (uint64_t id : ends) ++perPartition[static_cast<size_t>(assignment.partitionOf[0][id])];
    EXPECT_LE(*std::max_element(perPartition.begin(), perPartition.end()), 8u);
  }
}

TEST(Partitioner, IsFixedByItsSeed) {
  const Dataset dataset = clustered();
  for (PartitionMethod method : {PartitionMethod::kMetis, PartitionMethod::kRandom}) {
    EXPECT_EQ(assign(dataset, method, 3, 5).partitionOf, assign(dataset, method, 3, 5).partitionOf);
    EXPECT_NE(assign(dataset, method, 3, 5).partitionOf, assign(dataset, method, 3, 6).partitionOf);
  }
}

TEST(Partitioner, TakesOnePartition_AndGraphsWithoutEdges) {
  const Dataset dataset = clustered();
  EXPECT_EQ(sizes(assign(dataset, PartitionMethod::kMetis, 1).partitionOf[0], 1)[0], 200u);
  for (const Dataset& edgeless : {homogeneous(10, {}, {}), homogeneous(10, {3, 4}, {3, 4})}) {
    const auto counts = sizes(assign(edgeless, PartitionMethod::kMetis, 3).partitionOf[0], 3);
    EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 3u);
  }
}

TEST(Partitioner, TakesTinyGraphs) {
  for (uint64_t nodes = 2; nodes < 12; ++nodes) {
    std::vector<uint64_t> ring(nodes), next(nodes);
    for (uint64_t i = 0; i < nodes; ++i) {
      ring[i] = i;
      next[i] = (i + 1) % nodes;
    }
    const Dataset dataset = homogeneous(nodes, ring, next);
    for (int parts = 2; parts <= static_cast<int>(nodes); ++parts)
      assign(dataset, PartitionMethod::kMetis, parts);
  }
}

TEST(Partitioner, RefusesMorePartitionsThanNodes_WithMetis) {
  const Dataset dataset = homogeneous(3, {0, 1}, {1, 2});
  const auto refused = assignPartitions(dataset, {4, PartitionMethod::kMetis, 0, true});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("cannot cut 3 nodes into 4 partitions"));
  EXPECT_TRUE(assignPartitions(dataset, {4, PartitionMethod::kRandom, 0, true}).ok());
  EXPECT_FALSE(assignPartitions(dataset, {0, PartitionMethod::kRandom, 0, true}).ok());
}

TEST(MetisGraph, MergesParallelEdgesIntoWeights_AndDropsSelfLoops) {
  const Dataset dataset = homogeneous(3, {0, 0, 1, 2, 2}, {1, 1, 0, 2, 1});
  const auto graph = buildMetisGraph(dataset, nullptr);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->indptr, (std::vector<idx_t>{0, 1, 3, 4}));
  EXPECT_EQ(graph->neighbors, (std::vector<idx_t>{1, 0, 2, 1}));
  EXPECT_EQ(graph->edgeWeights, (std::vector<idx_t>{3, 3, 1, 1}));
  EXPECT_EQ(graph->constraints, 1);
}

TEST(MetisGraph, RefusesWhatItsIntegersCannotCount) {
  EXPECT_TRUE(checkMetisLimits(1000, 1000).ok());
  const absl::Status nodes = checkMetisLimits(static_cast<uint64_t>(IDX_MAX) + 1, 10);
  const absl::Status edges = checkMetisLimits(1000, static_cast<uint64_t>(IDX_MAX));
  EXPECT_EQ(nodes.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(edges.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(edges.message()), HasSubstr("--method random"));
}

}  // namespace
}  // namespace farhop::partition
