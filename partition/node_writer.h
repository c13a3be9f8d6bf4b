// Numbers the nodes of every type and writes what belongs to them into a store.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "partition/array_sink.h"
#include "partition/dataset.h"
#include "partition/manifest.h"
#include "partition/partition_book.h"
#include "partition/partitioner.h"
#include "partition/writer_resources.h"

namespace farhop::partition {

// Borrows all.
struct NodeWriterInput {
  const Dataset& dataset;
  const PartitionAssignment& assignment;
  const PartitionBook& book;
  const std::vector<std::vector<uint64_t>>& gids;  // [node type][original id]
  const WriterResources& resources;
};

// Needs 8 bytes per node of a type beside resources.workingBytes.
class NodeWriter {
 public:
  NodeWriter(const NodeWriterInput& input, Manifest* manifest, ArraySink* sink)
      : dataset_(input.dataset),
        assignment_(input.assignment),
        book_(input.book),
        gids_(input.gids),
        resources_(input.resources),
        manifest_(*manifest),
        sink_(*sink) {}

  // The maps between original ids and gids.
  absl::Status writeIds(int type);
  // Feature `f` of a type, of all partitions; the ids have been written.
  absl::Status writeFeature(int type, int f);
  // Adds all splits to the manifest.
  absl::Status writeSplits();

 private:
  const Schema& schema() const { return manifest_.schema; }
  int parts() const { return book_.numPartitions(); }
  absl::Status copyInOrder(int type, int f);
  absl::Status copyShuffled(int type, int f);
  absl::Status writeNodeSplit(const SplitSeeds& split);
  absl::Status writeEdgeSplit(const EdgeSplitSeeds& split);
  absl::Status writeEdgeLabels(const EdgeSplitSeeds& split);

  const Dataset& dataset_;
  const PartitionAssignment& assignment_;
  const PartitionBook& book_;
  const std::vector<std::vector<uint64_t>>& gids_;
  const WriterResources& resources_;
  Manifest& manifest_;
  ArraySink& sink_;
};

}  // namespace farhop::partition
