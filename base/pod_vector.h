// A growing array of plain values that never initialises what it is about to be overwritten with.
//
// std::vector::resize() writes zeros first; in the sampler's hot path that doubles the stores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

namespace farhop {

// Owns its memory; clear() keeps it for the next use. Not thread-safe.
template <typename T>
class PodVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  PodVector() = default;
  PodVector(std::initializer_list<T> values) { append(values.begin(), values.size()); }
  PodVector(const PodVector& other) { append(other.data_, other.size_); }
  PodVector(PodVector&& other) noexcept { swap(other); }
  PodVector& operator=(PodVector other) noexcept {
    swap(other);
    return *this;
  }
  ~PodVector() { std::free(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& back() const { return data_[size_ - 1]; }

  void clear() { size_ = 0; }
  // Grows geometrically. Throws std::bad_alloc.
  void reserve(size_t capacity) {
    if (capacity <= capacity_) return;
    const size_t wanted = std::max(capacity, capacity_ + capacity_ / 2);
    void* grown = std::realloc(static_cast<void*>(data_), wanted * sizeof(T));
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(grown);
    capacity_ = wanted;
  }
  // New elements have no value yet.
  void resizeUninitialized(size_t size) {
    reserve(size);
    size_ = size;
  }
  // Room for `count` more; returns where they start. addSize() says how many were written.
  T* reserveMore(size_t count) {
    reserve(size_ + count);
    return data_ + size_;
  }
  void addSize(size_t count) { size_ += count; }
  void push_back(T value) {
    reserve(size_ + 1);
    data_[size_++] = value;
  }
  void append(const T* values, size_t count) {
    if (count == 0) return;
    reserve(size_ + count);
    std::memcpy(static_cast<void*>(data_ + size_), values, count * sizeof(T));
    size_ += count;
  }
  void append(size_t count, T value) {
    std::fill_n(reserveMore(count), count, value);
    size_ += count;
  }
  void swap(PodVector& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// Element by element, with any range.
template <typename T, typename Range>
bool operator==(const PodVector<T>& a, const Range& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace farhop
