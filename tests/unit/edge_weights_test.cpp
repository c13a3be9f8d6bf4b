#include "sampler/edge_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "partition/store_writer.h"
#include "sampler/neighbor_draw.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::sampler {
namespace {

// A store of one relation, whose edge feature "w" holds `values`.
template <typename T>
void writeStoreWith(const std::vector<T>& values, DType dtype, int parts, bool addReverse, const std::string& directory) {
  farhop::testing::FixtureOptions fixture;
  fixture.edges = values.size();
  partition::Dataset dataset = farhop::testing::makeFixtureDataset(fixture);
  dataset.schema.relations[0].features[0].dtype = dtype;
  auto shared = std::make_shared<const std::vector<T>>(values);
  dataset.edgeFeatures[0][0] = {reinterpret_cast<const std::byte*>(shared->data()), values.size(), shared, "test"};
  partition::PartitionOptions how;
  how.parts = parts;
  auto assignment = partition::assignPartitions(dataset, how);
  EXPECT_TRUE(assignment.ok()) << assignment.status();
  partition::StoreWriterOptions writer;
  writer.directory = directory;
  writer.addReverse = addReverse;
  const absl::Status written = partition::writeStore(dataset, *assignment, writer);
  EXPECT_TRUE(written.ok()) << written;
}

template <typename T>
std::shared_ptr<const PartitionedGraph> graphWith(const std::vector<T>& values, DType dtype, const std::string& directory,
                                                  bool addReverse = false) {
  writeStoreWith(values, dtype, 1, addReverse, directory);
  return *PartitionedGraph::open(*partition::GraphStore::open(directory), 0, 1);
}

TEST(MadeOnce, KeepsValuesAndFailures_ButNotWantOfMemory) {
  const sampler::MadeOnce<int, int> cache;
  int calls = 0;
  const auto get = [&](int key, const absl::StatusOr<int>& made) {
    return cache.get(key, [&]() -> absl::StatusOr<std::shared_ptr<const int>> {
      ++calls;
      if (!made.ok()) return made.status();
      return std::make_shared<const int>(*made);
    });
  };
  EXPECT_EQ(**get(1, 5), 5);
  EXPECT_EQ(**get(1, 6), 5);
  EXPECT_EQ(get(2, absl::InvalidArgumentError("bad")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(get(2, 7).status().message(), "bad");
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(absl::IsResourceExhausted(get(3, absl::ResourceExhaustedError("full")).status()));
  const auto throws = []() -> absl::StatusOr<std::shared_ptr<const int>> { throw std::bad_alloc(); };
  EXPECT_TRUE(absl::IsResourceExhausted(cache.get(3, throws).status()));
  EXPECT_EQ(**get(3, 8), 8);
  EXPECT_EQ(**get(3, 9), 8);
}

TEST(EdgeWeights, NameFileAndRowAndEdge_WhenAWeightIsNone) {
  for (float bad : {-1.0F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    farhop::testing::TemporaryDirectory directory;
    std::vector<float> values(300, 1.0F);
    values[217] = bad;
    const auto graph = graphWith(values, DType::kFloat32, directory / "store");
    const absl::Status status = graph->edgeWeights(0, 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("feat/w.npy, row "), std::string::npos) << status;
    EXPECT_NE(status.message().find("(original edge 217)"), std::string::npos) << status;
    EXPECT_EQ(graph->edgeWeights(0, 0).status(), status);  // asked again: the same answer
  }
}

// The machine that asks learns what is wrong on the other one, and can go on.
TEST(EdgeWeights, FailTheBatchOfAnotherMachine_WhenOneIsNone) {
  farhop::testing::TemporaryDirectory directory;
  std::vector<float> values(300, -1.0F);
  writeStoreWith(values, DType::kFloat32, 2, false, directory / "store");
  farhop::testing::SamplingCluster cluster(directory / "store", 2, rpc::TransportKind::kInProcess);
  SamplingOptions options;
  options.fanouts = {{3}};
  options.kinds = {{DrawKind::kWeighted}};
  uint64_t remote = 0;  // a node of machine 1
  while (cluster.store().book().partitionOf(0, cluster.gid(0, remote)) != 1) ++remote;
  try {
    cluster.sampleEpoch(0, 0, {remote}, 1, 0, options, {1, 1});
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("part-00001"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("weight -1"), std::string::npos) << error.what();
  }
  options.kinds = {{DrawKind::kUniform}};
  EXPECT_EQ(cluster.sampleEpoch(0, 0, {remote}, 1, 0, options, {1, 1}).size(), 1u);
}

TEST(EdgeWeights, KeepTheirRatios_WhateverTheType) {
  std::vector<double> wide(300);
  std::vector<int16_t> integers(300);
  for (size_t i = 0; i < 300; ++i) {
    integers[i] = static_cast<int16_t>(i % 11);
    wide[i] = static_cast<double>(integers[i]) * 1e300;  // beyond float32
  }
  farhop::testing::TemporaryDirectory directory;
  const auto a = graphWith(wide, DType::kFloat64, directory / "a");
  const auto b = graphWith(integers, DType::kInt16, directory / "b");
  const auto ofA = a->edgeWeights(0, 0), ofB = b->edgeWeights(0, 0);
  ASSERT_TRUE(ofA.ok() && ofB.ok()) << ofA.status() << ofB.status();
  const WeightView viewA = (**ofA)[0]->view(), viewB = (**ofB)[0]->view();
  for (size_t e = 0; e < 300; ++e) {
    EXPECT_FLOAT_EQ(viewA.weights[e], viewB.weights[e]);
    EXPECT_EQ(viewA.weights[e] == 0, integers[a->shard(0)->relation(0).edgeIds[e]] == 0);
  }
}

TEST(WeightIndex, SaysWhatTheStoreHas) {
  farhop::testing::TemporaryDirectory directory;
  const auto graph = graphWith(std::vector<float>(300, 1.0F), DType::kFloat32, directory / "store", true);
  EXPECT_EQ(*weightIndex(*graph, 0, "w"), 0u);
  const absl::Status unknown = weightIndex(*graph, 0, "wieght").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(unknown.message().find("it has: w"), std::string::npos) << unknown;
  const absl::Status reverse = weightIndex(*graph, 1, "w").status();
  EXPECT_NE(reverse.message().find("farhop partition --weights"), std::string::npos) << reverse;
  const auto bits = graphWith(std::vector<uint8_t>(300, 1), DType::kBool, directory / "bool");
  const absl::Status unsuited = weightIndex(*bits, 0, "w").status();
  EXPECT_EQ(unsuited.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unsuited.message().find("holds 1 x bool"), std::string::npos) << unsuited;
}

TEST(WeightIndex, FindsDeclaredWeights_OfReverseRelationsAndOfOtherTypesThanFloat32) {
  farhop::testing::TemporaryDirectory directory;
  farhop::testing::FixtureOptions fixture;
  fixture.addReverse = fixture.declaredWeights = true;
  const auto open = [](const std::string& store) { return *PartitionedGraph::open(*partition::GraphStore::open(store), 0, 1); };
  const auto graph = open(farhop::testing::writeFixtureStore(fixture, 1, directory / "floats"));
  EXPECT_EQ(*weightIndex(*graph, 0, "w"), 0u) << "a float32 feature is stored once";
  EXPECT_EQ(*weightIndex(*graph, 1, "w"), kStoredWeights);
  EXPECT_NE(weightIndex(*graph, 1, "x").status().message().find("it has: w"), std::string::npos);
  EXPECT_FALSE(graph->checkWeight(0, kStoredWeights).ok()) << "as a peer could ask";
  const auto forward = graph->edgeWeights(0, 0), reverse = graph->edgeWeights(1, kStoredWeights);
  ASSERT_TRUE(forward.ok() && reverse.ok()) << reverse.status();
  const auto& ids = graph->shard(0)->relation(1).edgeIds;
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ((**reverse)[0]->view().weights[i], farhop::testing::fixtureEdgeFeature(0, ids[i]));
  }

  partition::Dataset dataset = farhop::testing::makeFixtureDataset({});
  auto counts = std::make_shared<const std::vector<uint16_t>>(400, uint16_t{3});
  dataset.schema.relations[0].features[0].dtype = DType::kUInt16;
  dataset.schema.relations[0].weightFeature = "w";
  dataset.edgeFeatures[0][0] = {reinterpret_cast<const std::byte*>(counts->data()), 400, counts, "test"};
  partition::StoreWriterOptions writer;
  writer.directory = directory / "counts";
  ASSERT_TRUE(partition::writeStore(dataset, *partition::assignPartitions(dataset, {}), writer).ok());
  const auto counted = open(writer.directory);
  EXPECT_EQ(*weightIndex(*counted, 0, "w"), kStoredWeights);
  EXPECT_EQ((**counted->edgeWeights(0, kStoredWeights))[0]->view().weights[7], 3.0F);
}

}  // namespace
}  // namespace farhop::sampler
