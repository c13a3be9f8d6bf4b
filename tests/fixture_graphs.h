// Small random graphs for tests: as data sets in memory, as raw directories, and as partitioned stores.
//
// Features are functions of the original id (fixtureFeature, fixtureLabel), so that a test can check any row
// it meets. Everything is fixed by the options.
#pragma once

#include <cstdint>
#include <string>

#include "partition/cache_options.h"
#include "partition/dataset.h"
#include "partition/partitioner.h"

namespace farhop::testing {

struct FixtureOptions {
  uint64_t seed = 1;
  // false: one type "_N", one relation "_E". true: types "user" (`nodes`) and "item" (`nodes` / 2 + 1),
  // relations "user:follows:user" (`edges`), "user:likes:item" (`edges`) and "item:similar:item" (`edges` /
  // 2).
  bool heterogeneous = false;
  // The last tenth of the nodes of each type stay isolated. Destinations are skewed to low ids; about 2 % of
  // the edges are self loops (within a type) and 5 % repeat an earlier edge.
  uint64_t nodes = 60;
  uint64_t edges = 400;
  // Node feature "x": float32 [featureDim]. 0: none.
  uint64_t featureDim = 4;
  // Edge feature "w" of every relation: float32, one number, fixtureEdgeFeature().
  bool edgeFeatures = true;
  bool addReverse = false;
  // Edge feature "t" of every relation: int64, fixtureEdgeTime(); declared as times.
  bool edgeTimes = false;
  // Node feature "nt" of every type: int32, fixtureNodeTime(); declared as times.
  bool nodeTimes = false;
  // Declares "w" as weights (needs edgeFeatures).
  bool declaredWeights = false;
  // Edge splits of relation 0: a fifth of its edges each "train", "validation" and "test"; "train" shuffled and with
  // its first seed twice, "validation" and "test" with int64 labels 1 and, for as many random pairs, 0.
  bool edgeSplits = false;
  // What writeFixtureStore's partitions keep of each other's rows.
  partition::CacheOptions cache = {};
  // How writeFixtureStore assigns nodes.
  partition::PartitionMethod method = partition::PartitionMethod::kRandom;
};

// Value of feature "x" at (original id, column) of a node type (its index in the schema).
float fixtureFeature(int nodeType, uint64_t originalId, uint64_t column);
// Feature "label": int64.
int64_t fixtureLabel(int nodeType, uint64_t originalId);
// Feature "w" of an edge.
float fixtureEdgeFeature(int relation, uint64_t edgeId);
// Feature "t" of an edge: many edges share a time, also within a row; some are negative.
int64_t fixtureEdgeTime(int relation, uint64_t edgeId);
// Feature "nt".
int32_t fixtureNodeTime(int nodeType, uint64_t originalId);
// From when on an edge is visible, as RelationShard::times has it. `relation` and `source` of the edge as drawn: of a
// reverse relation the forward one's index and the forward edge's destination.
int64_t fixtureVisibleTime(const FixtureOptions& options, int relation, uint64_t edgeId, int sourceType, uint64_t source);
inline constexpr int64_t kFixtureClasses = 7;

// Splits of node type 0: about half of the nodes "train", a quarter each "validation" and "test".
partition::Dataset makeFixtureDataset(const FixtureOptions& options);

// Writes a data set as a directory with metadata.yaml that readDataset() reads back the same. Edges are csv
// for every second relation, numpy for the others. Throws std::runtime_error on failure.
void writeRawDataset(const partition::Dataset& dataset, const std::string& directory);

// Partitions the fixture into `parts` and writes the store at `directory` (which must not exist). Returns
// `directory`. Throws std::runtime_error on failure.
std::string writeFixtureStore(const FixtureOptions& options, int parts, const std::string& directory);

}  // namespace farhop::testing
