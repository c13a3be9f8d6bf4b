#include "partition/sampling_verify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "partition/feature_values.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

uint64_t sourceGid(const RelationShard& edges, uint64_t edge) {
  return edges.neighbors32.empty() ? edges.neighbors64[edge] : edges.neighbors32[edge];
}

std::string fullPath(const OpenStore& open, const std::string& path) {
  return absl::StrCat(open.store.directory(), "/", path);
}

// An order-free digest of (edge id, value) pairs, so that a reverse relation is compared with its forward one without
// an array as long as either. Two sums under different keys: 128 bits.
class ValueDigest {
 public:
  void add(uint64_t edgeId, uint64_t value) {
    for (uint64_t i = 0; i < sums_.size(); ++i) sums_[i] += combineKey(combineKey(i, edgeId), value);
  }
  bool operator==(const ValueDigest&) const = default;

 private:
  std::array<uint64_t, 2> sums_{};
};

// What the features of a forward relation and of node types say; the features are all in the store.
class DeclaredValues {
 public:
  DeclaredValues(const OpenStore& open, int forward)
      : open_(open), schema_(open.store.schema()), forward_(forward), relation_(schema_.relations[forward]) {}

  float weight(const GraphShard& shard, uint64_t edge) const {
    const FeatureTable* table = shard.edgeFeature(forward_, relation_.weightFeature);
    return storedWeight(numberAt(table->spec.dtype, table->data, edge));
  }

  // From when on the edge is visible from a node that `other`, a node of type `type`, is the source for.
  int64_t visibleTime(const GraphShard& shard, uint64_t edge, int type, uint64_t other) const {
    int64_t time = std::numeric_limits<int64_t>::min();
    if (!relation_.timeFeature.empty()) {
      const FeatureTable* table = shard.edgeFeature(forward_, relation_.timeFeature);
      time = integerAt(table->spec.dtype, table->data, edge);
    }
    const std::string& nodeTime = schema_.nodeTypes[type].timeFeature;
    if (nodeTime.empty()) return time;
    const PartitionBook& book = open_.store.book();
    const int k = book.partitionOf(type, other);
    const FeatureTable* table = open_.shards[static_cast<size_t>(k)]->nodeFeature(type, nodeTime);
    return std::max(time, integerAt(table->spec.dtype, table->data, other - book.begin(type, k)));
  }

 private:
  const OpenStore& open_;
  const Schema& schema_;
  int forward_;
  const Relation& relation_;
};

// The first edge of a forward relation's partition whose column differs from what `expected(edge)` says.
template <typename Column, typename Expected>
std::optional<uint64_t> firstDifference(const Column& column, const Expected& expected) {
  for (uint64_t edge = 0; edge < column.size(); ++edge) {
    // Bits, so that what is no number differs from itself no less.
    if (std::memcmp(&column[edge], std::array{expected(edge)}.data(), sizeof(column[edge])) != 0) return edge;
  }
  return std::nullopt;
}

void checkForwardTimes(const OpenStore& open, int r, std::vector<std::string>* problems) {
  const Schema& schema = open.store.schema();
  const DeclaredValues declared(open, r);
  const int type = schema.relations[r].source;
  for (const auto& shard : open.shards) {
    const RelationShard& edges = shard->relation(r);
    const auto expected = [&](uint64_t edge) {
      return declared.visibleTime(*shard, edge, type, sourceGid(edges, edge));
    };
    const auto wrong = firstDifference(edges.times, expected);
    if (!wrong) continue;
    problems->push_back(absl::StrCat(fullPath(open, relationPath(schema, shard->index(), r, "times")), ": edge ",
                                     edges.edgeIds[*wrong], " at ", *wrong, " has time ", edges.times[*wrong],
                                     ", but its features say ", expected(*wrong)));
  }
}

