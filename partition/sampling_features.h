// Features that say how to sample: times of edges and nodes, weights of edges. docs/store-format.md, "Times" and
// "Weights".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/dataset.h"
#include "partition/schema.h"

namespace farhop::partition {

// Empty: none.
struct SamplingFeatureNames {
  std::string times;      // an edge feature; also the node feature of that name where nodeTimes is empty
  std::string nodeTimes;  // a node feature
  std::string weights;    // an edge feature
};

// Declares the features of these names, in every relation and node type that has them, as times and weights of the
// data set's schema, and checks them as checkSamplingFeatures() does. NotFound, listing what exists, for a name that
// nothing has.
absl::Status declareSamplingFeatures(const SamplingFeatureNames& names, Dataset* dataset);

// Declared times are one integer per row that fits int64; declared weights one number per edge, finite, not negative
// and below the largest float32. Messages name file, row and value. Part of checkDataset(); expects what that checks
// of relations before.
absl::Status checkSamplingFeatures(const Dataset& dataset);

// By relation: edges with a declared weight of zero, which are never drawn by weight.
std::vector<uint64_t> countZeroWeights(const Dataset& dataset);

// The time from which each edge of a relation is visible, by original edge id: the later of the edge's own time and
// its source node's, or either where only one is declared. Borrows the data set.
class VisibleTimes {
 public:
  // `relation` of `schema`: the data set's schema, with reverse relations after its own. It has times.
  VisibleTimes(const Dataset& dataset, const Schema& schema, int relation);

  int64_t operator()(uint64_t edge) const;

 private:
  struct Column {
    DType dtype = DType::kInt64;
    const std::byte* data = nullptr;  // null: not declared
  };
  Column edgeTimes_;
  Column nodeTimes_;
  const IdColumn* source_ = nullptr;
};

// The declared weight of each edge of a relation (of `schema`, as above) by original edge id, as stores keep it.
class DeclaredWeights {
 public:
  DeclaredWeights(const Dataset& dataset, const Schema& schema, int relation);

  float operator()(uint64_t edge) const;

 private:
  DType dtype_ = DType::kFloat32;
  const std::byte* data_ = nullptr;
};

}  // namespace farhop::partition
