// Edges to start from: a split of the store, all edges of a relation, or pairs of the user's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace farhop {

// Made by Graph::edgeSplit(), Graph::edges() and Graph::edgePairs(). Cheap to copy, but for the ids of edgePairs().
class EdgeSeeds {
 public:
  // Seed edges over all partitions.
  int64_t count() const { return count_; }
  // "source:name:destination".
  const std::string& relation() const { return relation_; }
  const std::string& name() const { return name_; }
  bool hasLabels() const { return hasLabels_; }

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
};

}  // namespace farhop
