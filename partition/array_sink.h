// Writes the arrays of a store and notes their sizes and checksums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/npy.h"
#include "base/status.h"
#include "partition/dataset.h"
#include "partition/manifest.h"

namespace farhop::partition {

// An array that is being written; by one thread at a time.
class SinkArray {
 public:
  absl::Status write(const void* data, size_t bytes) { return writer_->write(data, bytes); }

 private:
  friend class ArraySink;
  SinkArray(std::string path, NpyWriter writer)
      : path_(std::move(path)), writer_(std::make_unique<NpyWriter>(std::move(writer))) {}
  std::string path_;
  std::unique_ptr<NpyWriter> writer_;
};

// Thread-safe: several arrays may be written at a time. Paths are relative to `root`; directories are made as needed.
class ArraySink {
 public:
  // What is written is noted in `files`, which is borrowed.
  ArraySink(std::string root, std::map<std::string, StoredFile>* files) : root_(std::move(root)), files_(*files) {}

  const std::string& root() const { return root_; }

  absl::StatusOr<SinkArray> create(const std::string& path, DType dtype, std::vector<uint64_t> shape) const {
    const std::string full = absl::StrCat(root_, "/", path);
    FARHOP_RETURN_IF_ERROR(makeDirectories(full.substr(0, full.rfind('/'))));
    FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(full, dtype, std::move(shape)));
    return SinkArray(path, std::move(writer));
  }
  absl::Status commit(std::optional<SinkArray> array) {
    FARHOP_RETURN_IF_ERROR(array->writer_->commit(Durability::kStarted));
    const std::lock_guard lock(mutex_);
    files_[array->path_] = {array->writer_->fileBytes(), array->writer_->checksum()};
    return absl::OkStatus();
  }

  // `fill(array)` writes the data.
  template <typename Fill>
  absl::Status writeArray(const std::string& path, DType dtype, std::vector<uint64_t> shape, const Fill& fill) {
    FARHOP_ASSIGN_OR_RETURN(SinkArray array, create(path, dtype, std::move(shape)));
    FARHOP_RETURN_IF_ERROR(fill(array));
    return commit(std::move(array));
  }

  // An array of `shape` whose element i, in C order, is value(i), in chunks.
  template <typename T, typename Value>
  absl::Status writeValues(const std::string& path, std::vector<uint64_t> shape, const Value& value) {
    uint64_t count = 1;
    for (uint64_t dimension : shape) count *= dimension;
    return writeArray(path, dtypeOf<T>(), std::move(shape), [&](SinkArray& array) -> absl::Status {
      std::vector<T> chunk;
      chunk.reserve(static_cast<size_t>(std::min<uint64_t>(count, kChunkElements)));
      for (uint64_t i = 0; i < count; ++i) {
        chunk.push_back(static_cast<T>(value(i)));
        if (chunk.size() < kChunkElements && i + 1 < count) continue;
        FARHOP_RETURN_IF_ERROR(array.write(chunk.data(), chunk.size() * sizeof(T)));
        chunk.clear();
      }
      return absl::OkStatus();
    });
  }
  template <typename T, typename Value>
  absl::Status writeColumn(const std::string& path, uint64_t count, const Value& value) {
    return writeValues<T>(path, {count}, value);
  }

  // Rows rowIds[0], rowIds[1], ... of a feature.
  absl::Status writeFeature(const std::string& path, const FeatureSpec& spec, const FeatureColumn& column,
                            std::span<const uint64_t> rowIds) {
    std::vector<uint64_t> shape = {rowIds.size()};
    shape.insert(shape.end(), spec.rowShape.begin(), spec.rowShape.end());
    const size_t rowBytes = spec.rowBytes();
    return writeArray(path, spec.dtype, std::move(shape), [&](SinkArray& array) -> absl::Status {
      if (rowBytes == 0) return absl::OkStatus();
      for (uint64_t id : rowIds) FARHOP_RETURN_IF_ERROR(array.write(column.data + id * rowBytes, rowBytes));
      return absl::OkStatus();
    });
  }

 private:
  static constexpr size_t kChunkElements = size_t{1} << 16;

  std::string root_;
  std::mutex mutex_;
  std::map<std::string, StoredFile>& files_;  // guarded by mutex_
};

}  // namespace farhop::partition
