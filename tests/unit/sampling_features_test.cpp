// What may be declared as times and weights, and what a store makes of it.
#include "partition/sampling_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "partition/graph_store.h"
#include "partition/partitioner.h"
#include "partition/store_writer.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

using ::testing::HasSubstr;

template <typename T>
FeatureColumn column(const std::vector<T>& values, const std::string& origin) {
  auto shared = std::make_shared<const std::vector<T>>(values);
  return {reinterpret_cast<const std::byte*>(shared->data()), values.size(), shared, origin};
}

// Nodes 0 to 3, all edges into node 0: 1 -> 0, 3 -> 0, 2 -> 0, 1 -> 0. No features.
Dataset star() {
  Dataset dataset;
  dataset.schema.nodeTypes = {{"n", 4, {}}};
  dataset.schema.relations = {{"to", 0, 0, 4, -1, {}}};
  dataset.edges = {{IdColumn({1, 3, 2, 1}), IdColumn({0, 0, 0, 0}), "edges.npy"}};
  dataset.nodeFeatures.resize(1);
  dataset.edgeFeatures.resize(1);
  return dataset;
}

template <typename T>
void addEdgeFeature(const std::string& name, const std::vector<T>& values, Dataset* dataset) {
  dataset->schema.relations[0].features.push_back({name, dtypeOf<T>(), {}});
  dataset->edgeFeatures[0].push_back(column(values, name + ".npy"));
}

template <typename T>
void addNodeFeature(const std::string& name, const std::vector<T>& values, Dataset* dataset) {
  dataset->schema.nodeTypes[0].features.push_back({name, dtypeOf<T>(), {}});
  dataset->nodeFeatures[0].push_back(column(values, name + ".npy"));
}

// The store of one partition, kept by `directory`.
std::shared_ptr<const GraphStore> stored(const Dataset& dataset, const testing::TemporaryDirectory& directory) {
  StoreWriterOptions writer;
  writer.directory = directory / "store";
  writer.addReverse = true;
  const absl::Status written =
      writeStore(dataset, *assignPartitions(dataset, {1, PartitionMethod::kRandom, 0, true}), writer);
  EXPECT_TRUE(written.ok()) << written;
  auto store = GraphStore::open(writer.directory);
  EXPECT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->verify().ok()) << (*store)->verify();
  return *store;
}

template <typename T>
std::vector<T> listOf(std::span<const T> values) {
  return {values.begin(), values.end()};
}

std::string declarationError(const SamplingFeatureNames& names, Dataset dataset) {
  const absl::Status status = declareSamplingFeatures(names, &dataset);
  return std::string(status.message());
}

TEST(SamplingFeatures, SortRowsByEdgeTime_ThenSource_ThenEdge) {
  testing::TemporaryDirectory directory;
  Dataset dataset = star();
  addEdgeFeature<int16_t>("t", {7, -3, 7, 7}, &dataset);
  ASSERT_TRUE(declareSamplingFeatures({"t", "", ""}, &dataset).ok());
  const auto store = stored(dataset, directory);
  const GraphShard shard = store->openPartition(0).value();
  EXPECT_EQ(listOf(shard.relation(0).edgeIds), (std::vector<uint64_t>{1, 0, 3, 2}));
  EXPECT_EQ(listOf(shard.relation(0).times), (std::vector<int64_t>{-3, 7, 7, 7}));
  // Features follow: "t" itself too.
  EXPECT_EQ(reinterpret_cast<const int16_t*>(shard.edgeFeature(0, "t")->data)[0], -3);
  // Rows of the reverse relation by original id of its destinations 0 to 3: none, edges 0 and 3, 2, 1.
  EXPECT_EQ(listOf(shard.relation(1).times), (std::vector<int64_t>{7, 7, 7, -3}));
}

