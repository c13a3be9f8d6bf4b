#include "partition/id_column.h"

#include <utility>

namespace farhop::partition {

IdColumn::IdColumn(std::vector<uint64_t> values) {
  auto shared = std::make_shared<const std::vector<uint64_t>>(std::move(values));
  data_ = reinterpret_cast<const std::byte*>(shared->data());
  size_ = shared->size();
  strideBytes_ = sizeof(uint64_t);
  owner_ = std::move(shared);
}

IdColumn IdColumn::view(std::shared_ptr<const NpyArray> array, uint64_t first, uint64_t stride,
                        uint64_t size) {
  IdColumn column;
  column.dtype_ = array->dtype();
  const size_t bytes = dtypeBytes(column.dtype_);
  column.data_ = array->data().data() + first * bytes;
  column.strideBytes_ = stride * bytes;
  column.size_ = size;
  column.owner_ = std::move(array);
  return column;
}

void IdColumn::copy(uint64_t first, uint64_t count, uint64_t* out) const {
  const std::byte* at = data_ + first * strideBytes_;
  const auto all = [&](auto convert) {
    for (uint64_t i = 0; i < count; ++i) out[i] = convert(at + i * strideBytes_);
  };
  switch (dtype_) {
    case DType::kInt32:
      return all(extend<int32_t>);
    case DType::kUInt32:
      return all(load<uint32_t>);
    case DType::kInt64:
    case DType::kUInt64:
      return all(load<uint64_t>);
    default:
      for (uint64_t i = 0; i < count; ++i) out[i] = (*this)[first + i];
  }
}

std::string IdColumn::text(uint64_t index) const {
  const uint64_t value = (*this)[index];
  const bool isSigned =
      dtype_ == DType::kInt8 || dtype_ == DType::kInt16 || dtype_ == DType::kInt32 || dtype_ == DType::kInt64;
  return isSigned ? absl::StrCat(static_cast<int64_t>(value)) : absl::StrCat(value);
}

bool isIntegerDType(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kInt64:
    case DType::kUInt64:
      return true;
    default:
      return false;
  }
}

}  // namespace farhop::partition
