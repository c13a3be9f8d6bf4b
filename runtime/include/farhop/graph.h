// A partitioned graph opened by a running job.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farhop/edge_seeds.h"
#include "farhop/error.h"

namespace farhop {

struct GraphCore;
class NodeFeatureWriter;

// Nodes to start from: a split of the store, or ids of the user's. Cheap to copy.
class Seeds {
 public:
  // Seeds over all partitions.
  int64_t count() const { return count_; }
  const std::string& nodeType() const { return nodeType_; }
  const std::string& name() const { return name_; }

 private:
  friend class Graph;
  friend class NeighborLoader;
  std::string name_;
  std::string nodeType_;
  int64_t count_ = 0;
  bool isSplit_ = false;
  bool isAll_ = false;
  std::vector<int64_t> originalIds_;
  std::vector<int64_t> times_;  // as long, or empty
};

// Read-only (but for the features that the job adds) and thread-safe; cheap to copy. Valid as long as its runtime.
class Graph {
 public:
  explicit Graph(std::shared_ptr<GraphCore> core) : core_(std::move(core)) {}

  std::vector<std::string> nodeTypes() const;
  // "source:name:destination" of every relation.
  std::vector<std::string> relations() const;
  int64_t numNodes(const std::string& nodeType = "") const;
  int64_t numEdges(const std::string& relation = "") const;
  int numPartitions() const;
  // Classes of the data set's task; 0 where it does not say.
  int64_t numClasses() const;

  // Names of a node type's features: the store's, and those that the job has made. With one node type, the type may be left out here and below.
  std::vector<std::string> features(const std::string& nodeType = "") const;
  // Shape of one row and dtype of a feature; Error(kNotFound) lists those that exist.
  std::vector<int64_t> featureShape(const std::string& feature, const std::string& nodeType = "") const;
  torch::ScalarType featureType(const std::string& feature, const std::string& nodeType = "") const;

  // The seeds of a split ("train", "validation", "test"). Error(kNotFound) lists those that exist.
  Seeds split(const std::string& name, const std::string& nodeType = "") const;
  // Seeds by original id: int64 tensor of shape [n], CPU, copied. Every process must name the same ids in
  // the same order. Error(kInvalidArgument) for an id out of range.
  Seeds seeds(const torch::Tensor& originalIds, const std::string& nodeType = "") const;
  // Likewise with the time of each seed, int64 of shape [n], CPU, copied, in the unit of the store's times.
  Seeds seeds(const torch::Tensor& originalIds, const std::string& nodeType, const torch::Tensor& times) const;

  // All nodes of a type, in the order of their original ids. With shuffle = false, EpochTail::kUneven and fanouts of -1
  // a loader brings every node once, with all its neighbours: what inference layer by layer needs.
  Seeds nodes(const std::string& nodeType = "") const;

  // Begins a node feature that the job itself makes, for instance a layer's outputs, rows of `rowShape`: see
  // farhop/node_feature.h. Collective: all processes make the same features in the same order, else
  // Error(kFailedPrecondition); Error(kFailedPrecondition) also for a name that the store or the job has. Takes memory
  // for the rows of the machine's nodes, once per machine.
  NodeFeatureWriter makeNodeFeature(const std::string& name, torch::ScalarType dtype, const std::vector<int64_t>& rowShape,
                                    const std::string& nodeType = "") const;

  // Seed edges of a split of edges; the relation may be left out where one has such a split. Error(kNotFound) lists
  // those that exist.
  EdgeSeeds edgeSplit(const std::string& name, const std::string& relation = "") const;
  // Every edge of a relation, parallel ones each.
  EdgeSeeds edges(const std::string& relation = "") const;
  // Seed edges, or pairs that could be some, by original id: int64 tensor of shape [n, 2] (source, destination), CPU,
  // copied; and, if wanted, a label of each: numbers, [n], CPU, copied. Every process must name the same in the same
  // order. Error(kInvalidArgument) for another shape or type, or an id out of range, naming the pair.
  EdgeSeeds edgePairs(const torch::Tensor& pairs, const std::string& relation = "", const torch::Tensor& labels = {}) const;

  const std::shared_ptr<GraphCore>& core() const { return core_; }

 private:
  std::shared_ptr<GraphCore> core_;
};

}  // namespace farhop
