// Memory that messages carry: owned uninitialised bytes on the way in, borrowed or shared spans on the way
// out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace farhop::rpc {

// Owned, uninitialised, 64-byte aligned. Move-only.
class Bytes {
 public:
  Bytes() = default;
  static Bytes allocate(size_t size) {
    Bytes bytes;
    bytes.size_ = size;
    if (size > 0) bytes.data_.reset(static_cast<std::byte*>(::operator new(size, std::align_val_t{64})));
    return bytes;
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

  // The content as whole Ts (a rest that is no whole T is left out). Message arrays hold one type each.
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

// One outgoing array. `owner` keeps the memory alive until the write is done; without one the caller does.
struct OutArray {
  const void* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<const void> owner;

  template <typename Vector>
  static OutArray fromVector(Vector vector) {
    auto shared = std::make_shared<Vector>(std::move(vector));
    return {shared->data(), shared->size() * sizeof(*shared->data()), shared};
  }
  static OutArray fromBytes(Bytes bytes) {
    auto shared = std::make_shared<Bytes>(std::move(bytes));
    return {shared->data(), shared->size(), shared};
  }
};

}  // namespace farhop::rpc
