// The rows of one bulk pull as a sequence of bytes that fills buffers, and where each stretch of it lands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampler/bulk_wire.h"
#include "sampler/partitioned_graph.h"
#include "sampler/row_format.h"

namespace farhop::sampler {

// Bytes that lie behind each other in the buffer and in the feature's target.
struct RowPiece {
  size_t feature = 0;   // index into the request's targets
  uint64_t offset = 0;  // in the target's region
  size_t bytes = 0;
};

// Not thread-safe. The request must outlive it.
class RowStream {
 public:
  // FailedPrecondition when a table does not exist (any more).
  static absl::StatusOr<RowStream> make(const BulkPullRequest& request, const PartitionedGraph& graph);

  bool atEnd() const { return feature_ == columns_.size(); }
  // Gathers rows into `buffer` until it is full, appending what lies where, in the buffer's order. Only a row that is
  // longer than the whole buffer is cut. Returns the number of bytes; 0 only at the end.
  size_t fill(std::span<std::byte> buffer, std::vector<RowPiece>* pieces);

 private:
  struct Column {
    RowCopy copy;
    std::vector<OwnTable> tables;  // per run
  };

  explicit RowStream(const BulkPullRequest* request) : request_(request) {}
  void skipEmpty();
  // Where a row of the current feature goes.
  uint64_t offsetOf(size_t row) const;
  void take(size_t rows, std::byte* to, std::vector<RowPiece>* pieces);
  size_t takePart(std::span<std::byte> room, std::vector<RowPiece>* pieces);
  void append(uint64_t offset, size_t bytes, std::vector<RowPiece>* pieces) const;

  const BulkPullRequest* request_;
  std::vector<Column> columns_;
  // The next byte.
  size_t feature_ = 0;
  size_t run_ = 0;
  size_t rowOfRun_ = 0;
  size_t row_ = 0;        // of all runs
  size_t byteOfRow_ = 0;
};

}  // namespace farhop::sampler
