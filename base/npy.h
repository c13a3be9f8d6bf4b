// NumPy .npy files, versions 1.0 to 3.0, little-endian: header parsing, mapping, streaming writes.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace farhop {

// Element types that Farhop stores. kBFloat16 is "<u2" on disk; graph.json says what it means.
enum class DType : uint8_t {
  kInt8, kUInt8, kInt16, kUInt16, kInt32, kUInt32, kInt64, kUInt64,
  kFloat16, kBFloat16, kFloat32, kFloat64, kBool,
};

size_t dtypeBytes(DType dtype);
// "float32", "bfloat16", ...: numpy's names.
absl::string_view dtypeName(DType dtype);
absl::StatusOr<DType> dtypeFromName(absl::string_view name);
// "<f4", "|u1", ...: the .npy descriptor. kBFloat16 gives "<u2".
absl::string_view npyDescriptor(DType dtype);
absl::StatusOr<DType> dtypeFromDescriptor(absl::string_view descriptor);

template <typename T>
constexpr DType dtypeOf();
template <> constexpr DType dtypeOf<int8_t>() { return DType::kInt8; }
template <> constexpr DType dtypeOf<uint8_t>() { return DType::kUInt8; }
template <> constexpr DType dtypeOf<int16_t>() { return DType::kInt16; }
template <> constexpr DType dtypeOf<uint16_t>() { return DType::kUInt16; }
template <> constexpr DType dtypeOf<int32_t>() { return DType::kInt32; }
template <> constexpr DType dtypeOf<uint32_t>() { return DType::kUInt32; }
template <> constexpr DType dtypeOf<int64_t>() { return DType::kInt64; }
template <> constexpr DType dtypeOf<uint64_t>() { return DType::kUInt64; }
template <> constexpr DType dtypeOf<float>() { return DType::kFloat32; }
template <> constexpr DType dtypeOf<double>() { return DType::kFloat64; }

struct NpyHeader {
  DType dtype = DType::kFloat32;
  bool fortranOrder = false;
  std::vector<uint64_t> shape;
  size_t dataOffset = 0;  // first data byte in the file

  uint64_t elements() const;
};

// Parses a header from the first bytes of a file. Hostile input is an error, never a crash or a large
// allocation (fuzzed).
absl::StatusOr<NpyHeader> parseNpyHeader(std::span<const std::byte> bytes);

// The header that starts a version 1.0 file, padded to 64 bytes as numpy does.
std::string formatNpyHeader(DType dtype, std::span<const uint64_t> shape);

// A mapped .npy file. The file's size must match its header exactly. Thread-safe: read-only.
class NpyArray {
 public:
  NpyArray() = default;
  static absl::StatusOr<NpyArray> open(const std::string& path);

  const NpyHeader& header() const { return header_; }
  DType dtype() const { return header_.dtype; }
  const std::vector<uint64_t>& shape() const { return header_.shape; }
  uint64_t rows() const { return header_.shape.empty() ? 1 : header_.shape[0]; }
  uint64_t elements() const { return header_.elements(); }
  // Bytes of one row: product of the shape without its first dimension, times the element size.
  size_t rowBytes() const;
  const std::string& path() const { return file_.path(); }

  // The data; borrowed, valid as long as this array.
  std::span<const std::byte> data() const { return file_.bytes().subspan(header_.dataOffset); }
  // The whole file, header included (what checksums cover).
  std::span<const std::byte> fileBytes() const { return file_.bytes(); }

  // The data as T, borrowed; InvalidArgument naming the file when the dtype differs.
  template <typename T>
  absl::StatusOr<std::span<const T>> as() const {
    FARHOP_RETURN_IF_ERROR(expect(dtypeOf<T>()));
    return std::span<const T>(reinterpret_cast<const T*>(data().data()), static_cast<size_t>(elements()));
  }

 private:
  absl::Status expect(DType wanted) const;

  MappedFile file_;
  NpyHeader header_;
};

// Streams rows into a new .npy whose shape is known beforehand; complete or absent (AtomicFile).
class NpyWriter {
 public:
  static absl::StatusOr<NpyWriter> create(const std::string& path, DType dtype, std::vector<uint64_t> shape);

  absl::Status write(const void* data, size_t bytes);
  // Fails when fewer or more bytes were written than the shape says.
  absl::Status commit(Durability durability = Durability::kSynced);
  // XXH3-64 over the whole file, header included; call after the last write.
  uint64_t checksum() const { return file_.checksum(); }
  uint64_t fileBytes() const { return file_.bytesWritten(); }

 private:
  NpyWriter(AtomicFile file, std::string path, uint64_t expectedBytes)
      : file_(std::move(file)), path_(std::move(path)), expectedBytes_(expectedBytes) {}

  AtomicFile file_;
  std::string path_;
  uint64_t expectedBytes_;
};

// Writes a whole array at once and returns the file's XXH3-64.
template <typename T>
absl::StatusOr<uint64_t> writeNpy(const std::string& path, std::span<const T> data, std::vector<uint64_t> shape) {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, dtypeOf<T>(), std::move(shape)));
  FARHOP_RETURN_IF_ERROR(writer.write(data.data(), data.size_bytes()));
  FARHOP_RETURN_IF_ERROR(writer.commit());
  return writer.checksum();
}
template <typename T>
absl::StatusOr<uint64_t> writeNpy(const std::string& path, std::span<const T> data) {
  return writeNpy<T>(path, data, {data.size()});
}

}  // namespace farhop
