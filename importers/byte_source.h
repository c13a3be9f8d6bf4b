// The bytes of a file from its beginning to its end, unpacked where it is packed with gzip or zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace farhop::importers {

// Not thread-safe.
class ByteSource {
 public:
  // What a file is packed with is told by its first bytes. A name that ends in .gz or .zst and other first bytes are an
  // error: such a file is none, or was cut off at once.
  static absl::StatusOr<std::unique_ptr<ByteSource>> open(const std::string& path);
  virtual ~ByteSource() = default;

  // Up to `size` unpacked bytes into `to`; 0 only at the end. DataLoss when a packed file is damaged or ends too early.
  virtual absl::StatusOr<size_t> read(char* to, size_t size) = 0;

  // Of the file as it lies on the disk.
  uint64_t bytesRead() const { return bytesRead_; }
  uint64_t fileBytes() const { return fileBytes_; }

 protected:
  uint64_t bytesRead_ = 0;
  uint64_t fileBytes_ = 0;
};

// All of a small file, unpacked; InvalidArgument beyond `maxBytes`.
absl::StatusOr<std::string> readSmallFile(const std::string& path, size_t maxBytes);

}  // namespace farhop::importers
