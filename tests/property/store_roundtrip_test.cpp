// A store holds exactly the data set it was made from, whatever the number of partitions and the assignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <tuple>
#include <vector>

#include "partition/graph_store.h"
#include "partition/store_writer.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

using testing::FixtureOptions;
using testing::makeFixtureDataset;
using testing::TemporaryDirectory;
using testing::writeFixtureStore;

struct Case {
  bool heterogeneous;
  int parts;
  PartitionMethod method;
  uint64_t seed;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << (c.heterogeneous ? "heterogeneous" : "homogeneous") << ", " << c.parts << " parts, "
       << partitionMethodName(c.method) << ", seed " << c.seed;
}

// (edge id, original source, original destination) of every edge of a relation.
using Edges = std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>;

class StoreRoundtrip : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    options_.seed = GetParam().seed;
    options_.heterogeneous = GetParam().heterogeneous;
    options_.method = GetParam().method;
    options_.addReverse = true;
    options_.nodes = 20 + 13 * GetParam().seed;
    options_.edges = 90 * GetParam().seed;
    dataset_ = makeFixtureDataset(options_);
    auto store = GraphStore::open(storePath());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *store;
    for (int k = 0; k < store_->numPartitions(); ++k) {
      auto shard = store_->openPartition(k);
      ASSERT_TRUE(shard.ok()) << shard.status();
      shards_.push_back(*std::move(shard));
    }
  }

  // Written once for all tests of a case.
  std::string storePath() const {
    static const TemporaryDirectory directory;
    std::ostringstream name;
    PrintTo(GetParam(), &name);
    const std::string path = directory / name.str();
    return std::filesystem::exists(path) ? path : writeFixtureStore(options_, GetParam().parts, path);
  }

  uint64_t originalId(int type, uint64_t gid) const {
    const int k = store_->book().partitionOf(type, gid);
    return shards_[k].originalIds(type)[gid - store_->book().begin(type, k)];
  }

  Edges storedEdges(int r) const {
    const Relation& relation = store_->schema().relations[r];
    Edges edges;
    for (const GraphShard& shard : shards_) {
      const RelationShard& csr = shard.relation(r);
      EXPECT_EQ(csr.rows(), store_->book().count(relation.destination, shard.index()));
      for (uint64_t row = 0; row < csr.rows(); ++row) {
        for (uint64_t i = csr.indptr[row]; i < csr.indptr[row + 1]; ++i) {
          edges.emplace_back(csr.edgeIds[i], originalId(relation.source, csr.neighbors32[i]),
                             shard.originalIds(relation.destination)[row]);
        }
      }
    }
    std::sort(edges.begin(), edges.end());
    return edges;
  }

  FixtureOptions options_;
  Dataset dataset_;
  std::shared_ptr<const GraphStore> store_;
  std::vector<GraphShard> shards_;
};

TEST_P(StoreRoundtrip, KeepsEveryEdge_ForwardAndReverse) {
  const size_t forward = dataset_.edges.size();
  ASSERT_EQ(store_->schema().relations.size(), 2 * forward);
  for (size_t r = 0; r < forward; ++r) {
    const EdgeList& input = dataset_.edges[r];
    Edges there, back;
    for (uint64_t e = 0; e < input.source.size(); ++e) {
      there.emplace_back(e, input.source[e], input.destination[e]);
      back.emplace_back(e, input.destination[e], input.source[e]);
    }
    EXPECT_EQ(storedEdges(static_cast<int>(r)), there);
    EXPECT_EQ(storedEdges(static_cast<int>(forward + r)), back);
    EXPECT_EQ(store_->schema().relations[forward + r].reverseOf, static_cast<int>(r));
    EXPECT_EQ(store_->schema().relations[forward + r].name, "rev_" + store_->schema().relations[r].name);
  }
}

TEST_P(StoreRoundtrip, SortsNeighborsByOriginalIdThenEdgeId) {
  for (size_t r = 0; r < store_->schema().relations.size(); ++r) {
    const int source = store_->schema().relations[r].source;
    for (const GraphShard& shard : shards_) {
      const RelationShard& csr = shard.relation(static_cast<int>(r));
      for (uint64_t row = 0; row < csr.rows(); ++row) {
        for (uint64_t i = csr.indptr[row] + 1; i < csr.indptr[row + 1]; ++i) {
          EXPECT_LT(std::pair(originalId(source, csr.neighbors32[i - 1]), csr.edgeIds[i - 1]),
                    std::pair(originalId(source, csr.neighbors32[i]), csr.edgeIds[i]));
        }
      }
    }
  }
}

