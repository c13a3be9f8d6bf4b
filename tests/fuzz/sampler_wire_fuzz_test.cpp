// Mutated requests for neighbours, features and edges: they are refused, or served within their limits.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/metrics.h"
#include "sampler/bulk_wire.h"
#include "sampler/edge_lookup.h"
#include "sampler/edge_reader.h"
#include "sampler/edge_wire.h"
#include "sampler/feature_service.h"
#include "sampler/neighbor_service.h"
#include "sampler/row_stream.h"
#include "sampler/table_keys.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using sampler::EdgesByIdRequest;
using sampler::PartitionedGraph;

std::vector<rpc::Bytes> received(const std::vector<rpc::OutArray>& sent) {
  std::vector<rpc::Bytes> arrays;
  for (const rpc::OutArray& array : sent) {
    arrays.push_back(rpc::Bytes::allocate(array.bytes));
    if (array.bytes > 0) std::memcpy(arrays.back().data(), array.data, array.bytes);
  }
  return arrays;
}

class SamplerWireFuzz : public ::testing::Test {
 protected:
  void SetUp() override {
    FixtureOptions fixture;
    fixture.heterogeneous = true;
    fixture.addReverse = true;
    graph_ = *PartitionedGraph::open(*partition::GraphStore::open(writeFixtureStore(fixture, 2, directory_ / "store")), 0, 1);
    reader_ = std::make_unique<sampler::EdgeReader>(graph_);
  }

  // A few bytes of a copy of `valid` changed, an array cut, added or swapped.
  std::vector<rpc::Bytes> mutated(const std::vector<rpc::OutArray>& valid) {
    std::vector<rpc::Bytes> arrays = received(valid);
    for (uint32_t i = 0, edits = random_() % 4; i < edits && !arrays.empty(); ++i) {
      rpc::Bytes& array = arrays[random_() % arrays.size()];
      switch (random_() % 8) {
        case 0: {
          rpc::Bytes cut = rpc::Bytes::allocate(random_() % (array.size() + 9));
          const size_t kept = std::min(cut.size(), array.size());
          if (kept > 0) std::memcpy(cut.data(), array.data(), kept);
          if (cut.size() > kept) std::memset(cut.data() + kept, static_cast<int>(random_() % 3), cut.size() - kept);
          array = std::move(cut);
          break;
        }
        case 1: std::swap(array, arrays[random_() % arrays.size()]); break;
        case 2: random_() % 2 == 0 ? arrays.pop_back() : arrays.push_back(rpc::Bytes::allocate(0)); break;
        default:
          // Small numbers are what makes another valid request.
          if (array.size() > 0) array.data()[random_() % array.size()] = std::byte(random_() % 2 == 0 ? random_() : random_() % 4);
      }
    }
    return arrays;
  }

  sampler::NeighborRequest neighbors(bool one) const {
    sampler::NeighborRequest request;
    const std::vector<partition::Relation>& relations = graph_->schema().relations;
    for (uint32_t r = 0; r < relations.size(); ++r) {
      if (relations[r].destination == 0 && (request.draws.empty() || !one)) request.draws.push_back({r, 3, 17, 0, 0});
    }
    request.runs = {{0, 0, 3, 0}, {0, 1, 2, 0}};
    request.rows = {0, 5, 1, 2, 2};
    request.wantEdgeIds = !one;
    for (uint32_t d = 0; d < request.draws.size(); ++d) {
      for (uint64_t source : {1, 2, 40}) request.excluded.push_back({d, 3, source});
    }
    return request;
  }

  TemporaryDirectory directory_;
  std::shared_ptr<const PartitionedGraph> graph_;
  std::unique_ptr<sampler::EdgeReader> reader_;
  std::mt19937 random_{20'261'130};
  static constexpr int kRounds = 20'000;
};

TEST_F(SamplerWireFuzz, NeighbourRequestsAreRefusedOrServed) {
  const auto valid = encodeNeighborRequest(neighbors(false));
  int served = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto request = sampler::decodeNeighborRequest(mutated(valid), *graph_);
    if (!request.ok()) continue;
    uint64_t drawn = 0;  // with replacement a request may ask for a lot, within its limit
    for (const auto& draw : request->draws) drawn += draw.fanout > 0 ? static_cast<uint64_t>(draw.fanout) * request->rows.size() : 0;
    if (drawn > 100'000) continue;
    served += serveNeighbors(*request, *graph_).ok() ? 1 : 0;
  }
  EXPECT_GT(served, kRounds / 10);
}

TEST_F(SamplerWireFuzz, LookupsOfEdgesAreRefusedOrServed) {
  const auto valid = sampler::encodeEdgeLookup({1, {{0, 3}, {1, 2}}, {4, 5, 6, 7, 8}, {0, 1, 2, 0, 1}});
  int served = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto request = sampler::decodeEdgeLookup(mutated(valid), *graph_);
    if (!request.ok()) continue;
    ASSERT_EQ(serveEdgeLookup(*request, *graph_).size(), request->rows.size());
    ++served;
  }
  EXPECT_GT(served, kRounds / 10);
}

