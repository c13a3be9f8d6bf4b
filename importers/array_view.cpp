#include "importers/array_view.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "partition/id_column.h"

namespace farhop::importers {
namespace {

template <typename T>
uint64_t load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

// Copies the elements of dimensions `dimension` and up in C order; returns the end of what was written.
std::byte* copyElements(const ArrayView& array, size_t dimension, const std::byte* from, std::byte* to) {
  const size_t bytes = dtypeBytes(array.dtype);
  if (dimension == array.shape.size()) {
    std::memcpy(to, from, bytes);
    return to + bytes;
  }
  for (uint64_t i = 0; i < array.shape[dimension]; ++i) {
    to = copyElements(array, dimension + 1, from + i * array.strides[dimension] * bytes, to);
  }
  return to;
}

// A column of edge ends, read by index.
struct Ends {
  const ArrayView& array;
  bool byColumn;  // entry i is element (column, i), else (i, column)
  uint64_t column;
  uint64_t operator[](uint64_t i) const { return byColumn ? array.integerAt(column, i) : array.integerAt(i, column); }
};

absl::Status addPairs(const Ends& sources, const Ends& destinations, uint64_t edges, EdgeBounds bounds,
                      const EdgeChange& change, EdgeFile* file) {
  constexpr uint64_t kChunk = uint64_t{1} << 16;
  std::vector<uint64_t> chunk;
  for (uint64_t edge = 0; edge < edges; ++edge) {
    const uint64_t ends[2] = {sources[edge], destinations[edge]};
    const bool badSource = ends[0] >= bounds.source;
    if (badSource || ends[1] >= bounds.destination) {
      const uint64_t bad = ends[badSource ? 0 : 1];
      return absl::OutOfRangeError(absl::StrCat((badSource ? sources : destinations).array.origin, ": the ",
                                                badSource ? "source" : "destination", " of edge ", edge, " is ",
                                                static_cast<int64_t>(bad), ", which is not between 0 and ",
                                                static_cast<int64_t>(badSource ? bounds.source : bounds.destination) - 1));
    }
    chunk.insert(chunk.end(), ends, ends + 2);
    if (chunk.size() < 2 * kChunk && edge + 1 < edges) continue;
    if (change) change(&chunk);
    FARHOP_RETURN_IF_ERROR(file->add(chunk));
    chunk.clear();
  }
  return absl::OkStatus();
}

absl::Status checkIds(const ArrayView& array) {
  if (array.isInteger()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(array.origin, " holds ", dtypeName(array.dtype), "; the ends of edges are integers"));
}

}  // namespace

uint64_t ArrayView::elements() const { return rows() * rowElements(); }

uint64_t ArrayView::rowElements() const {
  uint64_t product = 1;
  for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

bool ArrayView::isContiguous() const {
  uint64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] > 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

bool ArrayView::isInteger() const { return partition::isIntegerDType(dtype); }

std::string ArrayView::shapeText() const {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

uint64_t ArrayView::integer(uint64_t element) const {
  const std::byte* at = data + element * dtypeBytes(dtype);
  switch (dtype) {
    case DType::kInt8:
      return load<int8_t>(at);
    case DType::kInt16:
      return load<int16_t>(at);
    case DType::kInt32:
      return load<int32_t>(at);
    case DType::kUInt8:
      return load<uint8_t>(at);
    case DType::kUInt16:
      return load<uint16_t>(at);
    case DType::kUInt32:
      return load<uint32_t>(at);
    default:
      return load<int64_t>(at);
  }
}

void ArrayView::copyRow(uint64_t index, std::byte* to) const {
  const std::byte* from = data + (shape.empty() ? 0 : index * strides[0] * dtypeBytes(dtype));
  if (isContiguous()) {
    std::memcpy(to, from, rowElements() * dtypeBytes(dtype));
  } else {
    copyElements(*this, shape.empty() ? 0 : 1, from, to);
  }
}

std::vector<uint64_t> contiguousStrides(const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> strides(shape.size());
  uint64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

absl::Status describeNpy(const NpyHeader& header, std::span<const std::byte> file, ArrayView* view) {
  const uint64_t bytes = header.elements() * dtypeBytes(header.dtype);
  if (file.size() < header.dataOffset || file.size() - header.dataOffset != bytes) {
    return absl::DataLossError(absl::StrCat(view->origin, " has ", file.size(), " bytes; its header calls for ",
                                            header.dataOffset + bytes, "; copy or write it again"));
  }
  view->dtype = header.dtype;
  view->shape = header.shape;
  view->strides = contiguousStrides(view->shape);
  if (header.fortranOrder) {
    const std::vector<uint64_t> reversed = contiguousStrides({view->shape.rbegin(), view->shape.rend()});
    view->strides.assign(reversed.rbegin(), reversed.rend());
  }
  view->data = file.data() + header.dataOffset;
  return absl::OkStatus();
}

absl::StatusOr<ArrayView> openNpy(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(NpyArray opened, NpyArray::open(path));
  auto array = std::make_shared<const NpyArray>(std::move(opened));
  ArrayView view;
  view.origin = path;
  FARHOP_RETURN_IF_ERROR(describeNpy(array->header(), array->fileBytes(), &view));
  view.owner = array;
  return view;
}

namespace {

// .npy has no bfloat16: its numbers are the upper halves of a float32's.
absl::Status saveWidened(const ArrayView& array, const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, DType::kFloat32, array.shape));
  std::vector<uint16_t> row(array.rowElements());
  std::vector<uint32_t> wide(row.size());
  for (uint64_t i = 0; i < array.rows() && !row.empty(); ++i) {
    array.copyRow(i, reinterpret_cast<std::byte*>(row.data()));
    for (size_t e = 0; e < row.size(); ++e) wide[e] = uint32_t{row[e]} << 16;
    FARHOP_RETURN_IF_ERROR(writer.write(wide.data(), wide.size() * sizeof(uint32_t)));
  }
  return writer.commit(Durability::kStarted);
}

}  // namespace

absl::Status saveArray(const ArrayView& array, const std::string& path) {
  if (array.dtype == DType::kBFloat16) return saveWidened(array, path);
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, array.dtype, array.shape));
  const size_t rowBytes = static_cast<size_t>(array.rowElements()) * dtypeBytes(array.dtype);
  constexpr size_t kChunkBytes = size_t{1} << 20;
  if (array.isContiguous()) {
    const size_t bytes = static_cast<size_t>(array.elements()) * dtypeBytes(array.dtype);
    for (size_t at = 0; at < bytes; at += kChunkBytes) {
      FARHOP_RETURN_IF_ERROR(writer.write(array.data + at, std::min(kChunkBytes, bytes - at)));
    }
  } else if (rowBytes > 0) {
    std::vector<std::byte> row(rowBytes);
    for (uint64_t i = 0; i < array.rows(); ++i) {
      array.copyRow(i, row.data());
      FARHOP_RETURN_IF_ERROR(writer.write(row.data(), rowBytes));
    }
  }
  return writer.commit(Durability::kStarted);
}

