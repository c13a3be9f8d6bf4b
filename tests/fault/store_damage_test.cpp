// A damaged store is refused, and the message names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/file.h"
#include "partition/graph_store.h"
#include "partition/layout.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

using ::testing::HasSubstr;

class StoreDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::FixtureOptions options;
    options.heterogeneous = true;
    options.addReverse = true;
    options.edgeTimes = options.nodeTimes = options.declaredWeights = options.edgeSplits = true;
    options.cache.fraction = 0.3;
    options.nodes = 30;
    options.edges = 100;
    // Written once, copied for each test: a store is synced file by file, which takes its time.
    static const testing::TemporaryDirectory original;
    static const std::string written = testing::writeFixtureStore(options, 2, original / "store");
    path_ = directory_ / "store";
    std::filesystem::copy(written, path_, std::filesystem::copy_options::recursive);
  }

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string content(const std::string& name) const { return readFile(file(name)).value(); }
  void write(const std::string& name, const std::string& text) const {
    // A new file each time: ext4 writes a file that was cut to nothing to the disk when it is closed.
    std::filesystem::remove(file(name));
    std::ofstream out(file(name), std::ios::binary | std::ios::trunc);
    ASSERT_TRUE(out.write(text.data(), static_cast<std::streamsize>(text.size())).flush());
  }
  Manifest manifest() const { return parseManifest(content(kManifestFile)).value(); }

  // Opens all that a trainer opens.
  absl::Status openEverything() const {
    FARHOP_ASSIGN_OR_RETURN(auto store, GraphStore::open(path_));
    for (int k = 0; k < store->numPartitions(); ++k) FARHOP_RETURN_IF_ERROR(store->openPartition(k).status());
    for (size_t t = 0; t < store->schema().nodeTypes.size(); ++t) {
      FARHOP_RETURN_IF_ERROR(store->gidsByOriginalId(static_cast<int>(t)).status());
      FARHOP_RETURN_IF_ERROR(store->originalIdsByGid(static_cast<int>(t)).status());
    }
    for (size_t r = 0; r < store->schema().relations.size(); ++r) {
      FARHOP_RETURN_IF_ERROR(store->inDegrees(static_cast<int>(r)).status());
      FARHOP_RETURN_IF_ERROR(store->outDegrees(static_cast<int>(r)).status());
    }
    for (const SplitInfo& split : store->splits()) {
      FARHOP_RETURN_IF_ERROR(store->splitOriginalIds(split.name, split.nodeType).status());
    }
    for (const EdgeSplitInfo& split : store->edgeSplits()) {
      FARHOP_RETURN_IF_ERROR(store->edgeSplitOriginalIds(split.name, split.relation).status());
    }
    return absl::OkStatus();
  }
  absl::Status verify() const {
    FARHOP_ASSIGN_OR_RETURN(auto store, GraphStore::open(path_));
    return store->verify();
  }

  // Changes an array and makes every checksum right again, so that only the invariants can find it.
  template <typename T>
  void forge(const std::string& name, const std::function<void(std::span<T>)>& change) {
    std::string text = content(name);
    const size_t offset = parseNpyHeader(std::as_bytes(std::span(text.data(), text.size())))->dataOffset;
    std::vector<T> values((text.size() - offset) / sizeof(T));
    std::memcpy(values.data(), text.data() + offset, values.size() * sizeof(T));
    change(values);
    std::memcpy(text.data() + offset, values.data(), values.size() * sizeof(T));
    write(name, text);
    Manifest changed = manifest();
    changed.files[name].checksum = checksum64(std::as_bytes(std::span(text.data(), text.size())));
    write(kManifestFile, formatManifest(changed));
  }
  void expectUnsound(const std::string& what) const {
    const absl::Status status = verify();
    EXPECT_FALSE(status.ok()) << "expected: " << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }

  testing::TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(StoreDamage, IsFound_WhenAnyFileIsMissing) {
  for (const auto& [name, entry] : manifest().files) {
    const std::string saved = content(name);
    std::filesystem::remove(file(name));
    EXPECT_THAT(std::string(openEverything().message()), HasSubstr(name + " is missing"));
    EXPECT_THAT(std::string(verify().message()), HasSubstr(name + " is missing"));
    write(name, saved);
  }
  EXPECT_TRUE(verify().ok());
}

