// A sampled mini-batch: ids and structure at hand, features deferred until pulled.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farhop/error.h"

namespace farhop {

struct BatchCore;
struct FeatureClaim;
struct FuturePull;

// A pull under way, or over. Cheap to copy; thread-safe.
class FeatureFuture {
 public:
  explicit FeatureFuture(std::shared_ptr<const FuturePull> pull) : pull_(std::move(pull)) {}
  // True once the rows are there or the pull has failed; waits at most `timeout`.
  bool waitFor(std::chrono::milliseconds timeout) const;
  // Waits (the pull's own deadline bounds it) and returns the tensor. Throws Error as FeatureHandle::pull() does.
  torch::Tensor get() const;
  // Waits at most `timeout`; then Error(kDeadlineExceeded), and the pull goes on.
  torch::Tensor get(std::chrono::milliseconds timeout) const;

 private:
  std::shared_ptr<const FuturePull> pull_;
};

// The rows of one feature for the nodes or edges of a batch; dtype and shape are known, the rows travel when pulled: own
// ones are copied once, from the mapping; others come from their owners. Cheap to copy; copies, and handles that the
// batch gives for the same name, share the pulled tensor. Thread-safe. Outlives its loader; after the runtime has left,
// pulling throws Error(kFailedPrecondition).
//
// With the last copy (futures count) a pull that is under way is cancelled: nothing more is asked for. Its memory is
// freed when what was on its way has come.
class FeatureHandle {
 public:
  explicit FeatureHandle(std::shared_ptr<FeatureClaim> claim) : claim_(std::move(claim)) {}

  const std::string& name() const;
  // [rows, ...]; rows in the batch's node order (or seed order for seedFeature, edge order for edgeFeature).
  std::vector<int64_t> shape() const;
  torch::ScalarType dtype() const;
  torch::Device device() const;  // of what pull() gives: the CPU

  // Handles for less, or for more: of rows `begin` to `end`, of these columns (numbers `begin` to `end` of the second
  // dimension), or converted to a wider dtype on arrival. They combine, and only bytes of their rows and columns move, as
  // narrow as they are stored. Of a handle whose pull has begun they take what that one brings: nothing moves again, and
  // the tensor may be a view of its. Error(kInvalidArgument) for a range out of bounds, columns of rows of one number, or
  // a dtype that does not hold every value of the stored one (float16 and bfloat16: float32, float64; float32: float64;
  // int8 and uint8: int16, int32, int64, float32, float64; int16: int32, int64, float32, float64; int32: int64, float64).
  FeatureHandle rows(int64_t begin, int64_t end) const;
  FeatureHandle columns(int64_t begin, int64_t end) const;
  FeatureHandle as(torch::ScalarType dtype) const;

  // CPU tensor of shape() and dtype(), owned by the caller as any tensor; pinned where libtorch has a GPU. The second
  // pull returns the same tensor; after an error it tries again. Blocks until all rows are there. Throws Error:
  // kUnavailable with the peer when an owner is lost, kDeadlineExceeded after the loader's requestTimeout,
  // kResourceExhausted for want of memory.
  torch::Tensor pull() const;
  // The same on another device: copied there without blocking, on its current stream. Error(kInvalidArgument) when
  // libtorch has no such device; other than the CPU these are CUDA's.
  torch::Tensor pull(torch::Device device) const;
  // Starts the pull and returns at once; own rows are copied before it returns.
  FeatureFuture pullAsync() const;
  // Pulls into `destination`: contiguous, CPU (pinned or not), of shape() and dtype(), else Error(kInvalidArgument)
  // that names both before anything is sent. On an error its content is undefined. Copies where the rows are here, or on
  // their way, already.
  void pullInto(torch::Tensor destination) const;

 private:
  std::shared_ptr<FeatureClaim> claim_;
};

// One message-passing layer: a view of a batch's prefix (with Expand::kAll, of its hop's own arrays), no copies. For each relation, row i is destination
// node i of the relation's destination type; indices are source nodes. Destination nodes are a prefix of
// source nodes of the same type. Relations and node types may be left out where the graph has one.
class Block {
 public:
  Block(std::shared_ptr<BatchCore> batch, int layer) : batch_(std::move(batch)), layer_(layer) {}

  int64_t numSrc(const std::string& nodeType = "") const;
  int64_t numDst(const std::string& nodeType = "") const;
  int64_t numEdges(const std::string& relation = "") const;

