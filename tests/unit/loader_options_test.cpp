// What loaders' options come to, relation by relation.
#include <gtest/gtest.h>

#include <map>

#include "runtime/api/graph_core.h"
#include "runtime/api/loader_options.h"
#include "runtime/api/walk_options.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using sampler::DrawKind;
using Fanouts = std::vector<std::vector<int64_t>>;

// A graph of three relations and, where asked for, their reverses, as one process that owns all of it sees it.
class LoaderOptions : public ::testing::Test {
 protected:
  void open(bool reverse, bool times = true) {
    FixtureOptions fixture;
    fixture.heterogeneous = true;
    fixture.addReverse = reverse;
    fixture.edgeTimes = times;
    fixture.declaredWeights = true;
    writeFixtureStore(fixture, 2, directory_ / (reverse ? "both" : "forward") + (times ? "-timed" : ""));
    auto store = partition::GraphStore::open(directory_ / (reverse ? "both" : "forward") + (times ? "-timed" : ""));
    ASSERT_TRUE(store.ok()) << store.status();
    core_.graph = *sampler::PartitionedGraph::open(*store, 0, 1);
  }
  NeighborLoaderOptions options(Direction direction) {
    NeighborLoaderOptions options;
    options.fanouts = {5, 3};
    options.fanoutsByRelation = {{"likes", {2, 0}}};
    options.direction = direction;
    return options;
  }
  sampler::SamplingOptions made(const NeighborLoaderOptions& options) { return api::samplingOptions(core_, options); }

