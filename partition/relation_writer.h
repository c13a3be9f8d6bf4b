// Writes the edges of one relation after the other into a store, with all that lies beside them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/array_sink.h"
#include "partition/dataset.h"
#include "partition/manifest.h"
#include "partition/partition_book.h"
#include "partition/row_buckets.h"
#include "partition/writer_resources.h"

namespace farhop::partition {

// Borrows all. The manifest's schema has the data set's relations first, then reverse ones.
struct RelationWriterInput {
  const Dataset& dataset;
  const PartitionBook& book;
  const std::vector<std::vector<uint64_t>>& gids;  // [node type][original id]
  const WriterResources& resources;
  bool mergeParallel = false;
};

// Beside resources.workingBytes it needs 16 bytes per destination node and 8 per source node of a relation, and with
// merged edges a bit per edge.
class RelationWriter {
 public:
  RelationWriter(const RelationWriterInput& input, Manifest* manifest, ArraySink* sink)
      : dataset_(input.dataset),
        book_(input.book),
        gids_(input.gids),
        resources_(input.resources),
        mergeParallel_(input.mergeParallel),
        manifest_(*manifest),
        sink_(*sink) {}

  // What a relation is written in: the CSR with its times, then one column after the other. Any of these may have been
  // done by an earlier run, if its counts are in the manifest and its files in the sink's directory.
  //
  // Sets the relation's counts in the manifest, which has room for them. Degrees are those of forward relations.
  absl::Status writeEdges(int r);
  struct Column {
    std::string name;  // for messages
    int feature = 0;   // index in Relation::features; -1: the declared weights
  };
  std::vector<Column> columns(int r) const;
  absl::Status writeColumn(int r, const Column& column);

 private:
  const Schema& schema() const { return manifest_.schema; }
  bool merges(int r) const;
  int forwardOf(int r) const { return schema().relations[r].reverseOf < 0 ? r : schema().relations[r].reverseOf; }
  const IdColumn& sourceOf(int r) const;
  const IdColumn& destinationOf(int r) const;
  // By edge id; of a relation whose parallel edges are merged.
  absl::StatusOr<std::vector<bool>> chooseKept(int r) const;
  absl::StatusOr<std::vector<bool>> readKept(int forward) const;
  // Edges before each gid of the destination type, as the written files say.
  absl::StatusOr<std::vector<uint64_t>> readIndptr(int r) const;
  absl::StatusOr<std::vector<uint64_t>> makeIndptr(int r, const std::vector<uint64_t>& inDegrees) const;
  absl::Status writeIndptr(int r, const std::vector<uint64_t>& indptr);
  absl::Status writeCsr(int r, const std::vector<uint64_t>& indptr, const std::vector<bool>* kept);
  absl::Status writeDegrees(int r, const std::vector<uint64_t>& inDegrees, const std::vector<bool>* kept);
  RowBuckets bucketsOf(int r, const std::vector<uint64_t>& indptr, uint64_t edgeBytes) const;

  const Dataset& dataset_;
  const PartitionBook& book_;
  const std::vector<std::vector<uint64_t>>& gids_;
  const WriterResources& resources_;
  const bool mergeParallel_;
  Manifest& manifest_;
  ArraySink& sink_;
};

}  // namespace farhop::partition
