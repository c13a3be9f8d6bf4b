// Writes the edges of one relation after the other into a store, with all that lies beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "partition/array_sink.h"
#include "partition/dataset.h"
#include "partition/manifest.h"
#include "partition/partition_book.h"
#include "partition/store_relation.h"

namespace farhop::partition {

// Borrows all. The manifest's schema has the data set's relations first, then reverse ones.
struct RelationWriterInput {
  const Dataset& dataset;
  const PartitionBook& book;
  const std::vector<std::vector<uint64_t>>& gids;  // [node type][original id]
};

class RelationWriter {
 public:
  RelationWriter(const RelationWriterInput& input, Manifest* manifest, ArraySink* sink)
      : dataset_(input.dataset), book_(input.book), gids_(input.gids), manifest_(*manifest), sink_(*sink) {}

  // Relation `r` of the manifest's schema; call in order. Adds its counts to the manifest. Needs 16 bytes per edge,
  // 16 per node of its types, and with times 32 per edge of the largest row.
  absl::Status write(int r);

 private:
  const Schema& schema() const { return manifest_.schema; }
  const IdColumn& sourceOf(int r) const;
  const IdColumn& destinationOf(int r) const;
  absl::Status writePartition(int r, int k, const RelationCsr& csr);
  absl::Status writeNeighbors(int r, int k, std::span<const uint64_t> edgeIds);
  absl::Status writeSamplingColumns(int r, int k, std::span<const uint64_t> edgeIds);
  absl::Status writeDegrees(int r, const RelationCsr& csr);

  const Dataset& dataset_;
  const PartitionBook& book_;
  const std::vector<std::vector<uint64_t>>& gids_;
  Manifest& manifest_;
  ArraySink& sink_;
};

}  // namespace farhop::partition
