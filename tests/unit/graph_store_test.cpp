#include "partition/graph_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "partition/layout.h"
#include "partition/store_writer.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GraphStore, AssignsContiguousShares_FirstMachinesTakeTheRemainder) {
  testing::TemporaryDirectory directory;
  auto store = GraphStore::open(testing::writeFixtureStore({}, 5, directory / "store"));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT((*store)->assign(1).value(), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT((*store)->assign(2).value(), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT((*store)->assign(3).value(), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT((*store)->assign(5).value(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(std::string((*store)->assign(6).status().message()),
              HasSubstr("5 partitions, too few for 6 machines"));
  EXPECT_FALSE((*store)->assign(0).ok());
  EXPECT_FALSE((*store)->openPartition(5).ok());
  EXPECT_FALSE((*store)->openPartition(-1).ok());
}

TEST(GraphStore, TellsDifferentStoresApartByFingerprint) {
  testing::TemporaryDirectory directory;
  testing::FixtureOptions other;
  other.seed = 2;
  auto a = GraphStore::open(testing::writeFixtureStore({}, 2, directory / "a"));
  auto b = GraphStore::open(testing::writeFixtureStore(other, 2, directory / "b"));
  EXPECT_NE((*a)->fingerprint(), (*b)->fingerprint());
}

TEST(GraphStore, HasNoFeatureAndNoSplit_WhereThereIsNone) {
  testing::TemporaryDirectory directory;
  testing::FixtureOptions options;
  options.heterogeneous = true;
  options.edgeFeatures = false;
  auto store = GraphStore::open(testing::writeFixtureStore(options, 2, directory / "store"));
  auto shard = (*store)->openPartition(1);
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ(shard->nodeFeature(0, "y"), nullptr);
  EXPECT_EQ(shard->edgeFeature(0, "w"), nullptr);
  EXPECT_TRUE(shard->split("train", 1).empty());
  EXPECT_TRUE(shard->split("holdout", 0).empty());
  EXPECT_FALSE(shard->split("val", 0).empty());
}

TEST(GraphStore, KeepsWorking_AfterAShardIsMoved) {
  testing::TemporaryDirectory directory;
  auto store = GraphStore::open(testing::writeFixtureStore({}, 1, directory / "store"));
  auto shard = (*store)->openPartition(0);
  ASSERT_TRUE(shard.ok());
  const GraphShard moved = *std::move(shard);
  EXPECT_EQ(moved.originalIds(0)[7], 7u);
  EXPECT_EQ(moved.relation(0).indptr.back(), 400u);
}

TEST(GraphStore, IsReadByManyThreadsAtOnce) {
  testing::TemporaryDirectory directory;
  testing::FixtureOptions options;
  options.heterogeneous = true;
  auto store = GraphStore::open(testing::writeFixtureStore(options, 2, directory / "store"));
  std::vector<const uint64_t*> seen(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&, i] {
      auto shard = (*store)->openPartition(static_cast<int>(i % 2));
      auto gids = (*store)->gidsByOriginalId(static_cast<int>(i % 2));
      if (shard.ok() && gids.ok()) seen[i] = gids->data();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], seen[i % 2]);
  EXPECT_NE(seen[0], nullptr);
}

TEST(GraphStore, ReadsNamesOfAnyBytes_AndKeepsThemApart) {
  testing::TemporaryDirectory directory;
  Dataset dataset = testing::makeFixtureDataset({});
  dataset.schema.nodeTypes[0].name = "../a b";
  dataset.schema.nodeTypes[0].features[0].name = "x/y";
  dataset.schema.nodeTypes[0].features[1].name = "x%2Fy";
  dataset.schema.relations[0].name = "h\xC3\xA4ngt.ab";
  StoreWriterOptions options;
  options.directory = directory / "store";
  auto assignment = assignPartitions(dataset, {2, PartitionMethod::kRandom, 0, true});
  ASSERT_TRUE(writeStore(dataset, *assignment, options).ok());
  auto store = GraphStore::open(options.directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->verify().ok()) << (*store)->verify();
  auto shard = (*store)->openPartition(0);
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_NE(shard->nodeFeature(0, "x/y"), nullptr);
  EXPECT_EQ(shard->nodeFeature(0, "x%2Fy")->spec.dtype, DType::kInt64);
  EXPECT_TRUE((*store)->schema().relationIndex("h\xC3\xA4ngt.ab").ok());
}

TEST(GraphStore, RefusesNamesThatAreNotUtf8) {
  testing::TemporaryDirectory directory;
  Dataset dataset = testing::makeFixtureDataset({});
  StoreWriterOptions options;
  options.directory = directory / "store";
  for (const char* name : {"caf\xE9", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    dataset.schema.nodeTypes[0].name = name;
    auto assignment = assignPartitions(dataset, {1, PartitionMethod::kRandom, 0, true});
    EXPECT_THAT(std::string(writeStore(dataset, *assignment, options).message()), HasSubstr("UTF-8"));
  }
}

TEST(Schema, FindsTypesAndRelationsByName) {
  Schema schema;
  schema.nodeTypes = {{"user", 3, {}}, {"item", 4, {}}};
  schema.relations = {{"likes", 0, 1, 0, -1, {}}, {"near", 0, 0, 0, -1, {}}, {"near", 1, 1, 0, -1, {}}};
  EXPECT_EQ(schema.nodeTypeIndex("item").value(), 1);
  EXPECT_EQ(schema.relationIndex("likes").value(), 0);
  EXPECT_EQ(schema.relationIndex("item:near:item").value(), 2);
  EXPECT_THAT(std::string(schema.relationIndex("near").status().message()), HasSubstr("user:near:user"));
  EXPECT_THAT(std::string(schema.relationIndex("hates").status().message()),
              HasSubstr("there are: user:likes:item"));
  EXPECT_THAT(std::string(schema.nodeTypeIndex("shop").status().message()),
              HasSubstr("there are: user, item"));
}

TEST(Layout, GivesDifferentNamesDifferentComponents) {
  EXPECT_EQ(pathComponent("_N-9"), "_N-9");
  EXPECT_EQ(pathComponent("a.b/c"), "a%2Eb%2Fc");
  EXPECT_EQ(pathComponent("%2E"), "%252E");
  EXPECT_EQ(partitionPath(12), "part-00012");
}

}  // namespace
}  // namespace farhop::partition