  // int32 [numDst + 1], borrowed from the batch (kept alive by the tensor).
  torch::Tensor indptr(const std::string& relation = "") const;
  // int32 [numEdges], values < numSrc of the relation's source type; borrowed likewise.
  torch::Tensor indices(const std::string& relation = "") const;
  // int64 [2, numEdges]: row 0 sources, row 1 destinations (PyG's order). Made anew at each call.
  torch::Tensor edgeIndex(const std::string& relation = "") const;
  // int64 [numEdges]: original edge ids, for loaders made with edgeIds = true; borrowed. Error otherwise.
  torch::Tensor edgeIds(const std::string& relation = "") const;
  // int32 [numEdges]: how often random walks from the destination came by the source, for loaders of importance
  // neighbours; borrowed. Error otherwise.
  torch::Tensor visits() const;
  // A feature of the block's edges, rows in the order of indices(); as Batch::edgeFeature().
  FeatureHandle edgeFeature(const std::string& name, const std::string& relation = "") const;

 private:
  std::shared_ptr<BatchCore> batch_;
  int layer_;
};

// A mini-batch. Nodes are numbered per type, seeds first, then hop by hop in the order they were found; the
// numbering is the same on any partitioning. Cheap to copy; read-only and thread-safe.
class Batch {
 public:
  Batch() = default;
  explicit Batch(std::shared_ptr<BatchCore> core) : core_(std::move(core)) {}

  int64_t epoch() const;
  int64_t step() const;    // within this process's epoch
  int64_t number() const;  // across the job: step * world size + world rank

  int64_t numSeeds() const;
  // int64 [numSeeds]: number of each seed's node; repeats share one.
  torch::Tensor seedIndex() const;
  // With disjoint seeds, else Error(kFailedPrecondition), also for batches of walks and importance neighbours, whose seeds
  // never are: int64 [numNodes], the position of the seed, or seed edge, whose tree each node of a type belongs to.
  torch::Tensor tree(const std::string& nodeType = "") const;
  // With temporal sampling, else the same error: int64 [numSeeds], the time of each seed; of seed edges
  // int64 [numSeedEdges], the time of each.
  torch::Tensor seedTimes() const;
  int64_t numNodes(const std::string& nodeType = "") const;
  int64_t numEdges() const;        // over all relations; of walks: their steps
  // Of these, drawn by other machines; 0 for importance neighbours, which are made of many machines' steps.
  int64_t numRemoteEdges() const;

  // Of a RandomWalkLoader's batches; Error otherwise. walks(): int64 [walks, length + 1], numbers of nodes, of the type
  // that the metapath has at that step, the seed's first; -1 once a walk has ended. Walk w is number w % walksPerSeed of
  // seed w / walksPerSeed. restarted(): bool [walks, length], true where a step began at the seed after a return to it.
  // Borrowed (kept alive by the tensors).
  torch::Tensor walks() const;
  torch::Tensor restarted() const;

  // Layers, none of batches of walks; block(0) is the input layer, block(numBlocks() - 1) ends in the seeds' nodes.
  int numBlocks() const;
  Block block(int layer) const;

  // A feature of all nodes of a type, rows in node order; "original_id" (int64) is one of them. Throws
  // Error(kNotFound) listing the features that exist.
  FeatureHandle feature(const std::string& name, const std::string& nodeType = "") const;
  // A feature of the seeds, rows in seed order, repeats included.
  FeatureHandle seedFeature(const std::string& name) const;
  // A feature of the sampled edges of a relation: rows in the order of block(0).indices(); with Expand::kAll, hop after
  // hop, those of the last block first. "edge_id" (int64, original edge ids) is one of them; of a reverse relation: those
  // of the forward edges. Nothing of it travels before it is pulled: the owners draw the edges again and send rows.
  // Throws Error(kNotFound) listing the features that exist, Error(kFailedPrecondition) for batches whose edges
  // are not the graph's, and for those not drawn (induced subgraphs) unless the loader carries edge ids.
  FeatureHandle edgeFeature(const std::string& name, const std::string& relation = "") const;
  // Several features of all nodes of a type with one request per owner (and chunk), in the order named; those whose pull
  // has begun are not asked for again. Throws Error as feature() and FeatureHandle::pull() do.
  std::vector<torch::Tensor> pull(const std::vector<std::string>& names, const std::string& nodeType = "") const;

 private:
  friend class NodeFeatureWriter;
  std::shared_ptr<BatchCore> core_;
};

}  // namespace farhop