  void expectRefused(const NeighborLoaderOptions& options, ErrorCode code, const std::string& text) {
    try {
      made(options);
      FAIL() << "no error: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }

  TemporaryDirectory directory_;
  GraphCore core_;
};

// Relations: follows, likes, similar, rev_follows, rev_likes, rev_similar.
TEST_F(LoaderOptions, ApplyByDirection) {
  open(true);
  EXPECT_EQ(made(options(Direction::kAsStored)).fanouts, (Fanouts{{5, 2, 5, 5, 5, 5}, {3, 0, 3, 3, 3, 3}}));
  EXPECT_EQ(made(options(Direction::kIn)).fanouts, (Fanouts{{5, 2, 5, 0, 0, 0}, {3, 0, 3, 0, 0, 0}}));
  EXPECT_EQ(made(options(Direction::kOut)).fanouts, (Fanouts{{0, 0, 0, 5, 2, 5}, {0, 0, 0, 3, 0, 3}}));
  EXPECT_EQ(made(options(Direction::kBoth)).fanouts, (Fanouts{{5, 2, 5, 5, 2, 5}, {3, 0, 3, 3, 0, 3}}));
}

TEST_F(LoaderOptions, ApplyKindsToReverseRelationsToo) {
  open(true);
  NeighborLoaderOptions both = options(Direction::kBoth);
  both.replaceByRelation = {{"follows", true}};
  both.weightByRelation = {{"similar", "w"}};
  const auto kinds = made(both).kinds;
  for (size_t r : {size_t{0}, size_t{3}}) EXPECT_EQ(kinds[r].kind, DrawKind::kUniformWithReplacement);
  for (size_t r : {size_t{1}, size_t{4}}) EXPECT_EQ(kinds[r].kind, DrawKind::kUniform);
  for (size_t r : {size_t{2}, size_t{5}}) EXPECT_EQ(kinds[r].kind, DrawKind::kWeighted);
}

TEST_F(LoaderOptions, RefuseDirectionsThatTheStoreHasNot) {
  open(true);
  NeighborLoaderOptions named = options(Direction::kOut);
  named.fanoutsByRelation = {{"rev_likes", {1, 1}}};
  expectRefused(named, ErrorCode::kInvalidArgument, "name user:likes:item");
  open(false);
  expectRefused(options(Direction::kOut), ErrorCode::kNotFound, "no reverse of user:follows:user");
  expectRefused(options(Direction::kBoth), ErrorCode::kNotFound, "--add-reverse");
  EXPECT_EQ(made(options(Direction::kIn)).fanouts, (Fanouts{{5, 2, 5}, {3, 0, 3}}));
}

TEST_F(LoaderOptions, MakeTemporalSamplingDisjoint) {
  open(true);
  NeighborLoaderOptions temporal = options(Direction::kAsStored);
  temporal.temporal = Temporal::kMostRecent;
  const auto recent = made(temporal);
  EXPECT_TRUE(recent.disjoint && recent.temporal);
  for (const auto& kind : recent.kinds) EXPECT_EQ(kind.kind, DrawKind::kMostRecent);
  temporal.temporal = Temporal::kUniform;
  for (const auto& kind : made(temporal).kinds) EXPECT_EQ(kind.kind, DrawKind::kUniform);
  temporal.labor = Labor::kPoisson;
  for (const auto& kind : made(temporal).kinds) EXPECT_EQ(kind.kind, DrawKind::kLaborPoisson);
}

TEST_F(LoaderOptions, RefuseOneRelationUnderTwoNames) {
  open(true);
  NeighborLoaderOptions twice = options(Direction::kAsStored);
  twice.fanoutsByRelation["user:likes:item"] = {4, 4};
  expectRefused(twice, ErrorCode::kInvalidArgument, "twice, as 'likes' and as 'user:likes:item'");
  twice.direction = Direction::kBoth;
  expectRefused(twice, ErrorCode::kInvalidArgument, "name it once");
  NeighborLoaderOptions weights = options(Direction::kAsStored);
  weights.weightByRelation = {{"likes", "w"}, {"user:likes:item", ""}};
  expectRefused(weights, ErrorCode::kInvalidArgument, "name it once");
  RandomWalkLoaderOptions walks;
  walks.metapath = {"likes", "rev_likes"};
  walks.weightByRelation = weights.weightByRelation;
  EXPECT_THROW(api::walkOptions(core_, walks), Error);
  walks.weightByRelation = {{"likes", "w"}};
  EXPECT_EQ(api::walkOptions(core_, walks).plan.metapath.size(), 2U);
}

TEST_F(LoaderOptions, RefuseSeedsThatNoRelationLeadsTo) {
  open(false);
  const auto refusal = [&](std::map<std::string, std::vector<int64_t>> fanouts, std::vector<int> types,
                           Subgraph subgraph = Subgraph::kSampled) -> std::string {
    NeighborLoaderOptions options;
    options.fanoutsByRelation = std::move(fanouts);
    options.subgraph = subgraph;
    try {
      api::checkSeedsDraw(core_, made(options), types);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string text = refusal({{"likes", {2, 2}}}, {0});
  EXPECT_NE(text.find("'user'"), std::string::npos) << text;
  EXPECT_NE(text.find("relations into it: user:follows:user;"), std::string::npos) << text;
  EXPECT_EQ(refusal({{"likes", {2, 2}}}, {1}), "");
  EXPECT_EQ(refusal({{"likes", {2, 2}}}, {0, 1}), "");  // a seed edge's other end draws
  EXPECT_EQ(refusal({{"follows", {2, 2}}}, {0}), "");
  EXPECT_EQ(refusal({{"likes", {0, 0}}}, {0}), "");
  EXPECT_EQ(refusal({{"likes", {2, 2}}}, {0}, Subgraph::kInduced), "");
}

TEST_F(LoaderOptions, RefuseLayerDependencyBesideImportance) {
  open(true);
  NeighborLoaderOptions importance;
  importance.fanouts = {4};
  importance.importance.emplace();
  importance.importance->metapath = {"follows"};
  EXPECT_TRUE(made(importance).importance.has_value());
  importance.layerDependency = true;
  expectRefused(importance, ErrorCode::kInvalidArgument, "layerDependency needs labor");
}

TEST_F(LoaderOptions, RefuseTemporalSamplingWithoutTimes) {
  open(false, false);
  NeighborLoaderOptions temporal = options(Direction::kAsStored);
  temporal.temporal = Temporal::kUniform;
  expectRefused(temporal, ErrorCode::kNotFound, "times of: none");
  temporal.temporal = Temporal::kOff;
  temporal.disjoint = true;
  temporal.batchSize = (int64_t{1} << 24) + 1;
  expectRefused(temporal, ErrorCode::kInvalidArgument, "use smaller batches");
}

}  // namespace
}  // namespace farhop::testing