void checkForwardWeights(const OpenStore& open, int r, std::vector<std::string>* problems) {
  const Schema& schema = open.store.schema();
  const DeclaredValues declared(open, r);
  for (const auto& shard : open.shards) {
    const RelationShard& edges = shard->relation(r);
    const auto wrong = firstDifference(edges.weights, [&](uint64_t edge) { return declared.weight(*shard, edge); });
    if (!wrong) continue;
    problems->push_back(absl::StrCat(fullPath(open, relationPath(schema, shard->index(), r, "weights")), ": edge ",
                                     edges.edgeIds[*wrong], " at ", *wrong, " has weight ", edges.weights[*wrong],
                                     ", but its feature says ", declared.weight(*shard, *wrong)));
  }
}

// Also where the weights are a feature's file.
void checkWeightRange(const OpenStore& open, int r, std::vector<std::string>* problems) {
  const Schema& schema = open.store.schema();
  for (const auto& shard : open.shards) {
    const RelationShard& edges = shard->relation(r);
    const auto wrong = std::find_if(edges.weights.begin(), edges.weights.end(),
                                    [](float weight) { return !(weight >= 0) || std::isinf(weight); });
    if (wrong == edges.weights.end()) continue;
    const uint64_t edge = static_cast<uint64_t>(wrong - edges.weights.begin());
    const std::string path =
        schema.storesWeights(r) ? relationPath(schema, shard->index(), r, "weights")
                                : edgeFeaturePath(schema, shard->index(), r, schema.relations[r].weightFeature);
    problems->push_back(absl::StrCat(fullPath(open, path), ": edge ", edges.edgeIds[edge], " at ", edge,
                                     " has weight ", *wrong, ", which is negative, infinite or not a number"));
  }
}

void checkReverseColumns(const OpenStore& open, int r, std::vector<std::string>* problems) {
  const Schema& schema = open.store.schema();
  const int forward = schema.relations[r].reverseOf;
  const DeclaredValues declared(open, forward);
  const int type = schema.relations[r].source;  // the forward edge's destination
  ValueDigest times, weights, expectedTimes, expectedWeights;
  for (const auto& shard : open.shards) {
    const RelationShard& own = shard->relation(r);
    for (uint64_t i = 0; i < own.times.size(); ++i) times.add(own.edgeIds[i], static_cast<uint64_t>(own.times[i]));
    for (uint64_t i = 0; i < own.weights.size(); ++i) {
      weights.add(own.edgeIds[i], std::bit_cast<uint32_t>(own.weights[i]));
    }
    const RelationShard& edges = shard->relation(forward);
    for (uint64_t row = 0; row < edges.rows(); ++row) {
      const uint64_t node = open.store.book().begin(type, shard->index()) + row;
      for (uint64_t i = edges.indptr[row]; i < edges.indptr[row + 1]; ++i) {
        if (schema.hasTimes(r)) {
          expectedTimes.add(edges.edgeIds[i], static_cast<uint64_t>(declared.visibleTime(*shard, i, type, node)));
        }
        if (schema.hasWeights(r)) {
          expectedWeights.add(edges.edgeIds[i], std::bit_cast<uint32_t>(declared.weight(*shard, i)));
        }
      }
    }
  }
  const auto compare = [&](bool same, const char* array) {
    if (same) return;
    problems->push_back(absl::StrCat(open.store.directory(), ": the ", array, " of ", schema.relationText(r),
                                     " (edges/", relationComponent(schema, r), "/", array,
                                     ".npy) are not those of the edges of ", schema.relationText(forward)));
  };
  compare(times == expectedTimes, "times");
  compare(weights == expectedWeights, "weights");
}

void compareDegrees(const OpenStore& open, int r, const char* array, const std::vector<uint32_t>& counted,
                    const absl::StatusOr<std::span<const uint32_t>>& stored, std::vector<std::string>* problems) {
  if (!stored.ok()) {
    problems->push_back(std::string(stored.status().message()));
    return;
  }
  const auto [own, wrong] = std::mismatch(counted.begin(), counted.end(), stored->begin());
  if (own == counted.end()) return;
  problems->push_back(absl::StrCat(fullPath(open, globalRelationPath(open.store.schema(), r, array)), ": node ",
                                   own - counted.begin(), " has ", *own, " edges, not ", *wrong));
}

}  // namespace

