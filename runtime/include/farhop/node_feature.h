// Node features that a running job makes: what a layer has computed for all nodes, for the next one to pull.
//
//   farhop::NodeFeatureWriter writer = graph.makeNodeFeature("h1", torch::kFloat32, {128});
//   for (farhop::Batch& batch : loader.epoch(0)) writer.put(batch, layer(batch));
//   farhop::NodeFeature h1 = writer.finish();
//   ... batch.feature("h1").pull() ...
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farhop/batch.h"
#include "farhop/graph.h"

namespace farhop {

struct NodeFeatureState;

// A finished node feature of the job. While copies of this live, Graph::features() lists it and this process can pull it
// by name as it pulls a stored one. The rows lie once in each machine's memory. A process that has let go of its last
// copy goes on serving the others; when all have, the next makeNodeFeature() or finish() frees the rows. A pull that is
// still under way then ends with rows or an Error.
class NodeFeature {
 public:
  explicit NodeFeature(std::shared_ptr<NodeFeatureState> state) : state_(std::move(state)) {}
  const std::string& name() const;
  std::string nodeType() const;

 private:
  std::shared_ptr<NodeFeatureState> state_;
};

// Collects rows of a machine's nodes from its processes. Threads may put() rows of different nodes at once. Movable.
// Destroyed before finish(), it takes its rows with it.
class NodeFeatureWriter {
 public:
  explicit NodeFeatureWriter(std::shared_ptr<NodeFeatureState> state) : state_(std::move(state)) {}
  NodeFeatureWriter(NodeFeatureWriter&&) noexcept = default;
  NodeFeatureWriter& operator=(NodeFeatureWriter&&) noexcept = default;

  // Rows for the seeds of a batch: [numSeeds, ...] of the feature's dtype and row shape, on the CPU; copied. A node that
  // gets a row twice keeps one of them. Error(kInvalidArgument), and nothing is written, for another shape, dtype or node
  // type, or a seed that belongs to another machine (deal seeds by owner, SeedDeal::kByOwner);
  // Error(kFailedPrecondition) after finish().
  void put(const Batch& batch, const torch::Tensor& rows);
  // Rows for nodes by original id: int64 [n].
  void put(const torch::Tensor& originalIds, const torch::Tensor& rows);

  // Waits until all processes are here, then makes the feature known. Collective. Error(kFailedPrecondition) on every
  // process when a node has no row, saying how many and the first one; more rows may be put then.
  NodeFeature finish();

 private:
  std::shared_ptr<NodeFeatureState> state_;  // null after finish()
};

}  // namespace farhop
