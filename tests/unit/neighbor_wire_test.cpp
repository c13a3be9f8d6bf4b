#include "sampler/neighbor_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "sampler/edge_lookup.h"
#include "sampler/neighbor_service.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::sampler {
namespace {

std::vector<rpc::Bytes> received(const std::vector<rpc::OutArray>& sent) {
  std::vector<rpc::Bytes> arrays;
  for (const rpc::OutArray& array : sent) {
    arrays.push_back(rpc::Bytes::allocate(array.bytes));
    if (array.bytes > 0) std::memcpy(arrays.back().data(), array.data, array.bytes);
  }
  return arrays;
}

class NeighborWire : public ::testing::Test {
 protected:
  void SetUp() override {
    farhop::testing::FixtureOptions fixture;
    fixture.heterogeneous = true;
    farhop::testing::writeFixtureStore(fixture, 2, directory_ / "store");
    auto store = partition::GraphStore::open(directory_ / "store");
    ASSERT_TRUE(store.ok()) << store.status();
    auto graph = PartitionedGraph::open(*store, 0, 2);
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = *graph;
  }

  NeighborRequest validRequest() const {
    NeighborRequest request;
    request.wantEdgeIds = true;
    request.draws = {{0, 3, 11}, {1, -1, 12}, {2, 2, 13, static_cast<uint32_t>(DrawKind::kWeighted), 0}};
    request.runs = {{0, 0, 4, 0}, {1, 0, 3, 0}};
    request.rows = {0, 1, 2, 3, 0, 1, 2};
    return request;
  }

  farhop::testing::TemporaryDirectory directory_;
  std::shared_ptr<const PartitionedGraph> graph_;
};

TEST_F(NeighborWire, ReadsBackWhatItWrote) {
  auto decoded = decodeNeighborRequest(received(encodeNeighborRequest(validRequest())), *graph_);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->wantEdgeIds);
  EXPECT_EQ(decoded->rows, validRequest().rows);
  EXPECT_EQ(decoded->draws[1].fanout, -1);
  const auto reply = received(*serveNeighbors(*decoded, *graph_));
  auto slices = sliceNeighborReply(validRequest(), reply, *graph_);
  ASSERT_TRUE(slices.ok()) << slices.status();
  EXPECT_NE((*slices)[0][0].counts, nullptr);  // follows: user -> user
  EXPECT_EQ((*slices)[0][1].counts, nullptr);  // no items among its destinations
}

// A reply that is cut, or longer than its counts say, or has an array too few, never makes slices.
TEST_F(NeighborWire, RefusesARequestOrReplyOfAnyOtherLength) {
  const NeighborRequest request = validRequest();
  const auto resized = [](std::vector<rpc::Bytes> arrays, size_t which, size_t bytes) {
    rpc::Bytes other = rpc::Bytes::allocate(bytes);
    if (bytes > 0) std::memset(other.data(), 0, bytes);
    if (bytes > 0) std::memcpy(other.data(), arrays[which].data(), std::min(bytes, arrays[which].size()));
    arrays[which] = std::move(other);
    return arrays;
  };
  const auto sent = encodeNeighborRequest(request);
  ASSERT_EQ(sent.size(), 1U);
  for (size_t bytes = 0; bytes < sent[0].bytes + 8; ++bytes) {
    if (bytes == sent[0].bytes) continue;
    EXPECT_FALSE(decodeNeighborRequest(resized(received(sent), 0, bytes), *graph_).ok()) << bytes << " bytes";
  }
  const auto reply = *serveNeighbors(request, *graph_);
  ASSERT_EQ(reply.size(), 2U);
  ASSERT_TRUE(sliceNeighborReply(request, received(reply), *graph_).ok());
  for (size_t words = 0; words < reply[1].bytes / 8 + 2; ++words) {
    if (words == reply[1].bytes / 8) continue;
    EXPECT_FALSE(sliceNeighborReply(request, resized(received(reply), 1, words * 8), *graph_).ok()) << words << " words";
  }
  for (size_t words = 0; words < reply[0].bytes / 4; ++words) {
    EXPECT_FALSE(sliceNeighborReply(request, resized(received(reply), 0, words * 4), *graph_).ok()) << words << " words";
  }
  std::vector<rpc::Bytes> one = received(reply);
  one.pop_back();
  EXPECT_FALSE(sliceNeighborReply(request, one, *graph_).ok());
  EXPECT_FALSE(sliceNeighborReply(request, std::vector<rpc::Bytes>(), *graph_).ok());
}

