// Messages of random walks and induced subgraphs: read back, refused, damaged; what a plan may be.
#include "sampler/walk_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "sampler/subgraph_wire.h"
#include "sampler/tree_nodes.h"
#include "sampler/walk_kernels.h"
#include "sampler/walk_service.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::sampler {
namespace {

rpc::Bytes copyOf(const rpc::Bytes& bytes) {
  rpc::Bytes copy = rpc::Bytes::allocate(bytes.size());
  if (bytes.size() > 0) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

rpc::Bytes resized(const rpc::Bytes& bytes, size_t size) {
  rpc::Bytes other = rpc::Bytes::allocate(size);
  if (size > 0) std::memset(other.data(), 0, size);
  if (std::min(size, bytes.size()) > 0) std::memcpy(other.data(), bytes.data(), std::min(size, bytes.size()));
  return other;
}

std::vector<rpc::Bytes> arrayOf(rpc::Bytes bytes) {
  std::vector<rpc::Bytes> arrays;
  arrays.push_back(std::move(bytes));
  return arrays;
}

// Users and items in two partitions, of which this machine owns the first.
class WalkWire : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    farhop::testing::FixtureOptions fixture;
    fixture.heterogeneous = true;
    directory_ = std::make_unique<farhop::testing::TemporaryDirectory>();
    farhop::testing::writeFixtureStore(fixture, 2, *directory_ / "store");
  }
  static void TearDownTestSuite() { directory_.reset(); }
  void SetUp() override {
    auto store = partition::GraphStore::open(*directory_ / "store");
    ASSERT_TRUE(store.ok()) << store.status();
    auto graph = PartitionedGraph::open(*store, 0, 2);
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = *graph;
  }

  StepRequest steps() const { return {{1, true, 0}, 99, 4, 3, {{0, 4}}, {0, 1, 2, 3}, {7, 8, 9, 10}}; }
  AdjacencyRequest adjacency() const { return {0, {{0, 3}}, {0, 1, 2}, {5, 6, 7}}; }
  SubgraphRequest subgraph() const { return {true, {{0, 0, 3, 0}, {1, 0, 2, 0}}, {0, 1, 2, 0, 1}, {}, {}}; }
  std::vector<PodVector<uint64_t>> nodes() const { return {{0, 1, 2, 40}, {0, 1}}; }
  PositionsByType positions() const {
    PositionsByType positions;
    for (const auto& gids : nodes()) positions.emplace_back(std::span<const uint64_t>(gids.data(), gids.size()));
    return positions;
  }

  // The same where seeds are disjoint and have times.
  SubgraphRequest timedTrees() const {
    SubgraphRequest request = subgraph();
    request.trees = {0, 1, 1, 2, 0};
    request.times = {5, -1, 7, 7, 9};
    return request;
  }
  std::vector<PodVector<uint32_t>> trees() const { return {{0, 1, 1, 0}, {2, 0}}; }
  bool fits(const SubgraphRequest& request, std::span<const rpc::Bytes> reply) const {
    const std::vector<uint64_t> setSizes = {4, 2};
    std::vector<std::vector<DrawSlice>> slices(3, std::vector<DrawSlice>(2));
    const auto view = viewSubgraphReply(request, reply, setSizes, *graph_);
    return view.ok() && sliceInduced(request, *view, setSizes, *graph_, &slices).ok();
  }

  static std::unique_ptr<farhop::testing::TemporaryDirectory> directory_;
  std::shared_ptr<const PartitionedGraph> graph_;
};

std::unique_ptr<farhop::testing::TemporaryDirectory> WalkWire::directory_;