TEST_F(SamplerWireFuzz, FeatureRequestsAreRefusedOrServed) {
  sampler::FeatureRequest request;
  request.features = {0, sampler::kOriginalIdFeature};
  request.runs = {{0, 2}, {1, 1}};
  request.rows = {0, 3, 1};
  for (const std::vector<sampler::RowPart>& parts : {std::vector<sampler::RowPart>{}, {{4, 8}, {0, 8}}}) {
    request.parts = parts;
    const auto valid = encodeFeatureRequest(request);
    int accepted = 0;
    for (int round = 0; round < kRounds / 2; ++round) {
      const auto decoded = sampler::decodeFeatureRequest(mutated(valid), *graph_);
      accepted += decoded.ok() ? 1 : 0;
      for (size_t f = 0; decoded.ok() && f < decoded->parts.size(); ++f) {
        const size_t rowBytes = sampler::featureSpec(*graph_, static_cast<int>(decoded->nodeType), decoded->features[f]).rowBytes();
        ASSERT_LE(decoded->parts[f].firstByte, rowBytes);
        ASSERT_LE(decoded->parts[f].bytes, rowBytes - decoded->parts[f].firstByte);
      }
    }
    EXPECT_GT(accepted, kRounds / 30);
  }
}

// Served as their owner does, into memory of the size that the request tells: nothing may leave it.
TEST_F(SamplerWireFuzz, BulkPullsAreRefusedOrServed) {
  sampler::BulkPullRequest request;
  request.slot = 3;
  request.workMs = 1000;
  request.rows.features = {0, sampler::kOriginalIdFeature};
  request.rows.runs = {{0, 2}, {1, 1}};
  request.rows.rows = {0, 3, 1};
  const size_t rowBytes = sampler::featureSpec(*graph_, 0, 0).rowBytes();
  request.targets = {{.key = 1, .address = 0, .bytes = 5 * rowBytes, .offset = rowBytes, .scattered = 1}, {.key = 2, .bytes = 24}};
  request.slots = {3, 0, 1};
  std::vector<std::byte> buffer(100);
  for (const std::vector<sampler::RowPart>& parts : {std::vector<sampler::RowPart>{}, {{4, 8}, {0, 8}}}) {
    request.rows.parts = parts;
    const std::vector<rpc::OutArray> valid{encodeBulkPull(request)};
    int served = 0;
    for (int round = 0; round < kRounds / 2; ++round) {
      const auto decoded = sampler::decodeBulkPull(mutated(valid), *graph_);
      if (!decoded.ok()) continue;
      auto stream = sampler::RowStream::make(*decoded, *graph_);
      ASSERT_TRUE(stream.ok()) << stream.status();
      while (!stream->atEnd()) {
        std::vector<sampler::RowPiece> pieces;
        ASSERT_GT(stream->fill(buffer, &pieces), 0u);
        for (const sampler::RowPiece& piece : pieces) {
          const uint64_t room = decoded->targets[piece.feature].bytes;
          ASSERT_LE(piece.offset, room);
          ASSERT_LE(piece.bytes, room - piece.offset);
        }
      }
      ++served;
    }
    EXPECT_GT(served, kRounds / 30);
  }
}

TEST_F(SamplerWireFuzz, RepliesToBulkPullsAreRefusedOrTaken) {
  const std::vector<rpc::OutArray> valid{
      sampler::encodeBulkPullReply({.writes = 7, .uncertain = 0}, absl::UnavailableError("the cable broke"))};
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto end = sampler::decodeBulkPullReply(mutated(valid));
    if (!end.ok()) continue;
    ASSERT_LE(end->status.message().size(), 64u);
    ++taken;
  }
  EXPECT_GT(taken, kRounds / 10);
}

TEST_F(SamplerWireFuzz, RequestsAndRepliesAboutTablesAreRefusedOrServed) {
  const sampler::TableKeysRequest request{0, {0, sampler::kOriginalIdFeature}};
  const std::vector<rpc::OutArray> valid{encodeTableKeysRequest(request)};
  int served = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto decoded = sampler::decodeTableKeysRequest(mutated(valid), *graph_);
    if (!decoded.ok()) continue;
    for (uint32_t feature : decoded->features) {
      ASSERT_GT(sampler::featureSpec(*graph_, static_cast<int>(decoded->nodeType), feature).rowBytes(), 0u);
    }
    ++served;
  }
  EXPECT_GT(served, kRounds / 10);
  std::vector<sampler::TableKey> keys;
  for (uint32_t feature : {0u, 1u}) {
    for (int k : {0, 1}) {
      const uint64_t rowBytes = sampler::featureSpec(*graph_, 0, request.features[feature]).rowBytes();
      keys.push_back({feature, static_cast<uint32_t>(k), 1000 + feature, 0, rowBytes * graph_->book().count(0, k)});
    }
  }
  const std::vector<rpc::OutArray> reply{sampler::encodeTableKeys(keys)};
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto regions = sampler::decodeTableKeys(mutated(reply), request, 0, *graph_);
    if (!regions.ok()) continue;
    // Whatever else it says, rows lie within the tables.
    for (uint32_t feature : {0u, 1u}) {
      for (uint32_t k : {0u, 1u}) ASSERT_EQ((*regions)[feature][k].bytes, keys[2 * feature + k].bytes);
    }
    ++taken;
  }
  EXPECT_GT(taken, kRounds / 10);
}

