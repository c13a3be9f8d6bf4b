// Writes the arrays of a store one after the other and notes their sizes and checksums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
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

// Not thread-safe. Paths are relative to `root`; directories are made as needed.
class ArraySink {
 public:
  // What is written is noted in `files`, which is borrowed.
  ArraySink(std::string root, std::map<std::string, StoredFile>* files) : root_(std::move(root)), files_(*files) {}

  const std::string& root() const { return root_; }

  // `fill(writer)` writes the data.
  template <typename Fill>
  absl::Status writeArray(const std::string& path, DType dtype, std::vector<uint64_t> shape, const Fill& fill) {
    const std::string full = absl::StrCat(root_, "/", path);
    FARHOP_RETURN_IF_ERROR(makeDirectories(full.substr(0, full.rfind('/'))));
    FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(full, dtype, std::move(shape)));
    FARHOP_RETURN_IF_ERROR(fill(writer));
    FARHOP_RETURN_IF_ERROR(writer.commit(Durability::kStarted));
    files_[path] = {writer.fileBytes(), writer.checksum()};
    return absl::OkStatus();
  }

  // An array of `shape` whose element i, in C order, is value(i), in chunks.
  template <typename T, typename Value>
  absl::Status writeValues(const std::string& path, std::vector<uint64_t> shape, const Value& value) {
    uint64_t count = 1;
    for (uint64_t dimension : shape) count *= dimension;
    return writeArray(path, dtypeOf<T>(), std::move(shape), [&](NpyWriter& writer) -> absl::Status {
      std::vector<T> chunk;
      chunk.reserve(static_cast<size_t>(std::min<uint64_t>(count, kChunkElements)));
      for (uint64_t i = 0; i < count; ++i) {
        chunk.push_back(static_cast<T>(value(i)));
        if (chunk.size() < kChunkElements && i + 1 < count) continue;
        FARHOP_RETURN_IF_ERROR(writer.write(chunk.data(), chunk.size() * sizeof(T)));
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
    return writeArray(path, spec.dtype, std::move(shape), [&](NpyWriter& writer) -> absl::Status {
      if (rowBytes == 0) return absl::OkStatus();
      for (uint64_t id : rowIds) FARHOP_RETURN_IF_ERROR(writer.write(column.data + id * rowBytes, rowBytes));
      return absl::OkStatus();
    });
  }

 private:
  static constexpr size_t kChunkElements = size_t{1} << 16;

  std::string root_;
  std::map<std::string, StoredFile>& files_;
};

}  // namespace farhop::partition