TEST_F(WalkWire, ReadsBackWhatItWrote) {
  auto step = decodeStepRequest(arrayOf(encodeStepRequest(steps())), *graph_);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->rows, steps().rows);
  EXPECT_EQ(step->walks, steps().walks);
  EXPECT_TRUE(step->step.weighted && step->step.relation == 1 && step->stepKey == 99 && step->firstTry == 4 && step->tries == 3);
  PodVector<uint64_t> gids;
  ASSERT_TRUE(decodeStepReply(*step, arrayOf(*serveSteps(*step, *graph_)), *graph_, &gids).ok());
  EXPECT_EQ(gids.size(), 12u);

  auto asked = decodeAdjacencyRequest(arrayOf(encodeAdjacencyRequest(adjacency(), *graph_)), *graph_);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->gids, adjacency().gids);
  PodVector<uint8_t> isNeighbor;
  EXPECT_TRUE(decodeAdjacencyReply(*asked, arrayOf(*serveAdjacency(*asked, *graph_)), &isNeighbor).ok());

  auto rows = decodeSubgraphRows(encodeSubgraphRows(subgraph()), *graph_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->rows, subgraph().rows);
  auto sets = decodeNodeSets(encodeNodeSets(nodes(), {}, false, *graph_), false, *graph_);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_TRUE(nodes()[0] == (*sets)[0] && nodes()[1] == (*sets)[1]);
  const auto reply = serveSubgraph(*rows, positions(), *graph_);
  EXPECT_TRUE(fits(*rows, *reply));
}