uint64_t OpenStore::originalId(int nodeType, uint64_t gid) const {
  const int k = store.book().partitionOf(nodeType, gid);
  return shards[static_cast<size_t>(k)]->originalIds(nodeType)[gid - store.book().begin(nodeType, k)];
}

std::vector<std::string> checkSamplingColumns(const OpenStore& open, int relation) {
  const Schema& schema = open.store.schema();
  std::vector<std::string> problems;
  if (!schema.hasTimes(relation) && !schema.hasWeights(relation)) return problems;
  if (schema.hasWeights(relation)) checkWeightRange(open, relation, &problems);
  if (schema.relations[relation].reverseOf >= 0) {
    checkReverseColumns(open, relation, &problems);
    return problems;
  }
  if (schema.hasTimes(relation)) checkForwardTimes(open, relation, &problems);
  if (schema.storesWeights(relation)) checkForwardWeights(open, relation, &problems);
  return problems;
}

std::vector<std::string> checkDegrees(const OpenStore& open, int relation) {
  const Relation& own = open.store.schema().relations[relation];
  const auto increase = [](uint32_t* degree, uint64_t by) {
    const uint64_t sum = *degree + by;
    *degree = static_cast<uint32_t>(std::min<uint64_t>(sum, std::numeric_limits<uint32_t>::max()));
  };
  std::vector<uint32_t> in(open.store.book().numNodes(own.destination), 0);
  std::vector<uint32_t> out(open.store.book().numNodes(own.source), 0);
  for (const auto& shard : open.shards) {
    const RelationShard& edges = shard->relation(relation);
    const auto destinations = shard->originalIds(own.destination);
    for (uint64_t row = 0; row < edges.rows(); ++row) {
      increase(&in[destinations[row]], edges.indptr[row + 1] - edges.indptr[row]);
    }
    for (uint64_t i = 0; i < edges.edges(); ++i) increase(&out[open.originalId(own.source, sourceGid(edges, i))], 1);
  }
  std::vector<std::string> problems;
  compareDegrees(open, relation, "in_degree", in, open.store.inDegrees(relation), &problems);
  compareDegrees(open, relation, "out_degree", out, open.store.outDegrees(relation), &problems);
  return problems;
}

std::vector<std::string> checkEdgeSplit(const OpenStore& open, const EdgeSplitInfo& split) {
  const Schema& schema = open.store.schema();
  const auto global = open.store.edgeSplitOriginalIds(split.name, split.relation);
  if (!global.ok()) return {std::string(global.status().message())};
  const auto gids = open.store.gidsByOriginalId(schema.relations[split.relation].destination);
  if (!gids.ok()) return {std::string(gids.status().message())};
  const Relation& relation = schema.relations[split.relation];
  std::vector<uint64_t> next(open.shards.size(), 0);
  const size_t labelBytes = split.labels ? split.labels->rowBytes() : 0;
  for (uint64_t i = 0; i < global->size(); ++i) {
    const uint64_t gid = (*gids)[global->destination(i)];
    const int k = open.store.book().partitionOf(relation.destination, gid);
    const EdgeSeeds own = open.shards[static_cast<size_t>(k)]->edgeSplit(split.name, split.relation);
    const uint64_t at = next[static_cast<size_t>(k)]++;
    const bool same = at < own.size() && own.destination(at) == gid &&
                      open.originalId(relation.source, own.source(at)) == global->source(i);
    if (!same) {
      return {absl::StrCat(fullPath(open, edgeSplitPath(schema, k, split.relation, split.name)),
                           " does not hold seed ", i, " of ", globalEdgeSplitPath(schema, split.relation, split.name),
                           " at ", at)};
    }
    if (labelBytes > 0 && std::memcmp(own.labels.row(at), global->labels.row(i), labelBytes) != 0) {
      return {absl::StrCat(fullPath(open, edgeSplitLabelsPath(schema, k, split.relation, split.name)), ": label ", at,
                           " is not that of seed ", i, " of ",
                           globalEdgeSplitLabelsPath(schema, split.relation, split.name))};
    }
  }
  return {};
}

}  // namespace farhop::partition