TEST_F(StoreDamage, IsFound_WhenAnyFileIsTruncatedOrLonger) {
  for (const auto& [name, entry] : manifest().files) {
    const std::string saved = content(name);
    for (size_t bytes : {size_t{0}, size_t{70}, saved.size() - 1}) {
      write(name, saved.substr(0, bytes));
      EXPECT_THAT(std::string(openEverything().message()), HasSubstr(name)) << bytes << " bytes left";
    }
    write(name, saved + "x");
    EXPECT_THAT(std::string(openEverything().message()), HasSubstr(name));
    EXPECT_THAT(std::string(verify().message()), HasSubstr(name));
    write(name, saved);
  }
}

TEST_F(StoreDamage, IsFoundByVerify_WhenAnyBitIsFlipped) {
  uint64_t step = 0;
  for (const auto& [name, entry] : manifest().files) {
    const std::string saved = content(name);
    for (int i = 0; i < 2; ++i) {
      std::string flipped = saved;
      const size_t at = (++step * 7919) % flipped.size();
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (step % 8)));
      write(name, flipped);
      EXPECT_THAT(std::string(verify().message()), HasSubstr(name)) << "byte " << at;
    }
    write(name, saved);
  }
}

TEST_F(StoreDamage, IsFoundAtOpening_WhenGraphJsonIsChanged) {
  const std::string saved = content(kManifestFile);
  for (size_t at = 0; at < saved.size(); at += 29) {
    std::string flipped = saved;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    write(kManifestFile, flipped);
    const auto store = GraphStore::open(path_);
    ASSERT_FALSE(store.ok()) << "byte " << at;
    EXPECT_THAT(std::string(store.status().message()), HasSubstr("graph.json"));
  }
  for (size_t bytes = 0; bytes + 1 < saved.size(); bytes += 101) {
    write(kManifestFile, saved.substr(0, bytes));
    EXPECT_FALSE(GraphStore::open(path_).ok()) << bytes << " bytes";
  }
}

TEST_F(StoreDamage, RefusesANewerVersion_AndSaysSo) {
  std::string text = content(kManifestFile);
  const std::string version = "\"version\": 2";
  text.replace(text.find(version), version.size(), "\"version\": 3");
  write(kManifestFile, text);
  const auto store = GraphStore::open(path_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()),
              HasSubstr("graph.json: format version 3 is newer than this build reads (2); update Farhop"));
}

TEST_F(StoreDamage, RefusesADirectoryThatIsNoStore) {
  EXPECT_THAT(std::string(GraphStore::open(directory_.path()).status().message()),
              HasSubstr("no finished graph store"));
  write(kManifestFile, "{\"format\": \"something else\", \"version\": 1}");
  EXPECT_THAT(std::string(GraphStore::open(path_).status().message()), HasSubstr("not a Farhop graph store"));
}

TEST_F(StoreDamage, RefusesAFileOfAnotherPartition) {
  const std::string own = content("part-00000/nodes/user/orig_ids.npy");
  const std::string other = content("part-00001/edges/user.likes.item/indptr.npy");
  write("part-00000/nodes/user/orig_ids.npy", other);
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr("part-00000/nodes/user/orig_ids.npy"));
}

TEST_F(StoreDamage, FeaturesOfAnotherShapeOrType_AreRefused) {
  const std::string name = "part-00000/nodes/user/feat/x.npy";
  std::string text = content(name);
  text.replace(text.find("<f4"), 3, "<i4");
  write(name, text);
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr("holds int32 of shape"));
}

TEST_F(StoreDamage, VerifyFindsRowsThatEndBeforeTheyBegin) {
  forge<uint64_t>("part-00000/edges/user.likes.item/indptr.npy", [](auto v) { v[1] = v.back() + 5; });
  expectUnsound("user.likes.item/indptr.npy: row 0 ends before it begins or after the last edge");
}

