#include "partition/feature_values.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "partition/id_column.h"

namespace farhop::partition {
namespace {

template <typename T>
T load(const std::byte* data, uint64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

bool isWeightDType(DType dtype) {
  return isIntegerDType(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

absl::Status checkTimeFeature(const FeatureSpec& spec, absl::string_view file) {
  if (!isIntegerDType(spec.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": feature '", spec.name, "' holds ", dtypeName(spec.dtype),
        "; times must be integers, since they are compared exactly and floating numbers would merge times that "
        "lie close together. Convert it, for example to int64 seconds"));
  }
  if (spec.rowElements() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": feature '", spec.name, "' has ", spec.rowElements(),
                                                   " numbers per row; a time is one"));
  }
  return absl::OkStatus();
}

absl::Status checkWeightFeature(const FeatureSpec& spec, absl::string_view file) {
  if (isWeightDType(spec.dtype) && spec.rowElements() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": feature '", spec.name, "' holds ", spec.rowElements(), " x ", dtypeName(spec.dtype),
                   " per edge; weights must be one number per edge, of an integer type, float32 or float64"));
}

int64_t integerAt(DType dtype, const std::byte* data, uint64_t index) {
  switch (dtype) {
    case DType::kInt8:
      return load<int8_t>(data, index);
    case DType::kUInt8:
      return load<uint8_t>(data, index);
    case DType::kInt16:
      return load<int16_t>(data, index);
    case DType::kUInt16:
      return load<uint16_t>(data, index);
    case DType::kInt32:
      return load<int32_t>(data, index);
    case DType::kUInt32:
      return load<uint32_t>(data, index);
    default:
      return load<int64_t>(data, index);
  }
}

double numberAt(DType dtype, const std::byte* data, uint64_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<double>(load<float>(data, index));
    case DType::kFloat64:
      return load<double>(data, index);
    case DType::kUInt64:
      return static_cast<double>(load<uint64_t>(data, index));
    default:
      return static_cast<double>(integerAt(dtype, data, index));
  }
}

float storedWeight(double weight) {
  if (!(weight > 0)) return static_cast<float>(weight);
  if (weight > static_cast<double>(std::numeric_limits<float>::max())) return std::numeric_limits<float>::infinity();
  return std::max(static_cast<float>(weight), std::numeric_limits<float>::denorm_min());
}

}  // namespace farhop::partition
