// Edges to start from: a split of the store, all edges of a relation, or pairs of the user's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace farhop {

// Made by Graph::edgeSplit(), Graph::edges() and Graph::edgePairs(). Cheap to copy, but for the ids of edgePairs() and
// for times.
class EdgeSeeds {
 public:
  // Seed edges over all partitions.
  int64_t count() const { return count_; }
  // "source:name:destination".
  const std::string& relation() const { return relation_; }
  const std::string& name() const { return name_; }
  bool hasLabels() const { return hasLabels_; }
  // Whether withTimes() gave some.
  bool hasTimes() const { return !times_.empty(); }

  // The same seed edges with a time of each, for temporal sampling: int64 of shape [count()], CPU, copied, in the order of
  // the pairs or of the data set's split, in the unit of the store's times. Every process must name the same.
  // Error(kInvalidArgument) for another shape or type, and for Graph::edges(), which have the times of the store.
  EdgeSeeds withTimes(const torch::Tensor& times) const;

 private:
  friend class Graph;
  friend class LinkLoader;
  enum class Kind { kSplit, kAll, kPairs };
  Kind kind_ = Kind::kSplit;
  std::string name_;
  std::string relation_;
  int64_t count_ = 0;
  bool hasLabels_ = false;
  std::vector<int64_t> ends_;  // kPairs: source and destination of each
  torch::Tensor labels_;       // kPairs
  std::vector<int64_t> times_;  // by seed; empty: none given
};

}  // namespace farhop