TEST_F(NeighborWire, CarriesWhatLimitsEachRow) {
  NeighborRequest request = validRequest();
  request.times = {1, -2, 3, std::numeric_limits<int64_t>::min(), 5, 6, 7};
  request.occurrences = {7, 6, 5, 4, 3, 2, 1};
  request.excluded = {{0, 1, 10}, {0, 1, 11}, {0, 3, 12}, {1, 0, 13}, {2, 5, 14}, {2, 6, 15}};
  auto decoded = decodeNeighborRequest(received(encodeNeighborRequest(request)), *graph_);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->times, request.times);
  EXPECT_EQ(decoded->occurrences, request.occurrences);
  const DrawRows first = decoded->rowsOf(0, 0, 4), last = decoded->rowsOf(2, 4, 3);
  EXPECT_EQ(std::vector(first.rows.begin(), first.rows.end()), (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(std::vector(first.occurrences.begin(), first.occurrences.end()), (std::vector<uint32_t>{7, 6, 5, 4}));
  EXPECT_EQ(std::vector(last.times.begin(), last.times.end()), (std::vector<int64_t>{5, 6, 7}));
  ASSERT_EQ(first.excluded.size(), 3U);
  EXPECT_EQ(first.excluded.back().source, 12U);
  ASSERT_EQ(last.excluded.size(), 2U);
  EXPECT_EQ(last.excluded.front().source, 14U);
  EXPECT_EQ(last.excluded.front().row - last.firstRow, 1U);
  EXPECT_TRUE(decoded->rowsOf(1, 4, 3).excluded.empty());
}

// However few rows: hubs may be asked for again and again, and what does not fit a message must not be made first.
TEST_F(NeighborWire, RefusesMoreNeighborsThanAReplyHolds) {
  const auto bytesOf = [](const std::vector<rpc::OutArray>& reply) {
    uint64_t bytes = 0;
    for (const rpc::OutArray& array : reply) bytes += array.bytes;
    return bytes;
  };
  for (uint32_t kind = 0; kind <= static_cast<uint32_t>(kLastDrawKind); ++kind) {
    for (int32_t fanout : {-1, 3, 500}) {
      NeighborRequest request = validRequest();
      request.draws = {{0, fanout, 11, kind, 0}, {1, fanout, 12, kind, 0}};
      const auto reply = serveNeighbors(request, *graph_);
      ASSERT_TRUE(reply.ok()) << reply.status();
      const uint64_t bytes = bytesOf(*reply);
      const auto same = serveNeighbors(request, *graph_, bytes);
      ASSERT_TRUE(same.ok()) << same.status();
      for (size_t i = 0; i < reply->size(); ++i) {
        EXPECT_EQ(std::memcmp((*reply)[i].data, (*same)[i].data, (*reply)[i].bytes), 0);
      }
      const auto refused = serveNeighbors(request, *graph_, bytes - 1);
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << "kind " << kind << ", fanout " << fanout;
    }
  }
  NeighborRequest hub;
  hub.draws = {{0, -1, 11}};
  hub.rows.assign(300'000, 0);
  hub.runs = {{0, 0, 300'000, 0}};
  const std::vector<rpc::Bytes> all = received(*serveNeighbors(hub, *graph_));
  const auto view = graph_->view<uint32_t>(0, 0);
  const size_t degree = view.indptr[1];
  ASSERT_GT(degree * hub.rows.size(), 2 * kEdgesAtOnce);  // in several pieces
  ASSERT_EQ(all[0].size(), (degree + 1) * hub.rows.size() * sizeof(uint32_t));
  for (size_t i = 0; i < degree * hub.rows.size(); i += 997) {
    ASSERT_EQ(all[0].as<uint32_t>()[i], view.neighbors[i % degree]);
  }
  const absl::Status status = serveNeighbors(hub, *graph_, all[0].size() / 2).status();
  for (const char* part : {"user:follows:user", "fanout -1", "300000 nodes", "use smaller batches"}) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  }
  hub.rows.assign(1, 0);
  hub.runs = {{0, 0, 1, 0}};
  EXPECT_FALSE(serveNeighbors(hub, *graph_, degree * sizeof(uint32_t)).ok());  // not drawn at all
}

// Most messages: nothing in 64 bits, so that one array is all that travels.
TEST_F(NeighborWire, RepliesWithOneArray_WhenNeitherEdgeIdsNorWideIdsAreAsked) {
  NeighborRequest request = validRequest();
  request.wantEdgeIds = false;
  const auto reply = received(*serveNeighbors(request, *graph_));
  EXPECT_EQ(reply.size(), 1U);
  EXPECT_TRUE(sliceNeighborReply(request, reply, *graph_).ok());
}

TEST_F(NeighborWire, RefusesWhatDoesNotFitTheGraph) {
  const auto refused = [&](auto&& spoil) {
    NeighborRequest request = validRequest();
    spoil(request);
    return decodeNeighborRequest(received(encodeNeighborRequest(request)), *graph_).status();
  };
  EXPECT_TRUE(refused([](NeighborRequest&) {}).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.draws[0].relation = 3; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.draws[0].fanout = -2; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.draws[0].kind = 77; }).ok());
  const uint32_t weighted = static_cast<uint32_t>(DrawKind::kWeighted);
  EXPECT_TRUE(refused([&](NeighborRequest& r) { r.draws[0].kind = weighted; }).ok());
  EXPECT_FALSE(refused([&](NeighborRequest& r) { r.draws[0].kind = weighted, r.draws[0].weight = 1; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.runs[0].nodeType = 2; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.runs[0].partition = 2; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.runs[0].count = 100; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.runs[0].count = 3; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.rows[0] = 1'000'000; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.excluded = {{3, 0, 1}}; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.excluded = {{0, 7, 1}}; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.excluded = {{1, 0, 1}, {0, 6, 1}}; }).ok());
  EXPECT_FALSE(refused([](NeighborRequest& r) { r.times = {1, 2, 3}; }).ok());
  const absl::Status foreign = refused([](NeighborRequest& r) { r.runs[0].partition = 1; });
  EXPECT_EQ(foreign.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(foreign.message().find("not served by machine 0"), std::string::npos);
}

// With replacement the degree bounds nothing: a short request must not make the owner produce gigabytes.
TEST_F(NeighborWire, RefusesMoreDrawsWithReplacementThanABlockHolds) {
  NeighborRequest request = validRequest();
  request.draws = {{0, 65'536, 11, static_cast<uint32_t>(DrawKind::kUniformWithReplacement), 0}};
  EXPECT_TRUE(decodeNeighborRequest(received(encodeNeighborRequest(request)), *graph_).ok());
  request.draws[0].fanout = 65'537;
  EXPECT_FALSE(decodeNeighborRequest(received(encodeNeighborRequest(request)), *graph_).ok());
  request.draws[0].fanout = 65'536;
  request.rows.assign(32'768, 0);
  request.runs = {{0, 0, 32'768, 0}};
  EXPECT_FALSE(decodeNeighborRequest(received(encodeNeighborRequest(request)), *graph_).ok());
}

// Every pair of nodes of partition 0, against the relation itself.
TEST_F(NeighborWire, AnswersWhichPairsAreEdges) {
  const auto& edges = graph_->shard(0)->relation(1);  // user:likes:item
  EdgeLookupRequest request{1, {}, {}, {}};
  std::vector<uint8_t> expected;
  for (uint32_t row = 0; row < edges.rows(); ++row) {
    for (uint64_t source = 0; source < 60; ++source) {
      const auto* from = edges.neighbors32.data() + edges.indptr[row];
      const auto* to = edges.neighbors32.data() + edges.indptr[row + 1];
      expected.push_back(std::find(from, to, source) != to ? 1 : 0);
      request.sources.push_back(source);
      request.rows.push_back(row);
    }
  }
  request.sources.push_back(uint64_t{1} << 40);  // no node
  request.rows.push_back(0);
  expected.push_back(0);
  const uint32_t count = static_cast<uint32_t>(request.rows.size());
  request.runs = {{0, count - 7}, {0, 7}};
  auto decoded = decodeEdgeLookup(received(encodeEdgeLookup(request)), *graph_);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(serveEdgeLookup(*decoded, *graph_), expected);
  EXPECT_GT(std::count(expected.begin(), expected.end(), 1), 20);
}

// A row of more than 8,192 edges is searched by original id, in partitions whose gids are in another order.
TEST(EdgeLookup, AnswersWhichPairsAreEdges_InLongRows) {
  farhop::testing::TemporaryDirectory directory;
  farhop::testing::FixtureOptions fixture;
  fixture.nodes = 2'000;
  fixture.edges = 500'000;
  fixture.featureDim = 0;
  fixture.edgeFeatures = false;
  farhop::testing::writeFixtureStore(fixture, 3, directory / "store");
  const auto graph = *PartitionedGraph::open(*partition::GraphStore::open(directory / "store"), 0, 1);
  uint64_t asked = 0, found = 0;
  for (uint32_t partition = 0; partition < 3; ++partition) {
    const auto& edges = graph->shard(static_cast<int>(partition))->relation(0);
    for (uint32_t row = 0; row < edges.rows(); ++row) {
      const auto* const from = edges.neighbors32.data() + edges.indptr[row];
      const auto* const to = edges.neighbors32.data() + edges.indptr[row + 1];
      if (to - from <= 8'192) continue;
      EdgeLookupRequest request{0, {{partition, 2'000}}, std::vector<uint64_t>(2'000), std::vector<uint32_t>(2'000, row)};
      for (uint64_t source = 0; source < 2'000; ++source) request.sources[source] = source;
      const std::vector<uint8_t> answers = serveEdgeLookup(request, *graph);
      for (uint64_t source = 0; source < 2'000; ++source, ++asked) {
        ASSERT_EQ(answers[source], std::find(from, to, source) != to ? 1 : 0) << "row " << row << ", source " << source;
        found += answers[source];
      }
    }
  }
  EXPECT_GT(found, 1'000u);
  EXPECT_GT(asked - found, 200u);  // the last tenth of the nodes have no edges
}

TEST_F(NeighborWire, RefusesALookupThatDoesNotFitTheGraph) {
  const auto refused = [&](auto&& spoil) {
    EdgeLookupRequest request{1, {{0, 3}}, {4, 5, 6}, {0, 1, 2}};
    spoil(request);
    return decodeEdgeLookup(received(encodeEdgeLookup(request)), *graph_).status();
  };
  EXPECT_TRUE(refused([](EdgeLookupRequest&) {}).ok());
  EXPECT_FALSE(refused([](EdgeLookupRequest& r) { r.relation = 3; }).ok());
  EXPECT_FALSE(refused([](EdgeLookupRequest& r) { r.runs[0].partition = 2; }).ok());
  EXPECT_FALSE(refused([](EdgeLookupRequest& r) { r.runs[0].count = 2; }).ok());
  EXPECT_FALSE(refused([](EdgeLookupRequest& r) { r.runs[0].count = 4; }).ok());
  EXPECT_FALSE(refused([](EdgeLookupRequest& r) { r.runs.push_back({0, 0xFFFFFFFF}); }).ok());
  EXPECT_FALSE(refused([](EdgeLookupRequest& r) { r.rows[1] = 10'000; }).ok());
  EXPECT_EQ(refused([](EdgeLookupRequest& r) { r.runs[0].partition = 1; }).code(), absl::StatusCode::kFailedPrecondition);
  const auto whole = encodeEdgeLookup({1, {{0, 3}}, {4, 5, 6}, {0, 1, 2}});
  for (size_t bytes = 0; bytes < whole[0].bytes; ++bytes) {
    rpc::OutArray cut = whole[0];
    cut.bytes = bytes;
    EXPECT_FALSE(decodeEdgeLookup(received({cut}), *graph_).ok()) << bytes << " bytes";
  }
}

// Random damage to requests and replies: an answer, never a crash or a read out of bounds (ASan runs this).
TEST_F(NeighborWire, AnswersAnyDamage) {
  std::mt19937 random(99);
  auto request = validRequest();
  request.excluded = {{0, 1, 10}, {0, 1, 11}, {0, 3, 12}, {1, 4, 13}, {2, 5, 14}, {2, 6, 15}};
  const auto sent = encodeNeighborRequest(request);
  const auto reply = *serveNeighbors(request, *graph_);
  const auto damage = [&](std::vector<rpc::Bytes> arrays) {
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      rpc::Bytes& array = arrays[random() % arrays.size()];
      if (array.size() == 0 || random() % 4 == 0) {
        rpc::Bytes other = rpc::Bytes::allocate(random() % 64);
        for (size_t i = 0; i < other.size(); ++i) other.data()[i] = static_cast<std::byte>(random());
        array = std::move(other);
      } else {
        array.data()[random() % array.size()] = static_cast<std::byte>(random());
      }
    }
    return arrays;
  };
  int accepted = 0;
  for (int round = 0; round < 3'000; ++round) {
    auto decoded = decodeNeighborRequest(damage(received(sent)), *graph_);
    if (decoded.ok()) {
      ++accepted;
      (void)serveNeighbors(*decoded, *graph_);
    }
    (void)sliceNeighborReply(request, damage(received(reply)), *graph_);
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace farhop::sampler