absl::Status addEdges(const ArrayView& edgeIndex, EdgeBounds bounds, const EdgeChange& change, EdgeFile* file) {
  FARHOP_RETURN_IF_ERROR(checkIds(edgeIndex));
  const std::vector<uint64_t>& shape = edgeIndex.shape;
  if (shape.size() != 2 || (shape[0] != 2 && shape[1] != 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat(edgeIndex.origin, " has shape ", edgeIndex.shapeText(), "; edges are of shape (2, E) or (E, 2)"));
  }
  const bool byColumn = shape[0] == 2;
  return addPairs({edgeIndex, byColumn, 0}, {edgeIndex, byColumn, 1}, shape[byColumn ? 1 : 0], bounds, change,
                  file);
}

absl::Status addEdges(const ArrayView& sources, const ArrayView& destinations, EdgeBounds bounds, EdgeFile* file) {
  FARHOP_RETURN_IF_ERROR(checkIds(sources));
  FARHOP_RETURN_IF_ERROR(checkIds(destinations));
  if (sources.shape.size() != 1 || destinations.shape != sources.shape) {
    return absl::InvalidArgumentError(absl::StrCat(sources.origin, " has shape ", sources.shapeText(), " and ",
                                                   destinations.origin, " ", destinations.shapeText(),
                                                   "; sources and destinations are of one dimension and one length"));
  }
  return addPairs({sources, false, 0}, {destinations, false, 0}, sources.rows(), bounds, {}, file);
}

}  // namespace farhop::importers
