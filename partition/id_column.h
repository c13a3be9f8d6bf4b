// A column of node ids as users store them: any integer dtype, at any stride, in a mapped .npy or in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/npy.h"

namespace farhop::partition {

// Cheap to copy: copies share the memory. Read-only and thread-safe.
class IdColumn {
 public:
  IdColumn() = default;
  explicit IdColumn(std::vector<uint64_t> values);
  // Elements first, first + stride, ... of an array of an integer dtype (the caller has checked both).
  static IdColumn view(std::shared_ptr<const NpyArray> array, uint64_t first, uint64_t stride, uint64_t size);

  uint64_t size() const { return size_; }

  // A negative id comes out as a number above 2^63, so that one comparison finds it out of range.
  uint64_t operator[](uint64_t index) const {
    const std::byte* at = data_ + index * strideBytes_;
    switch (dtype_) {
      case DType::kInt8:
        return extend<int8_t>(at);
      case DType::kInt16:
        return extend<int16_t>(at);
      case DType::kInt32:
        return extend<int32_t>(at);
      case DType::kUInt8:
        return load<uint8_t>(at);
      case DType::kUInt16:
        return load<uint16_t>(at);
      case DType::kUInt32:
        return load<uint32_t>(at);
      default:
        return load<uint64_t>(at);  // int64 and uint64 have the same bits
    }
  }

  // Ids first, first + 1, ...: faster than one by one.
  void copy(uint64_t first, uint64_t count, uint64_t* out) const;

  // The id as the user wrote it, with its sign.
  std::string text(uint64_t index) const;

 private:
  template <typename T>
  static T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }
  template <typename T>
  static uint64_t extend(const std::byte* at) {
    return static_cast<uint64_t>(static_cast<int64_t>(load<T>(at)));
  }

  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t strideBytes_ = 0;
  DType dtype_ = DType::kUInt64;
};

bool isIntegerDType(DType dtype);

}  // namespace farhop::partition