TEST_F(SamplerWireFuzz, RequestsForDrawnEdgesAreRefusedOrServed) {
  sampler::DrawnEdgesRequest request;
  request.features = {0, sampler::kEdgeIdFeature};
  request.rows = neighbors(true);
  const int drawnFrom = static_cast<int>(request.rows.draws[0].relation);
  size_t row = 0;
  for (const sampler::RowRun& run : request.rows.runs) {
    const auto indptr = graph_->shard(static_cast<int>(run.partition))->relation(drawnFrom).indptr;
    for (uint32_t i = 0; i < run.count; ++i, ++row) {
      const uint32_t at = request.rows.rows[row];
      const auto& neighbors = graph_->shard(static_cast<int>(run.partition))->relation(drawnFrom).neighbors32;
      uint64_t left = 0;
      for (uint64_t e = indptr[at]; e < indptr[at + 1]; ++e) {
        const bool excluded = row == 3 && (neighbors[e] == 1 || neighbors[e] == 2 || neighbors[e] == 40);
        left += excluded ? 0 : 1;
      }
      request.header.edges += std::min<uint64_t>(3, left);
    }
  }
  ASSERT_GT(request.header.edges, 3u);
  request.header.skip = 1;
  --request.header.edges;
  const auto valid = encodeDrawnEdges(request);
  int served = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto decoded = decodeDrawnEdges(mutated(valid), *graph_);
    if (!decoded.ok() || decoded->header.edges > 10'000 || decoded->rows.draws[0].fanout > 10'000) continue;
    std::vector<std::vector<std::byte>> rows;
    std::vector<std::byte*> addresses;
    for (uint32_t feature : decoded->features) {
      const int relation = static_cast<int>(decoded->rows.draws[0].relation);
      rows.emplace_back(decoded->header.edges * edgeFeatureSpec(*graph_, relation, feature).rowBytes());
      addresses.push_back(rows.back().data());
    }
    uint64_t checksum = 0;
    served += reader_->readDrawn(*decoded, addresses, &checksum).ok() ? 1 : 0;
  }
  EXPECT_GT(served, kRounds / 20);
}

TEST_F(SamplerWireFuzz, RequestsForEdgesByIdAreRefusedOrServed) {
  EdgesByIdRequest request;
  request.features = {0, sampler::kEdgeIdFeature};
  for (int k : {0, 1}) {
    const partition::RelationShard& edges = graph_->shard(k)->relation(0);
    for (uint32_t row = 0; row < edges.rows() && request.rows.size() < static_cast<size_t>(k + 1) * 3; ++row) {
      if (edges.indptr[row] == edges.indptr[row + 1]) continue;
      request.rows.push_back(row);
      request.edgeIds.push_back(edges.edgeIds[edges.indptr[row]]);
    }
    request.runs.push_back({static_cast<uint32_t>(k), 3});
  }
  const auto valid = encodeEdgesById(request);
  int served = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto decoded = decodeEdgesById(mutated(valid), *graph_);
    if (!decoded.ok()) continue;
    std::vector<std::vector<std::byte>> rows;
    std::vector<std::byte*> addresses;
    for (uint32_t feature : decoded->features) {
      rows.emplace_back(decoded->rows.size() * edgeFeatureSpec(*graph_, static_cast<int>(decoded->relation), feature).rowBytes());
      addresses.push_back(rows.back().data());
    }
    served += reader_->readById(*decoded, addresses).ok() ? 1 : 0;
  }
  EXPECT_GT(served, kRounds / 20);
}

TEST_F(SamplerWireFuzz, EdgesThatARowHasNotAreNamed) {
  EdgesByIdRequest request;
  request.features = {0};
  request.runs = {{0, 1}};
  request.rows = {0};
  request.edgeIds = {123'456'789};
  std::vector<std::byte> row(4);
  const absl::Status status = reader_->readById(request, std::vector<std::byte*>{row.data()});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("123456789"), std::string::npos) << status;
}

}  // namespace
}  // namespace farhop::testing
