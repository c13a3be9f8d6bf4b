#include "importers/scatter_npy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/socket.h"

namespace farhop::importers {

absl::StatusOr<ScatterNpy> ScatterNpy::map(const std::string& path, const std::string& header, size_t rowBytes,
                                           uint64_t rows) {
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return errnoStatus(absl::StrCat("creating ", path), errno);
  ScatterNpy npy;
  npy.headerBytes_ = header.size();
  npy.rowBytes_ = rowBytes;
  npy.rows_ = rows;
  npy.mappedBytes_ = header.size() + rowBytes * rows;
  // Reserved, so that a full disk is an error here and not a SIGBUS later.
  const int failed = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(npy.mappedBytes_));
  if (failed != 0) return errnoStatus(absl::StrCat("reserving ", npy.mappedBytes_, " bytes for ", path), failed);
  void* address = ::mmap(nullptr, npy.mappedBytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return errnoStatus(absl::StrCat("mapping ", path), errno);
  npy.mapping_ = static_cast<std::byte*>(address);
  std::memcpy(npy.mapping_, header.data(), header.size());
  npy.present_.resize(rows);
  return npy;
}

absl::StatusOr<ScatterNpy> ScatterNpy::create(const std::string& path, DType dtype, std::vector<uint64_t> rowShape,
                                              uint64_t rows) {
  std::vector<uint64_t> shape = {rows};
  shape.insert(shape.end(), rowShape.begin(), rowShape.end());
  size_t rowBytes = dtypeBytes(dtype);
  for (uint64_t dimension : rowShape) rowBytes *= dimension;
  if (rowBytes == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": rows would have no bytes"));
  FARHOP_ASSIGN_OR_RETURN(ScatterNpy npy, map(path, formatNpyHeader(dtype, shape), rowBytes, rows));
  npy.dtype_ = dtype;
  npy.rowShape_ = std::move(rowShape);
  return npy;
}

absl::StatusOr<ScatterNpy> ScatterNpy::createPairs(const std::string& path, uint64_t edges, uint64_t bound) {
  const DType dtype = bound <= uint64_t{1} << 31 ? DType::kInt32 : DType::kInt64;
  FARHOP_ASSIGN_OR_RETURN(ScatterNpy npy, map(path, formatPairsHeader(dtype, edges), 2 * dtypeBytes(dtype), edges));
  npy.dtype_ = dtype;
  return npy;
}

ScatterNpy::ScatterNpy(ScatterNpy&& other) noexcept
    : dtype_(other.dtype_), rowShape_(std::move(other.rowShape_)), mapping_(std::exchange(other.mapping_, nullptr)),
      mappedBytes_(other.mappedBytes_), headerBytes_(other.headerBytes_), rowBytes_(other.rowBytes_), rows_(other.rows_),
      present_(std::move(other.present_)) {}

ScatterNpy::~ScatterNpy() {
  if (mapping_ != nullptr) ::munmap(mapping_, mappedBytes_);
}

absl::StatusOr<std::byte*> ScatterNpy::row(uint64_t index, const std::string& origin) {
  if (index >= rows_) {
    return absl::OutOfRangeError(absl::StrCat(origin, " has a row for id ", static_cast<int64_t>(index), ", but ids are below ", rows_));
  }
  if (present_[index]) return absl::AlreadyExistsError(absl::StrCat(origin, " has a second row for id ", index));
  present_[index] = true;
  return mapping_ + headerBytes_ + index * rowBytes_;
}

absl::Status ScatterNpy::putPair(uint64_t index, uint64_t source, uint64_t destination, const std::string& origin) {
  FARHOP_ASSIGN_OR_RETURN(std::byte * to, row(index, origin));
  if (dtype_ == DType::kInt64) {
    const uint64_t pair[2] = {source, destination};
    std::memcpy(to, pair, sizeof(pair));
  } else {
    const int32_t pair[2] = {static_cast<int32_t>(source), static_cast<int32_t>(destination)};
    std::memcpy(to, pair, sizeof(pair));
  }
  return absl::OkStatus();
}

absl::Status ScatterNpy::putRows(const ArrayView& ids, uint64_t idOffset, const ArrayView& array) {
  if (!ids.isInteger() || ids.shape.size() != 1 || array.shape.empty() || array.rows() != ids.rows()) {
    return absl::InvalidArgumentError(absl::StrCat(array.origin, " has rows of shape ", array.shapeText(), " for ids of shape ",
                                                   ids.shapeText(), " (", dtypeName(ids.dtype), ")"));
  }
  const std::vector<uint64_t> rowShape(array.shape.begin() + 1, array.shape.end());
  if (array.dtype != dtype_ || rowShape != rowShape_) {
    return absl::InvalidArgumentError(absl::StrCat(array.origin, " holds ", dtypeName(array.dtype), " of shape ",
                                                   array.shapeText(), ", another partition other rows (", dtypeName(dtype_), ")"));
  }
  for (uint64_t i = 0; i < ids.rows(); ++i) {
    FARHOP_ASSIGN_OR_RETURN(std::byte * to, row(ids.integerAt(i) - idOffset, array.origin));
    array.copyRow(i, to);
  }
  return absl::OkStatus();
}

absl::Status ScatterNpy::finish(const std::string& origin) {
  const auto missing = std::find(present_.begin(), present_.end(), false);
  if (missing == present_.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(origin, ": no partition has a row for id ", missing - present_.begin()));
}

}  // namespace farhop::importers