TEST_F(WalkWire, ReadsBackTreesAndTimes) {
  const auto rows = decodeSubgraphRows(encodeSubgraphRows(timedTrees()), *graph_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(rows->rows == timedTrees().rows && rows->trees == timedTrees().trees && rows->times == timedTrees().times);
  const rpc::Bytes bytes = encodeNodeSets(nodes(), trees(), true, *graph_);
  const auto sets = decodeNodeSets(bytes, true, *graph_);
  ASSERT_TRUE(sets.ok()) << sets.status();
  for (size_t type = 0; type < 2; ++type) {
    for (size_t i = 0; i < nodes()[type].size(); ++i) {
      EXPECT_EQ((*sets)[type][i], treeNode(trees()[type][i], nodes()[type][i]));
    }
  }
  EXPECT_FALSE(decodeNodeSets(bytes, false, *graph_).ok());  // whether there are trees is said by the rows
  const PositionsByType of(sets->begin(), sets->end());
  EXPECT_TRUE(fits(*rows, *serveSubgraph(*rows, of, *graph_)));
  auto tooMany = trees();
  tooMany[1][0] = kMaxTrees;
  EXPECT_FALSE(decodeNodeSets(encodeNodeSets(nodes(), tooMany, true, *graph_), true, *graph_).ok());
}

TEST_F(WalkWire, InducesNoMoreThanAReplyHolds) {
  const std::vector<rpc::Bytes> reply = *serveSubgraph(subgraph(), positions(), *graph_);
  const uint64_t bytes = reply[0].size() + reply[1].size();
  EXPECT_TRUE(serveSubgraph(subgraph(), positions(), *graph_, bytes).ok());
  const absl::Status refused = serveSubgraph(subgraph(), positions(), *graph_, bytes - 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(refused.message()).find("use smaller batches"), std::string::npos) << refused;
}

TEST_F(WalkWire, AnswersNeighborhoodLikeTheRows) {
  const auto view = graph_->view<uint32_t>(0, 0);
  AdjacencyRequest request{0, {{0, 0}}, {}, {}};
  for (uint32_t row = 0; row < view.rows; ++row) {
    for (uint64_t gid = 0; gid < 60; ++gid) {
      request.rows.push_back(row);
      request.gids.push_back(gid);
    }
  }
  request.runs[0].count = static_cast<uint32_t>(request.rows.size());
  const rpc::Bytes reply = *serveAdjacency(request, *graph_);
  for (size_t i = 0; i < request.rows.size(); ++i) {
    const uint32_t* from = view.neighbors + view.indptr[request.rows[i]];
    const uint32_t* to = view.neighbors + view.indptr[request.rows[i] + 1];
    ASSERT_EQ(reply.as<uint8_t>()[i] != 0, std::find(from, to, request.gids[i]) != to);
  }
}

TEST_F(WalkWire, RefusesAnyOtherLength) {
  const auto check = [&](const rpc::Bytes& valid, auto&& accepts) {
    EXPECT_TRUE(accepts(copyOf(valid)));
    for (size_t bytes = 0; bytes < valid.size() + 8; ++bytes) {
      if (bytes == valid.size()) continue;
      EXPECT_FALSE(accepts(resized(valid, bytes))) << bytes << " of " << valid.size();
    }
  };
  check(encodeStepRequest(steps()), [&](rpc::Bytes b) { return decodeStepRequest(arrayOf(std::move(b)), *graph_).ok(); });
  check(encodeAdjacencyRequest(adjacency(), *graph_),
        [&](rpc::Bytes b) { return decodeAdjacencyRequest(arrayOf(std::move(b)), *graph_).ok(); });
  for (const SubgraphRequest& request : {subgraph(), timedTrees()}) {
    check(encodeSubgraphRows(request), [&](rpc::Bytes b) { return decodeSubgraphRows(b, *graph_).ok(); });
  }
  check(encodeNodeSets(nodes(), trees(), true, *graph_), [&](rpc::Bytes b) { return decodeNodeSets(b, true, *graph_).ok(); });
  check(encodeNodeSets(nodes(), {}, false, *graph_), [&](rpc::Bytes b) { return decodeNodeSets(b, false, *graph_).ok(); });
  PodVector<uint64_t> gids;
  PodVector<uint8_t> isNeighbor;
  check(*serveSteps(steps(), *graph_),
        [&](rpc::Bytes b) { return decodeStepReply(steps(), arrayOf(std::move(b)), *graph_, &gids).ok(); });
  check(*serveAdjacency(adjacency(), *graph_),
        [&](rpc::Bytes b) { return decodeAdjacencyReply(adjacency(), arrayOf(std::move(b)), &isNeighbor).ok(); });
  const std::vector<rpc::Bytes> reply = *serveSubgraph(subgraph(), positions(), *graph_);
  ASSERT_GT(reply[1].size(), 0u);
  for (size_t which : {0, 1}) {
    check(reply[which], [&](rpc::Bytes b) {
      std::vector<rpc::Bytes> arrays;
      arrays.push_back(copyOf(reply[0]));
      arrays.push_back(copyOf(reply[1]));
      arrays[which] = std::move(b);
      return fits(subgraph(), arrays);
    });
  }
  EXPECT_FALSE(decodeStepRequest({}, *graph_).ok());
  EXPECT_FALSE(decodeAdjacencyRequest({}, *graph_).ok());
  EXPECT_FALSE(fits(subgraph(), {}));
}

TEST_F(WalkWire, RefusesWhatDoesNotFitTheGraph) {
  const auto refusesStep = [&](auto&& spoil) {
    StepRequest request = steps();
    spoil(request);
    return !decodeStepRequest(arrayOf(encodeStepRequest(request)), *graph_).ok();
  };
  EXPECT_FALSE(refusesStep([](StepRequest&) {}));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.step.relation = 3; }));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.step.weight = 1; }));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.tries = 0; }));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.tries = kMaxStepTries + 1; }));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.rows[0] = 1'000'000; }));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.runs[0].count = 3; }));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.runs[0].count = 5; }));
  EXPECT_TRUE(refusesStep([](StepRequest& r) { r.runs[0].partition = 2; }));
  StepRequest foreign = steps();
  foreign.runs[0].partition = 1;
  EXPECT_EQ(decodeStepRequest(arrayOf(encodeStepRequest(foreign)), *graph_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // A short request must not make the owner produce gigabytes.
  foreign = steps();
  foreign.tries = kMaxStepTries;
  foreign.rows.assign(kMaxCandidates / kMaxStepTries + 1, 0);
  foreign.walks = foreign.rows;
  foreign.runs[0] = {0, static_cast<uint32_t>(foreign.rows.size())};
  EXPECT_FALSE(decodeStepRequest(arrayOf(encodeStepRequest(foreign)), *graph_).ok());

  rpc::Bytes step = encodeStepRequest(steps());
  const uint32_t neither = 2;
  std::memcpy(step.data() + offsetof(StepRequestHeader, weighted), &neither, sizeof(neither));
  EXPECT_FALSE(decodeStepRequest(arrayOf(std::move(step)), *graph_).ok());
  StepRequest stored = steps();
  stored.step.weight = kStoredWeights;  // which this graph has not
  EXPECT_FALSE(decodeStepRequest(arrayOf(encodeStepRequest(stored)), *graph_).ok());
  rpc::Bytes asked = encodeAdjacencyRequest(adjacency(), *graph_);
  const uint32_t unknown = 7;
  std::memcpy(asked.data(), &unknown, sizeof(unknown));  // the relation
  EXPECT_FALSE(decodeAdjacencyRequest(arrayOf(std::move(asked)), *graph_).ok());
  SubgraphRequest rows = subgraph();
  rows.runs[1].partition = 1;
  EXPECT_EQ(decodeSubgraphRows(encodeSubgraphRows(rows), *graph_).status().code(), absl::StatusCode::kFailedPrecondition);
  rows = subgraph();
  rows.runs[0].nodeType = 2;
  EXPECT_FALSE(decodeSubgraphRows(encodeSubgraphRows(rows), *graph_).ok());
  rows = subgraph();
  rows.rows[4] = 1'000;
  EXPECT_FALSE(decodeSubgraphRows(encodeSubgraphRows(rows), *graph_).ok());
  auto beyond = nodes();
  beyond[1].push_back(1'000);
  EXPECT_FALSE(decodeNodeSets(encodeNodeSets(beyond, {}, false, *graph_), false, *graph_).ok());
}

// Random damage: an answer, never a crash or a read out of bounds (ASan runs this).
TEST_F(WalkWire, AnswersAnyDamage) {
  std::mt19937 random(99);
  const auto damaged = [&](const rpc::Bytes& valid) {
    rpc::Bytes bytes = random() % 8 == 0 ? resized(valid, random() % (valid.size() + 16)) : copyOf(valid);
    for (uint32_t edits = random() % 3; edits > 0 && bytes.size() > 0; --edits) {
      bytes.data()[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    return bytes;
  };
  const rpc::Bytes step = encodeStepRequest(steps()), asked = encodeAdjacencyRequest(adjacency(), *graph_);
  const rpc::Bytes rows = encodeSubgraphRows(subgraph()), sets = encodeNodeSets(nodes(), {}, false, *graph_);
  const rpc::Bytes stepReply = *serveSteps(steps(), *graph_), askedReply = *serveAdjacency(adjacency(), *graph_);
  const std::vector<rpc::Bytes> subgraphReply = *serveSubgraph(subgraph(), positions(), *graph_);
  PodVector<uint64_t> gids;
  PodVector<uint8_t> isNeighbor;
  const rpc::Bytes treeRows = encodeSubgraphRows(timedTrees()), treeSets = encodeNodeSets(nodes(), trees(), true, *graph_);
  int accepted = 0;
  for (int round = 0; round < 3'000; ++round) {
    auto decodedTrees = decodeNodeSets(damaged(treeSets), true, *graph_);
    if (auto decoded = decodeSubgraphRows(damaged(treeRows), *graph_); decoded.ok() && decodedTrees.ok()) {
      const PositionsByType of(decodedTrees->begin(), decodedTrees->end());
      accepted += serveSubgraph(*decoded, of, *graph_).ok() ? 1 : 0;
    }
    if (auto decoded = decodeStepRequest(arrayOf(damaged(step)), *graph_); decoded.ok()) {
      accepted += serveSteps(*decoded, *graph_).ok() ? 1 : 0;
    }
    if (auto decoded = decodeAdjacencyRequest(arrayOf(damaged(asked)), *graph_); decoded.ok()) {
      accepted += serveAdjacency(*decoded, *graph_).ok() ? 1 : 0;
    }
    auto decodedSets = decodeNodeSets(damaged(sets), false, *graph_);
    if (auto decoded = decodeSubgraphRows(damaged(rows), *graph_); decoded.ok() && decodedSets.ok()) {
      const PositionsByType of(decodedSets->begin(), decodedSets->end());
      accepted += serveSubgraph(*decoded, of, *graph_).ok() ? 1 : 0;
    }
    (void)decodeStepReply(steps(), arrayOf(damaged(stepReply)), *graph_, &gids);
    (void)decodeAdjacencyReply(adjacency(), arrayOf(damaged(askedReply)), &isNeighbor);
    std::vector<rpc::Bytes> reply;
    for (const rpc::Bytes& array : subgraphReply) reply.push_back(damaged(array));
    (void)fits(subgraph(), reply);
  }
  EXPECT_GT(accepted, 1'000);
}

// Try t of a walk is the same however many are drawn at once, and whatever stands beside it.
TEST_F(WalkWire, TriesDoNotDependOnEachOther) {
  const auto view = graph_->view<uint32_t>(0, 0);
  std::vector<uint32_t> rows, walks;
  for (uint32_t i = 0; i < 200; ++i) {
    rows.push_back(i % static_cast<uint32_t>(view.rows));
    walks.push_back(i * 3);
  }
  std::vector<uint32_t> many(200 * 9);
  proposeSteps<uint32_t>(view, rows, walks, {5, 2, 9}, many.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (uint32_t t = 0; t < 9; ++t) {
      uint32_t one = 0;
      proposeSteps<uint32_t>(view, std::span(rows).subspan(i, 1), std::span(walks).subspan(i, 1), {5, 2 + t, 1}, &one);
      ASSERT_EQ(one, many[i * 9 + t]);
    }
  }
}

TEST_F(WalkWire, PlansThatMakeNoSenseAreRefused_WithTheReason) {
  const auto reason = [&](const WalkPlan& plan) { return std::string(checkWalkPlan(plan, *graph_).message()); };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(reason({{{0}}, 5, 0.5, 2, 0.5}), "");
  EXPECT_EQ(reason({{{1}}, 1}), "");
  EXPECT_TRUE(contains(reason({{}, 5}), "no relation"));
  EXPECT_TRUE(contains(reason({{{9}}, 5}), "relation 9 does not exist"));
  EXPECT_TRUE(contains(reason({{{0}}, 0}), "0 steps"));
  EXPECT_TRUE(contains(reason({{{0}}, kMaxWalkLength + 1}), "steps"));
  EXPECT_TRUE(contains(reason({{{0, true, 5}}, 5}), "no number 5"));
  EXPECT_TRUE(contains(reason({{{1}}, 2}), "user:likes:item"));  // a user is no item
  EXPECT_TRUE(contains(reason({{{0}, {1}}, 2}), "does not chain"));
  EXPECT_TRUE(contains(reason({{{1}, {0}}, 2, 0.5}), "does not chain"));  // a return must find the type of the start
  for (double restart : {-0.1, 1.0, std::nan("")}) EXPECT_TRUE(contains(reason({{{0}}, 5, restart}), "[0, 1)"));
  for (double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(contains(reason({{{0}}, 5, 0, bad, 1}), "p is"));
    EXPECT_TRUE(contains(reason({{{0}}, 5, 0, 1, bad}), "q is"));
  }
  EXPECT_TRUE(contains(reason({{{0}}, 5, 0, 0.01, 100}), "too far apart"));
  EXPECT_TRUE(contains(reason({{{0}, {0}}, 5, 0, 2, 1}), "metapath of 2"));
  EXPECT_TRUE(contains(reason({{{1}}, 1, 0, 2, 1}), "user:likes:item"));
}

}  // namespace
}  // namespace farhop::sampler