TEST_P(StoreRoundtrip, KeepsNodeFeaturesBitForBit) {
  for (size_t t = 0; t < dataset_.schema.nodeTypes.size(); ++t) {
    const int type = static_cast<int>(t);
    uint64_t seen = 0;
    for (const GraphShard& shard : shards_) {
      const auto ids = shard.originalIds(type);
      seen += ids.size();
      EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
      for (size_t f = 0; f < dataset_.schema.nodeTypes[t].features.size(); ++f) {
        const FeatureSpec& spec = dataset_.schema.nodeTypes[t].features[f];
        const FeatureTable* table = shard.nodeFeature(type, spec.name);
        ASSERT_NE(table, nullptr) << spec.name;
        ASSERT_EQ(table->rows, ids.size());
        for (uint64_t i = 0; i < ids.size(); ++i) {
          const std::byte* expected = dataset_.nodeFeatures[t][f].data + ids[i] * spec.rowBytes();
          ASSERT_EQ(std::memcmp(table->row(i), expected, spec.rowBytes()), 0)
              << spec.name << " of node " << ids[i];
        }
      }
    }
    EXPECT_EQ(seen, dataset_.schema.nodeTypes[t].count);
  }
}

TEST_P(StoreRoundtrip, KeepsEdgeFeaturesOnce_InCsrOrder) {
  for (size_t r = 0; r < store_->schema().relations.size(); ++r) {
    const bool reverse = store_->schema().relations[r].reverseOf >= 0;
    for (const GraphShard& shard : shards_) {
      const FeatureTable* table = shard.edgeFeature(static_cast<int>(r), "w");
      ASSERT_EQ(table == nullptr, reverse);
      if (reverse) continue;
      const RelationShard& csr = shard.relation(static_cast<int>(r));
      ASSERT_EQ(table->rows, csr.edges());
      for (uint64_t i = 0; i < csr.edges(); ++i) {
        float value = 0;
        std::memcpy(&value, table->row(i), sizeof(value));
        ASSERT_EQ(value, testing::fixtureEdgeFeature(static_cast<int>(r), csr.edgeIds[i]));
      }
    }
  }
}

TEST_P(StoreRoundtrip, KeepsSplits) {
  for (const SplitSeeds& split : dataset_.splits) {
    std::vector<uint64_t> seeds;
    for (const GraphShard& shard : shards_) {
      for (uint64_t gid : shard.split(split.name, split.nodeType)) {
        EXPECT_EQ(store_->book().partitionOf(split.nodeType, gid), shard.index());
        seeds.push_back(originalId(split.nodeType, gid));
      }
    }
    std::sort(seeds.begin(), seeds.end());
    EXPECT_EQ(seeds, split.ids) << split.name;
    EXPECT_EQ(shards_[0].split("val", 0).data(), shards_[0].split("validation", 0).data());
  }
}

TEST_P(StoreRoundtrip, IsSound) {
  EXPECT_TRUE(store_->verify().ok()) << store_->verify();
}

TEST_P(StoreRoundtrip, MapsOriginalIdsToGidsAndBack) {
  for (size_t t = 0; t < dataset_.schema.nodeTypes.size(); ++t) {
    auto gids = store_->gidsByOriginalId(static_cast<int>(t));
    ASSERT_TRUE(gids.ok()) << gids.status();
    ASSERT_EQ(gids->size(), dataset_.schema.nodeTypes[t].count);
    for (uint64_t id = 0; id < gids->size(); ++id)
      EXPECT_EQ(originalId(static_cast<int>(t), (*gids)[id]), id);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (bool heterogeneous : {false, true}) {
    for (int parts : {1, 2, 3, 5}) {
      for (PartitionMethod method : {PartitionMethod::kRandom, PartitionMethod::kMetis}) {
        for (uint64_t seed : {1, 4}) all.push_back({heterogeneous, parts, method, seed});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Graphs, StoreRoundtrip, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace farhop::partition
