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
    // Every combination of times with either seed.
    options_.edgeTimes = GetParam().parts % 2 == 0 || GetParam().seed == 1;
    options_.nodeTimes = GetParam().parts == 3 || GetParam().method == PartitionMethod::kMetis;
    options_.declaredWeights = GetParam().seed == 1;
    options_.edgeSplits = true;
    options_.cache.fraction = GetParam().seed == 1 ? 0.4 : 0.1;
    options_.cache.policy = GetParam().parts % 2 == 0 ? CachePolicy::kVip : CachePolicy::kDegree;
    if (GetParam().parts == 3) options_.cache.features = {"x"};
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

TEST_P(StoreRoundtrip, SortsNeighborsByTimeThenOriginalIdThenEdgeId) {
  for (size_t r = 0; r < store_->schema().relations.size(); ++r) {
    const int source = store_->schema().relations[r].source;
    const bool timed = store_->schema().hasTimes(static_cast<int>(r));
    EXPECT_EQ(timed, options_.edgeTimes || options_.nodeTimes);
    for (const GraphShard& shard : shards_) {
      const RelationShard& csr = shard.relation(static_cast<int>(r));
      const auto key = [&](uint64_t i) {
        return std::tuple(timed ? csr.times[i] : 0, originalId(source, csr.neighbors32[i]), csr.edgeIds[i]);
      };
      for (uint64_t row = 0; row < csr.rows(); ++row) {
        for (uint64_t i = csr.indptr[row] + 1; i < csr.indptr[row + 1]; ++i) EXPECT_LT(key(i - 1), key(i));
      }
    }
  }
}

TEST_P(StoreRoundtrip, SaysOfEveryEdgeFromWhenOnItIsVisible) {
  for (int r = 0; r < static_cast<int>(store_->schema().relations.size()); ++r) {
    const Relation& relation = store_->schema().relations[r];
    const int forward = relation.reverseOf >= 0 ? relation.reverseOf : r;
    for (const GraphShard& shard : shards_) {
      const RelationShard& csr = shard.relation(r);
      ASSERT_EQ(csr.times.size(), store_->schema().hasTimes(r) ? csr.edges() : 0);
      for (uint64_t i = 0; i < csr.times.size(); ++i) {
        ASSERT_EQ(csr.times[i], testing::fixtureVisibleTime(options_, forward, csr.edgeIds[i], relation.source,
                                                            originalId(relation.source, csr.neighbors32[i])));
      }
    }
  }
}

TEST_P(StoreRoundtrip, KeepsDeclaredWeights_AlsoOfReverseEdges) {
  for (int r = 0; r < static_cast<int>(store_->schema().relations.size()); ++r) {
    const int reverseOf = store_->schema().relations[r].reverseOf;
    for (const GraphShard& shard : shards_) {
      const RelationShard& csr = shard.relation(r);
      ASSERT_EQ(csr.weights.size(), options_.declaredWeights ? csr.edges() : 0);
      for (uint64_t i = 0; i < csr.weights.size(); ++i) {
        ASSERT_EQ(csr.weights[i], testing::fixtureEdgeFeature(reverseOf >= 0 ? reverseOf : r, csr.edgeIds[i]));
      }
      // Not a second copy of what a feature file holds.
      if (reverseOf < 0 && csr.weights.size() > 0) {
        EXPECT_EQ(static_cast<const void*>(csr.weights.data()), shard.edgeFeature(r, "w")->data);
      }
    }
  }
}

TEST_P(StoreRoundtrip, CountsDegreesByOriginalId) {
  for (int r = 0; r < static_cast<int>(store_->schema().relations.size()); ++r) {
    const Relation& relation = store_->schema().relations[r];
    std::vector<uint32_t> in(store_->schema().nodeTypes[relation.destination].count, 0);
    std::vector<uint32_t> out(store_->schema().nodeTypes[relation.source].count, 0);
    for (const auto& [edge, source, destination] : storedEdges(r)) {
      ++in[destination];
      ++out[source];
    }
    const auto inDegrees = store_->inDegrees(r), outDegrees = store_->outDegrees(r);
    ASSERT_TRUE(inDegrees.ok() && outDegrees.ok());
    EXPECT_TRUE(std::equal(in.begin(), in.end(), inDegrees->begin(), inDegrees->end()));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), outDegrees->begin(), outDegrees->end()));
  }
}

