// .npy files whose number of rows is known only when the last has been written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/npy.h"
#include "base/status.h"

namespace farhop::importers {

// Streams rows into a new .npy; complete or absent (AtomicFile). Not thread-safe.
class GrowingNpy {
 public:
  // Rows of `rowShape`, one after the other.
  static absl::StatusOr<GrowingNpy> create(const std::string& path, DType dtype, std::vector<uint64_t> rowShape);
  // Columns of two numbers: the array has shape (2, columns) and lies in Fortran order, so that what is written are pairs.
  static absl::StatusOr<GrowingNpy> createPairs(const std::string& path, DType dtype);

  // Whole rows or parts of them.
  absl::Status write(const void* data, size_t bytes);
  uint64_t rows() const { return dataBytes_ / rowBytes_; }
  // InternalError when the last row is not whole. The file is on its way to the disk, not synced.
  absl::Status commit();

 private:
  GrowingNpy(AtomicFile file, std::string path, DType dtype, std::vector<uint64_t> rowShape, bool pairs);
  static absl::StatusOr<GrowingNpy> start(const std::string& path, DType dtype, std::vector<uint64_t> rowShape,
                                          bool pairs);
  // A header that is `size` bytes long, or as long as it needs to be where that is 0.
  std::string header(uint64_t rows, size_t size) const;

  AtomicFile file_;
  std::string path_;
  DType dtype_;
  std::vector<uint64_t> rowShape_;
  bool pairs_;
  size_t headerBytes_ = 0;
  uint64_t rowBytes_ = 0;
  uint64_t dataBytes_ = 0;
};

// The header of such a file of pairs.
std::string formatPairsHeader(DType dtype, uint64_t pairs);

// The ends of a relation's edges, as GrowingNpy::createPairs() has them: int32 as long as that holds them, else int64.
class EdgeFile {
 public:
  static absl::StatusOr<EdgeFile> create(const std::string& path);

  // source, destination, source, ... Numbers of 2^63 and more are the caller's mistake.
  absl::Status add(std::span<const uint64_t> ends);
  uint64_t edges() const { return file_->rows(); }
  // 1 more than the largest id at that end; 0 without edges.
  uint64_t sourceBound() const { return sourceBound_; }
  uint64_t destinationBound() const { return destinationBound_; }
  absl::Status commit() { return file_->commit(); }

 private:
  EdgeFile(std::string path, GrowingNpy file) : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status widen();

  std::string path_;
  std::optional<GrowingNpy> file_;
  bool wide_ = false;
  uint64_t sourceBound_ = 0;
  uint64_t destinationBound_ = 0;
  std::vector<int32_t> narrow_;
};

}  // namespace farhop::importers