TEST_F(StoreDamage, VerifyFindsNeighborsOutOfRange) {
  forge<uint32_t>("part-00001/edges/user.follows.user/neighbors.npy", [](auto v) { v[3] = 30; });
  expectUnsound("user.follows.user/neighbors.npy: gid 30 at 3 is out of range (30 nodes)");
}

TEST_F(StoreDamage, VerifyFindsUnsortedNeighbors) {
  forge<uint64_t>("part-00000/edges/user.follows.user/edge_ids.npy",
                  [](auto v) { std::reverse(v.begin(), v.end()); });
  forge<uint32_t>("part-00000/edges/user.follows.user/neighbors.npy",
                  [](auto v) { std::reverse(v.begin(), v.end()); });
  forge<int64_t>("part-00000/edges/user.follows.user/times.npy",
                 [](auto v) { std::reverse(v.begin(), v.end()); });
  expectUnsound("is not sorted by (time, original id, edge id)");
}

TEST_F(StoreDamage, VerifyFindsEdgesThatOccurTwiceOrNever) {
  forge<uint64_t>("part-00000/edges/item.similar.item/edge_ids.npy", [](auto v) { v[0] = v[1]; });
  expectUnsound("occurs twice");
  forge<uint64_t>("part-00000/edges/item.similar.item/edge_ids.npy", [](auto v) { v[0] = 1000; });
  expectUnsound("edge id 1000 at 0 is out of range (50 edges)");
}

TEST_F(StoreDamage, VerifyFindsReverseEdgesThatMirrorNothing) {
  // Exchanges the edge ids of two edges of one row with different neighbours. Order and completeness stay
  // right; only the comparison with the forward relation can tell.
  const auto store = GraphStore::open(path_).value();
  const int reverse = store->schema().relationIndex("rev_follows").value();
  uint64_t edge = 0;
  {
    const GraphShard shard = store->openPartition(0).value();
    const RelationShard& csr = shard.relation(reverse);
    for (uint64_t row = 0; row < csr.rows() && edge == 0; ++row) {
      for (uint64_t i = csr.indptr[row] + 1; i < csr.indptr[row + 1]; ++i) {
        if (csr.neighbors32[i - 1] != csr.neighbors32[i]) edge = i;
      }
    }
  }
  ASSERT_GT(edge, 0u);
  forge<uint64_t>("part-00000/edges/user.rev_follows.user/edge_ids.npy",
                  [&](auto v) { std::swap(v[edge - 1], v[edge]); });
  // Times and weights of the two belong to other edges now, which is told too.
  EXPECT_EQ(std::string(verify().message()).find(
                path_ + ": user:rev_follows:user does not hold the edges of user:follows:user turned round"),
            0u);
}

TEST_F(StoreDamage, VerifyFindsIdMapsThatDisagree) {
  forge<uint64_t>("global/user/gid.npy", [](auto v) { std::swap(v[2], v[3]); });
  expectUnsound("global/user/gid.npy: original id 2 maps to gid");
}

TEST_F(StoreDamage, VerifyFindsOriginalIdsOutOfOrder) {
  forge<uint64_t>("part-00000/nodes/item/orig_ids.npy", [](auto v) { std::swap(v[0], v[1]); });
  expectUnsound("part-00000/nodes/item/orig_ids.npy");
}

TEST_F(StoreDamage, VerifyFindsOriginalIdsOutOfRange) {
  forge<uint64_t>("part-00000/nodes/item/orig_ids.npy", [](auto v) { v.back() = 1 << 20; });
  expectUnsound("part-00000/nodes/item/orig_ids.npy: original id 1048576");
}