TEST_P(StoreRoundtrip, KeepsSeedEdges_InTheOrderOfTheDataSet) {
  ASSERT_EQ(store_->edgeSplits().size(), dataset_.edgeSplits.size());
  for (const EdgeSplitSeeds& split : dataset_.edgeSplits) {
    const auto all = store_->edgeSplitOriginalIds(split.name, split.relation);
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_EQ(all->size(), split.source.size());
    const Relation& relation = store_->schema().relations[split.relation];
    const bool labelled = split.labelSpec.has_value();
    std::vector<uint64_t> next(shards_.size(), 0);
    for (uint64_t i = 0; i < all->size(); ++i) {
      ASSERT_EQ(all->source(i), split.source[i]);
      ASSERT_EQ(all->destination(i), split.destination[i]);
      // The next one of the partition that owns its destination.
      const uint64_t gid = (*store_->gidsByOriginalId(relation.destination))[split.destination[i]];
      const int k = store_->book().partitionOf(relation.destination, gid);
      const EdgeSeeds own = shards_[k].edgeSplit(split.name, split.relation);
      ASSERT_LT(next[k], own.size());
      const uint64_t at = next[k]++;
      EXPECT_EQ(own.destination(at), gid);
      EXPECT_EQ(originalId(relation.source, own.source(at)), split.source[i]);
      ASSERT_EQ(own.labels.data != nullptr, labelled);
      ASSERT_EQ(all->labels.data != nullptr, labelled);
      if (!labelled) continue;
      const std::byte* expected = split.labels.data + i * split.labelSpec->rowBytes();
      EXPECT_EQ(std::memcmp(own.labels.row(at), expected, split.labelSpec->rowBytes()), 0);
      EXPECT_EQ(std::memcmp(all->labels.row(i), expected, split.labelSpec->rowBytes()), 0);
    }
    for (size_t k = 0; k < shards_.size(); ++k) {
      EXPECT_EQ(next[k], shards_[k].edgeSplit(split.name, split.relation).size());
    }
  }
  EXPECT_EQ(shards_[0].edgeSplit("val", 0).ends.data(), shards_[0].edgeSplit("validation", 0).ends.data());
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

TEST_P(StoreRoundtrip, KeepsCopiesOfRemoteRows_AsManyAsAskedFor) {
  const CacheInfo& info = store_->manifest().cache.value();
  EXPECT_EQ(info.expectedRows.size(), shards_.size());
  for (size_t t = 0; t < dataset_.schema.nodeTypes.size(); ++t) {
    const int type = static_cast<int>(t);
    const uint64_t nodes = dataset_.schema.nodeTypes[t].count;
    const auto most = static_cast<uint64_t>(options_.cache.fraction * static_cast<double>(nodes) /
                                            static_cast<double>(shards_.size()));
    for (const GraphShard& shard : shards_) {
      const NodeCache* cache = shard.cache(type);
      ASSERT_NE(cache, nullptr);
      EXPECT_EQ(cache->features.count("label"), GetParam().parts == 3 ? 0u : 1u);
      EXPECT_LE(cache->gids.size(), most);
      if (shards_.size() > 1 && options_.cache.policy == CachePolicy::kDegree && most > 0) {
        EXPECT_GT(cache->gids.size(), 0u);
      }
      for (uint64_t i = 0; i < cache->gids.size(); ++i) {
        EXPECT_NE(store_->book().partitionOf(type, cache->gids[i]), shard.index());
        for (const auto& [name, table] : cache->features) {
          size_t f = 0;
          while (dataset_.schema.nodeTypes[t].features[f].name != name) ++f;
          const std::byte* expected =
              dataset_.nodeFeatures[t][f].data + originalId(type, cache->gids[i]) * table.spec.rowBytes();
          ASSERT_EQ(std::memcmp(table.row(i), expected, table.spec.rowBytes()), 0);
        }
      }
    }
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
    const auto ids = store_->originalIdsByGid(static_cast<int>(t));
    ASSERT_TRUE(ids.ok()) << ids.status();
    ASSERT_EQ(ids->size(), gids->size());
    for (uint64_t gid = 0; gid < ids->size(); ++gid) EXPECT_EQ((*ids)[gid], originalId(static_cast<int>(t), gid));
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
