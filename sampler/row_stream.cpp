#include "sampler/row_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farhop::sampler {
namespace {

// In one buffer: scattered rows of a few bytes would else make more writes than a line of transfers holds.
constexpr size_t kMaxPieces = 1024;

}  // namespace

absl::StatusOr<RowStream> RowStream::make(const BulkPullRequest& request, const PartitionedGraph& graph) {
  RowStream stream(&request);
  const int type = static_cast<int>(request.rows.nodeType);
  for (size_t f = 0; f < request.rows.features.size(); ++f) {
    const partition::FeatureSpec spec = featureSpec(graph, type, request.rows.features[f]);
    // Bytes, since nothing is converted here.
    const partition::FeatureSpec bytes{spec.name, DType::kUInt8, {spec.rowBytes()}};
    FARHOP_ASSIGN_OR_RETURN(RowCopy copy, RowCopy::make(bytes, {partOf(request.rows.parts, f, spec.rowBytes()), {}}));
    Column column{copy, {}};
    for (const FeatureRun& run : request.rows.runs) {
      FARHOP_ASSIGN_OR_RETURN(OwnTable table,
                              ownTable(graph, type, request.rows.features[f], static_cast<int>(run.partition)));
      column.tables.push_back(std::move(table));
    }
    stream.columns_.push_back(std::move(column));
  }
  stream.skipEmpty();
  return stream;
}

void RowStream::skipEmpty() {
  while (feature_ < columns_.size()) {
    if (columns_[feature_].copy.sourceBytes() > 0) {
      while (run_ < request_->rows.runs.size() && rowOfRun_ == request_->rows.runs[run_].count) {
        ++run_;
        rowOfRun_ = 0;
      }
      if (run_ < request_->rows.runs.size()) return;
    }
    ++feature_;
    run_ = rowOfRun_ = row_ = 0;
  }
}

uint64_t RowStream::offsetOf(size_t row) const {
  const BulkTarget& target = request_->targets[feature_];
  const uint64_t place = target.scattered != 0 ? request_->slots[row] : row;
  return target.offset + place * columns_[feature_].copy.sourceBytes();
}

void RowStream::append(uint64_t offset, size_t bytes, std::vector<RowPiece>* pieces) const {
  if (!pieces->empty()) {
    RowPiece& last = pieces->back();
    if (last.feature == feature_ && last.offset + last.bytes == offset) {
      last.bytes += bytes;
      return;
    }
  }
  pieces->push_back({feature_, offset, bytes});
}

// Whole rows of the current run.
void RowStream::take(size_t rows, std::byte* to, std::vector<RowPiece>* pieces) {
  const Column& column = columns_[feature_];
  gatherRows(column.tables[run_], std::span(request_->rows.rows).subspan(row_, rows), {}, column.copy, to);
  if (request_->targets[feature_].scattered == 0) {
    append(offsetOf(row_), rows * column.copy.sourceBytes(), pieces);
  } else {
    for (size_t i = 0; i < rows; ++i) append(offsetOf(row_ + i), column.copy.sourceBytes(), pieces);
  }
  row_ += rows;
  rowOfRun_ += rows;
}

// Some bytes of a row that no buffer holds whole.
size_t RowStream::takePart(std::span<std::byte> room, std::vector<RowPiece>* pieces) {
  const Column& column = columns_[feature_];
  const size_t bytes = std::min(room.size(), column.copy.sourceBytes() - byteOfRow_);
  const std::byte* const row = column.tables[run_].data + request_->rows.rows[row_] * column.copy.rowBytes() +
                               column.copy.part().firstByte + byteOfRow_;
  std::memcpy(room.data(), row, bytes);
  append(offsetOf(row_) + byteOfRow_, bytes, pieces);
  byteOfRow_ += bytes;
  if (byteOfRow_ == column.copy.sourceBytes()) {
    byteOfRow_ = 0;
    ++row_;
    ++rowOfRun_;
  }
  return bytes;
}

size_t RowStream::fill(std::span<std::byte> buffer, std::vector<RowPiece>* pieces) {
  size_t filled = 0;
  while (!atEnd() && filled < buffer.size() && pieces->size() < kMaxPieces) {
    const size_t rowBytes = columns_[feature_].copy.sourceBytes();
    const std::span<std::byte> room = buffer.subspan(filled);
    if (byteOfRow_ > 0 || rowBytes > buffer.size()) {
      filled += takePart(room, pieces);
    } else {
      size_t rows = std::min<size_t>(request_->rows.runs[run_].count - rowOfRun_, room.size() / rowBytes);
      if (request_->targets[feature_].scattered != 0) rows = std::min(rows, kMaxPieces - pieces->size());
      if (rows == 0) break;
      take(rows, room.data(), pieces);
      filled += rows * rowBytes;
    }
    skipEmpty();
  }
  return filled;
}

}  // namespace farhop::sampler