TEST(SamplingFeatures, MakeAnEdgeVisibleWhenBothItAndItsSourceAre) {
  testing::TemporaryDirectory directory;
  Dataset dataset = star();
  addEdgeFeature<uint32_t>("t", {7, 4'000'000'000, 5, 1}, &dataset);
  addNodeFeature<int8_t>("t", {6, 9, -100, 2}, &dataset);
  ASSERT_TRUE(declareSamplingFeatures({"t", "", ""}, &dataset).ok());
  const auto store = stored(dataset, directory);
  const GraphShard shard = store->openPartition(0).value();
  EXPECT_EQ(listOf(shard.relation(0).times), (std::vector<int64_t>{5, 9, 9, 4'000'000'000}));
  EXPECT_EQ(listOf(shard.relation(0).edgeIds), (std::vector<uint64_t>{2, 0, 3, 1}));
  // Of a reverse edge the source is node 0, of time 6.
  EXPECT_EQ(listOf(shard.relation(1).edgeIds), (std::vector<uint64_t>{3, 0, 2, 1}));
  EXPECT_EQ(listOf(shard.relation(1).times), (std::vector<int64_t>{6, 7, 6, 4'000'000'000}));
}

TEST(SamplingFeatures, TakeNodeTimesAlone_AndOfAnotherName) {
  testing::TemporaryDirectory directory;
  Dataset dataset = star();
  addEdgeFeature<int64_t>("t", {7, 1, 5, 1}, &dataset);
  addNodeFeature<int64_t>("t", {0, 0, 0, 0}, &dataset);
  addNodeFeature<int64_t>("born", {6, 9, -100, 2}, &dataset);
  Dataset nodesOnly = dataset;
  ASSERT_TRUE(declareSamplingFeatures({"", "born", ""}, &nodesOnly).ok());
  EXPECT_EQ(nodesOnly.schema.relations[0].timeFeature, "");
  EXPECT_TRUE(nodesOnly.schema.hasTimes(0));
  const GraphShard shard = stored(nodesOnly, directory)->openPartition(0).value();
  EXPECT_EQ(listOf(shard.relation(0).times), (std::vector<int64_t>{-100, 2, 9, 9}));
  ASSERT_TRUE(declareSamplingFeatures({"t", "born", ""}, &dataset).ok());
  EXPECT_EQ(dataset.schema.nodeTypes[0].timeFeature, "born");
  EXPECT_EQ(dataset.schema.relations[0].timeFeature, "t");
}

TEST(SamplingFeatures, RefuseTimesThatAreNone) {
  Dataset dataset = star();
  addEdgeFeature<double>("seconds", {1, 2, 3, 4}, &dataset);
  addEdgeFeature<uint64_t>("far", {1, 2, uint64_t{1} << 63, 4}, &dataset);
  addEdgeFeature<int64_t>("pairs", {1, 2, 3, 4, 5, 6, 7, 8}, &dataset);
  dataset.schema.relations[0].features.back().rowShape = {2};
  dataset.edgeFeatures[0].back().rows = 4;
  EXPECT_THAT(declarationError({"seconds", "", ""}, dataset),
              HasSubstr("seconds.npy: feature 'seconds' holds float64; times must be integers"));
  EXPECT_THAT(declarationError({"far", "", ""}, dataset),
              HasSubstr("far.npy: time 9223372036854775808 of 'far' in row 2 does not fit int64"));
  EXPECT_THAT(declarationError({"pairs", "", ""}, dataset), HasSubstr("'pairs' has 2 numbers per row; a time is one"));
  EXPECT_THAT(declarationError({"when", "", ""}, dataset), HasSubstr("no relation has a time feature 'when'; there are: 'seconds' of n:to:n"));
  EXPECT_THAT(declarationError({"", "when", ""}, dataset), HasSubstr("no node type has a time feature 'when'; there are: none"));
}

TEST(SamplingFeatures, RefuseWeightsThatAreNone_NamingFileRowEdgeAndValue) {
  const double huge = 1e39;
  for (double bad : {-0.5, std::nan(""), std::numeric_limits<double>::infinity(), huge}) {
    Dataset dataset = star();
    addEdgeFeature<double>("w", {1, 0, bad, 2}, &dataset);
    const std::string message = declarationError({"", "", "w"}, dataset);
    EXPECT_THAT(message, HasSubstr(absl::StrCat("w.npy: weight ", bad, " in row 2 (edge 2 of n:to:n, 2 -> 0); ")));
    EXPECT_THAT(message, HasSubstr(bad == huge ? "scale them down" : "must be finite and not negative"));
    // Nor does a store get written with it.
    dataset.schema.relations[0].weightFeature = "w";
    testing::TemporaryDirectory directory;
    StoreWriterOptions writer;
    writer.directory = directory / "store";
    EXPECT_FALSE(writeStore(dataset, {1, {std::vector<int32_t>(4, 0)}}, writer).ok());
  }
  EXPECT_THAT(declarationError({"", "", "w"}, star()), HasSubstr("no relation has a weight feature 'w'; there are: none"));
}

TEST(SamplingFeatures, KeepWeightsOfOtherTypesAsFloats_NoPositiveOneBecomingZero) {
  testing::TemporaryDirectory directory;
  Dataset dataset = star();
  addEdgeFeature<double>("w", {1e-300, 0, 2.5, 1e38}, &dataset);
  ASSERT_TRUE(declareSamplingFeatures({"", "", "w"}, &dataset).ok());
  EXPECT_EQ(countZeroWeights(dataset), (std::vector<uint64_t>{1}));
  const auto store = stored(dataset, directory);
  EXPECT_TRUE(store->schema().storesWeights(0));
  const GraphShard shard = store->openPartition(0).value();
  for (int relation : {0, 1}) {
    const RelationShard& edges = shard.relation(relation);
    ASSERT_EQ(edges.weights.size(), 4u);
    for (uint64_t i = 0; i < 4; ++i) {
      const float expected[] = {std::numeric_limits<float>::denorm_min(), 0, 2.5F, 1e38F};
      EXPECT_EQ(edges.weights[i], expected[edges.edgeIds[i]]);
    }
  }
}

TEST(SamplingFeatures, MayBeOfNoEdges_AndOfPartitionsWithoutNodes) {
  Dataset dataset = star();
  dataset.schema.relations[0].count = 0;
  dataset.edges = {{IdColumn(std::vector<uint64_t>{}), IdColumn(std::vector<uint64_t>{}), "edges.npy"}};
  addEdgeFeature<int64_t>("t", {}, &dataset);
  addEdgeFeature<uint8_t>("w", {}, &dataset);
  EdgeSplitSeeds split;
  split.name = "test";
  split.labelSpec = FeatureSpec{kLabelsName, DType::kFloat16, {3}};
  dataset.edgeSplits.push_back(split);
  ASSERT_TRUE(declareSamplingFeatures({"t", "", "w"}, &dataset).ok());
  testing::TemporaryDirectory directory;
  StoreWriterOptions writer;
  writer.directory = directory / "store";
  writer.addReverse = true;
  ASSERT_TRUE(writeStore(dataset, {3, {{1, 1, 1, 1}}}, writer).ok());
  const auto store = GraphStore::open(writer.directory).value();
  EXPECT_TRUE(store->verify().ok()) << store->verify();
  EXPECT_EQ(store->openPartition(0)->relation(1).times.size(), 0u);
  EXPECT_EQ(store->edgeSplitOriginalIds("test", 0)->size(), 0u);
}

TEST(GlobalArrays, AreMappedOnce_WhicheverThreadAsksFirst) {
  testing::TemporaryDirectory directory;
  const auto store = stored(star(), directory);
  const void* maps[4][2];
  std::vector<std::thread> threads;
  for (auto& own : maps) {
    threads.emplace_back([&store, &own] {
      own[0] = store->originalIdsByGid(0)->narrow.data();
      own[1] = store->outDegrees(1)->data();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : maps) {
    EXPECT_EQ(own[0], maps[0][0]);
    EXPECT_EQ(own[1], store->inDegrees(0)->data());
  }
}

TEST(SamplingFeatures, AreNotThere_WhereNothingIsDeclared) {
  testing::TemporaryDirectory directory;
  Dataset dataset = star();
  addEdgeFeature<int64_t>("t", {7, 1, 5, 1}, &dataset);
  const auto store = stored(dataset, directory);
  const GraphShard shard = store->openPartition(0).value();
  EXPECT_FALSE(store->schema().hasTimes(0));
  EXPECT_TRUE(shard.relation(0).times.empty());
  EXPECT_TRUE(shard.relation(1).weights.empty());
  EXPECT_EQ(listOf(shard.relation(0).edgeIds), (std::vector<uint64_t>{0, 3, 2, 1}));
  EXPECT_EQ(listOf(*store->inDegrees(0)), (std::vector<uint32_t>{4, 0, 0, 0}));
  EXPECT_EQ(listOf(*store->outDegrees(0)), (std::vector<uint32_t>{0, 2, 1, 1}));
  EXPECT_EQ(listOf(*store->inDegrees(1)), (std::vector<uint32_t>{0, 2, 1, 1}));
  EXPECT_THAT(std::string(store->edgeSplitOriginalIds("train", 0).status().message()),
              HasSubstr("has no split 'train' of edges of n:to:n; it has: none"));
  EXPECT_EQ(shard.edgeSplit("train", 0).size(), 0u);
}

}  // namespace
}  // namespace farhop::partition
