#include "importers/growing_npy.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace farhop::importers {
namespace {

// As many rows as the first header makes room for.
constexpr uint64_t kMostRows = uint64_t{1} << 56;
constexpr size_t kAlignment = 64;
constexpr size_t kPreambleBytes = 10;  // magic, version and length of a version 1.0 file

// `size` bytes, or as many as it needs where that is 0.
std::string formatHeader(DType dtype, bool fortranOrder, const std::string& shape, size_t size) {
  std::string dictionary = absl::StrCat("{'descr': '", npyDescriptor(dtype), "', 'fortran_order': ",
                                        fortranOrder ? "True" : "False", ", 'shape': (", shape, "), }");
  const size_t needed = kPreambleBytes + dictionary.size() + 1;
  if (size == 0) size = (needed + kAlignment - 1) / kAlignment * kAlignment;
  dictionary.append(size - needed, ' ');
  dictionary += '\n';
  std::string text("\x93NUMPY\x01\0", 8);
  text += static_cast<char>(dictionary.size() & 0xFF);
  text += static_cast<char>(dictionary.size() >> 8);
  return text + dictionary;
}

}  // namespace

std::string formatPairsHeader(DType dtype, uint64_t pairs) {
  return formatHeader(dtype, true, absl::StrCat("2, ", pairs), 0);
}

GrowingNpy::GrowingNpy(AtomicFile file, std::string path, DType dtype, std::vector<uint64_t> rowShape, bool pairs)
    : file_(std::move(file)), path_(std::move(path)), dtype_(dtype), rowShape_(std::move(rowShape)), pairs_(pairs) {
  rowBytes_ = dtypeBytes(dtype) * (pairs ? 2 : 1);
  for (uint64_t dimension : rowShape_) rowBytes_ *= dimension;
}

std::string GrowingNpy::header(uint64_t rows, size_t size) const {
  std::string shape = pairs_ ? absl::StrCat("2, ", rows) : absl::StrCat(rows, rowShape_.empty() ? "," : "");
  for (uint64_t dimension : rowShape_) absl::StrAppend(&shape, ", ", dimension);
  return formatHeader(dtype_, pairs_, shape, size);
}

absl::StatusOr<GrowingNpy> GrowingNpy::start(const std::string& path, DType dtype, std::vector<uint64_t> rowShape,
                                             bool pairs) {
  FARHOP_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  GrowingNpy npy(std::move(file), path, dtype, std::move(rowShape), pairs);
  if (npy.rowBytes_ == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": rows would have no bytes"));
  const std::string text = npy.header(kMostRows, 0);
  npy.headerBytes_ = text.size();
  FARHOP_RETURN_IF_ERROR(npy.file_.write(text.data(), text.size()));
  return npy;
}

absl::StatusOr<GrowingNpy> GrowingNpy::create(const std::string& path, DType dtype, std::vector<uint64_t> rowShape) {
  return start(path, dtype, std::move(rowShape), false);
}

absl::StatusOr<GrowingNpy> GrowingNpy::createPairs(const std::string& path, DType dtype) {
  return start(path, dtype, {}, true);
}

absl::Status GrowingNpy::write(const void* data, size_t bytes) {
  dataBytes_ += bytes;
  return file_.write(data, bytes);
}

absl::Status GrowingNpy::commit() {
  if (dataBytes_ % rowBytes_ != 0) return absl::InternalError(absl::StrCat(path_, ": the last row is not whole"));
  const std::string text = header(rows(), headerBytes_);
  FARHOP_RETURN_IF_ERROR(file_.writeAt(0, text.data(), text.size()));
  return file_.commit(Durability::kStarted);
}

absl::StatusOr<EdgeFile> EdgeFile::create(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(GrowingNpy file, GrowingNpy::createPairs(path, DType::kInt32));
  return EdgeFile(path, std::move(file));
}

absl::Status EdgeFile::add(std::span<const uint64_t> ends) {
  for (size_t i = 0; i + 1 < ends.size(); i += 2) {
    sourceBound_ = std::max(sourceBound_, ends[i] + 1);
    destinationBound_ = std::max(destinationBound_, ends[i + 1] + 1);
  }
  constexpr uint64_t kNarrowBound = uint64_t{1} << 31;
  if (!wide_ && std::max(sourceBound_, destinationBound_) > kNarrowBound) FARHOP_RETURN_IF_ERROR(widen());
  if (wide_) return file_->write(ends.data(), ends.size_bytes());  // int64 has the same bits
  narrow_.resize(ends.size());
  for (size_t i = 0; i < ends.size(); ++i) narrow_[i] = static_cast<int32_t>(ends[i]);
  return file_->write(narrow_.data(), narrow_.size() * sizeof(int32_t));
}

// Writes what is there again, as int64: happens once, and only in graphs with more than 2^31 nodes.
absl::Status EdgeFile::widen() {
  wide_ = true;
  FARHOP_RETURN_IF_ERROR(file_->commit());
  const std::string narrowPath = absl::StrCat(path_, ".narrow");
  if (::rename(path_.c_str(), narrowPath.c_str()) != 0) {
    return errnoStatus(absl::StrCat("renaming ", path_, " to ", narrowPath), errno);
  }
  FARHOP_ASSIGN_OR_RETURN(NpyArray array, NpyArray::open(narrowPath));
  FARHOP_ASSIGN_OR_RETURN(const std::span<const int32_t> ends, array.as<int32_t>());
  FARHOP_ASSIGN_OR_RETURN(GrowingNpy file, GrowingNpy::createPairs(path_, DType::kInt64));
  file_.emplace(std::move(file));
  std::vector<int64_t> chunk;
  constexpr size_t kChunk = size_t{1} << 16;
  for (size_t begin = 0; begin < ends.size(); begin += kChunk) {
    const auto part = ends.subspan(begin, std::min(kChunk, ends.size() - begin));
    chunk.assign(part.begin(), part.end());
    FARHOP_RETURN_IF_ERROR(file_->write(chunk.data(), chunk.size() * sizeof(int64_t)));
  }
  ::unlink(narrowPath.c_str());
  return absl::OkStatus();
}

}  // namespace farhop::importers
