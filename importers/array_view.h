// Arrays as sources hold them: mapped or in memory, at any strides, of one of the dtypes that Farhop knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/status.h"
#include "importers/growing_npy.h"

namespace farhop::importers {

// Cheap to copy: copies share the memory. Read-only and thread-safe.
struct ArrayView {
  DType dtype = DType::kFloat32;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides;  // in elements, by dimension
  const std::byte* data = nullptr;  // may be unaligned
  std::shared_ptr<const void> owner;
  std::string origin;  // the file, and what in it, for messages

  uint64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  uint64_t elements() const;
  // Of a row, without the first dimension.
  uint64_t rowElements() const;
  bool isContiguous() const;
  bool isInteger() const;
  std::string shapeText() const;  // "(3, 4)"

  // Element `index` of the first dimension and `column` of the second of an array of an integer dtype. A negative number
  // comes out as one of 2^63 and more.
  uint64_t integerAt(uint64_t index, uint64_t column = 0) const {
    uint64_t at = shape.empty() ? 0 : index * strides[0];
    if (shape.size() > 1) at += column * strides[1];
    return integer(at);
  }

  // Copies row `index` in C order; `to` has rowElements() elements.
  void copyRow(uint64_t index, std::byte* to) const;

 private:
  uint64_t integer(uint64_t element) const;
};

// Strides of an array in C order.
std::vector<uint64_t> contiguousStrides(const std::vector<uint64_t>& shape);

// Fills dtype, shape, strides and data of `view` (whose origin is set) from a .npy file's bytes; DataLoss when these are not
// as many as its header says.
absl::Status describeNpy(const NpyHeader& header, std::span<const std::byte> file, ArrayView* view);

// A mapped .npy, in either order.
absl::StatusOr<ArrayView> openNpy(const std::string& path);

// Writes the array in C order, streaming; bfloat16 as float32.
absl::Status saveArray(const ArrayView& array, const std::string& path);

// Ends of edges must be below these.
struct EdgeBounds {
  uint64_t source = 0;
  uint64_t destination = 0;
};
// Changes a piece of source, destination, source, ... before it is written; may be empty.
using EdgeChange = std::function<void(std::vector<uint64_t>* ends)>;

// Adds the edges of an integer array of shape (2, E) or (E, 2); of shape (2, 2) the first is meant. OutOfRange names the
// first edge with an end that is negative or not below its bound.
absl::Status addEdges(const ArrayView& edgeIndex, EdgeBounds bounds, const EdgeChange& change, EdgeFile* file);
// Likewise of two arrays of one dimension.
absl::Status addEdges(const ArrayView& sources, const ArrayView& destinations, EdgeBounds bounds, EdgeFile* file);

}  // namespace farhop::importers