TEST_F(StoreDamage, OpeningRefusesRowsThatLeaveTheEdges) {
  const std::string name = "part-00000/edges/user.follows.user/indptr.npy";
  const std::string saved = content(name), savedManifest = content(kManifestFile);
  for (uint64_t wrong : {uint64_t{1} << 40, ~uint64_t{0}}) {
    forge<uint64_t>(name, [&](auto v) { v[3] = wrong; });
    EXPECT_THAT(std::string(openEverything().message()),
                HasSubstr(name + ": row 2 ends before it begins or after the last edge; copy it again"));
  }
  forge<uint64_t>(name, [](auto v) { std::fill(v.begin() + 1, v.end() - 1, uint64_t{0}); });
  EXPECT_TRUE(openEverything().ok()) << "rows without edges are fine";
  forge<uint64_t>(name, [](auto v) {
    v[4] = 2;
    v[5] = 1;
  });
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr(name + ": row 4 ends before it begins"));
  write(name, saved);
  write(kManifestFile, savedManifest);
  EXPECT_TRUE(openEverything().ok());
}

TEST_F(StoreDamage, OpeningRefusesSeedsOutOfRange) {
  const std::string name = "part-00001/nodes/user/split/test.npy";
  for (uint64_t wrong : {uint64_t{0}, uint64_t{1} << 50}) {
    forge<uint64_t>(name, [&](auto v) { v[0] = wrong; });
    EXPECT_THAT(std::string(openEverything().message()),
                HasSubstr(absl::StrCat(name, ": seed ", wrong, " at 0 is not owned by partition 1")));
  }
}

TEST_F(StoreDamage, OpeningRefusesSeedsOutOfOrder) {
  const std::string name = "part-00000/nodes/user/split/train.npy";
  forge<uint64_t>(name, [](auto v) { std::swap(v[1], v[2]); });
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr(name + ": seeds 1 and 2 are not ascending"));
}

TEST_F(StoreDamage, GlobalSeedsOutOfRangeOrOrder_AreRefusedEachTime) {
  const std::string name = "global/user/split/train.npy";
  forge<uint64_t>(name, [](auto v) { v.back() = 30; });
  const auto store = GraphStore::open(path_).value();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(std::string(store->splitOriginalIds("train", 0).status().message()),
                HasSubstr(" is out of range (30 nodes)"));
  }
  forge<uint64_t>(name, [](auto v) { v.back() = 0; });
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr("are not ascending; copy it again"));
}

TEST_F(StoreDamage, APipeInTheFilesPlace_DoesNotBlock) {
  const std::string name = "part-00000/nodes/user/orig_ids.npy";
  std::filesystem::remove(file(name));
  ASSERT_EQ(::mkfifo(file(name).c_str(), 0600), 0);
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr(name + " is not a regular file"));
  EXPECT_THAT(std::string(verify().message()), HasSubstr(name + " is not a regular file"));
}

TEST_F(StoreDamage, VerifyFindsSeedsOfOtherPartitions) {
  forge<uint64_t>("part-00000/nodes/user/split/train.npy", [](auto v) { v.back() = 29; });
  expectUnsound("part-00000/nodes/user/split/train.npy: seed 29 at ");
}

TEST_F(StoreDamage, VerifyFindsWrongCountsInGraphJson) {
  Manifest changed = manifest();
  ++changed.haloNodes[1];
  --changed.remoteEdges[0][0];
  write(kManifestFile, formatManifest(changed));
  expectUnsound("halo nodes, not");
  expectUnsound("remote edges of user:follows:user, not");
}

TEST_F(StoreDamage, VerifyFindsTimesThatTheFeaturesDoNotSay) {
  // Later than all: the row stays sorted.
  forge<int64_t>("part-00000/edges/user.likes.item/times.npy", [](auto v) { v.back() = 1000; });
  expectUnsound("part-00000/edges/user.likes.item/times.npy: edge ");
  expectUnsound("has time 1000, but its features say ");
}

TEST_F(StoreDamage, VerifyFindsReverseTimesAndWeightsThatAreNotTheEdges) {
  forge<int64_t>("part-00001/edges/user.rev_follows.user/times.npy", [](auto v) { v.back() += 1000; });
  expectUnsound("the times of user:rev_follows:user (edges/user.rev_follows.user/times.npy) are not those of the edges "
                "of user:follows:user");
  forge<float>("part-00000/edges/item.rev_likes.user/weights.npy", [](auto v) { v[1] += 1; });
  expectUnsound("the weights of item:rev_likes:user (edges/item.rev_likes.user/weights.npy) are not those");
}

