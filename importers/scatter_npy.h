// .npy files whose rows come in any order, each once: what other systems have dealt to partitions is put together again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/status.h"
#include "importers/array_view.h"

namespace farhop::importers {

// A new file, mapped: its pages are the page cache's, so that memory stays bounded. A bit per row besides. Not thread-safe.
class ScatterNpy {
 public:
  static absl::StatusOr<ScatterNpy> create(const std::string& path, DType dtype, std::vector<uint64_t> rowShape,
                                           uint64_t rows);
  // The ends of `edges` edges of a relation, as an EdgeFile has them; a row is a pair. Ids are below `bound`.
  static absl::StatusOr<ScatterNpy> createPairs(const std::string& path, uint64_t edges, uint64_t bound);
  ScatterNpy(ScatterNpy&& other) noexcept;
  ScatterNpy& operator=(ScatterNpy&&) = delete;
  ~ScatterNpy();

  uint64_t rows() const { return rows_; }
  // The place of a row, of rowBytes(). OutOfRange and AlreadyExists name `origin`.
  absl::StatusOr<std::byte*> row(uint64_t index, const std::string& origin);
  size_t rowBytes() const { return rowBytes_; }
  absl::Status putPair(uint64_t index, uint64_t source, uint64_t destination, const std::string& origin);
  // Row i of `array` becomes row ids[i] - idOffset. InvalidArgument when dtype, row shape or number do not fit.
  absl::Status putRows(const ArrayView& ids, uint64_t idOffset, const ArrayView& array);
  // DataLoss names `origin` and the first row that never came.
  absl::Status finish(const std::string& origin);

 private:
  ScatterNpy() = default;
  static absl::StatusOr<ScatterNpy> map(const std::string& path, const std::string& header, size_t rowBytes, uint64_t rows);

  DType dtype_ = DType::kInt32;
  std::vector<uint64_t> rowShape_;
  std::byte* mapping_ = nullptr;
  size_t mappedBytes_ = 0;
  size_t headerBytes_ = 0;
  size_t rowBytes_ = 0;
  uint64_t rows_ = 0;
  std::vector<bool> present_;
};

}  // namespace farhop::importers