TEST_F(StoreDamage, VerifyFindsWeightsThatAreNone) {
  forge<float>("part-00000/edges/user.follows.user/feat/w.npy", [](auto v) { v[2] = -1; });
  expectUnsound("user.follows.user/feat/w.npy: edge ");
  expectUnsound("at 2 has weight -1, which is negative, infinite or not a number");
}

TEST_F(StoreDamage, VerifyFindsWrongDegrees) {
  forge<uint32_t>("global/user.likes.item/in_degree.npy", [](auto v) { ++v[4]; });
  expectUnsound("global/user.likes.item/in_degree.npy: node 4 has ");
  forge<uint32_t>("global/user.likes.item/out_degree.npy", [](auto v) { --v[0]; });
  expectUnsound("global/user.likes.item/out_degree.npy: node 0 has ");
}

TEST_F(StoreDamage, VerifyFindsGlobalOriginalIdsThatDisagree) {
  forge<uint32_t>("global/item/orig_ids.npy", [](auto v) { std::swap(v[3], v[9]); });
  expectUnsound("global/item/orig_ids.npy: gid 3 has original id ");
}

TEST_F(StoreDamage, VerifyFindsSeedEdgesAndLabelsThatDisagree) {
  forge<int64_t>("part-00001/edges/user.follows.user/split/test.labels.npy", [](auto v) { v[1] = 7; });
  expectUnsound("part-00001/edges/user.follows.user/split/test.labels.npy: label 1 is not that of seed ");
  forge<uint64_t>("global/user.follows.user/split/train.npy", [](auto v) { std::swap(v[0], v[2]); });
  expectUnsound("of global/user.follows.user/split/train.npy at ");
}

TEST_F(StoreDamage, VerifyFindsCachedRowsThatAreNotTheOwners) {
  forge<float>("part-00001/nodes/user/cache/feat/x.npy", [](auto v) { v[5] += 1; });
  expectUnsound("part-00001/nodes/user/cache/feat/x.npy: row 1 (gid ");
  expectUnsound(" of part-00000/nodes/user/feat/x.npy");
}

TEST_F(StoreDamage, CachedNodesThatAreOwnOrOutOfRangeOrOrder_AreRefused) {
  const std::string name = "part-00000/nodes/user/cache/gids.npy";
  const std::string saved = content(name), savedManifest = content(kManifestFile);
  const auto refusal = [&](const std::function<void(std::span<uint32_t>)>& change) {
    write(name, saved);
    write(kManifestFile, savedManifest);
    forge<uint32_t>(name, change);
    return std::string(openEverything().message());
  };
  EXPECT_THAT(refusal([](auto v) { v[0] = 0; }), HasSubstr(name + ": gid 0 at 0 is the partition's own; copy it again"));
  EXPECT_THAT(refusal([](auto v) { v.back() = 30; }), HasSubstr("gid 30 at 3 is out of range (30 nodes)"));
  EXPECT_THAT(refusal([](auto v) { v[2] = v[1]; }), HasSubstr("gids 1 and 2 are not ascending"));
  EXPECT_EQ(refusal([](auto) {}), "");
}

TEST_F(StoreDamage, SeedEdgesOutOfRange_AreRefused) {
  const std::string global = "global/user.follows.user/split/train.npy";
  forge<uint64_t>(global, [](auto v) { v[5] = 30; });
  EXPECT_THAT(std::string(openEverything().message()),
              HasSubstr(global + ": destination 30 of seed 2 is out of range (30 nodes); copy it again"));
  const std::string own = "part-00000/edges/user.follows.user/split/train.npy";
  forge<uint64_t>(own, [](auto v) { v[3] = 29; });
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr(own + ": destination 29 of seed 1 is not owned"));
  forge<uint64_t>(own, [](auto v) { v[2] = uint64_t{1} << 40; v[3] = 0; });
  EXPECT_THAT(std::string(openEverything().message()), HasSubstr("source 1099511627776 of seed 1 is out of range"));
}

}  // namespace
}  // namespace farhop::partition
