#include "sampler/row_format.h"

#include <bit>
#include <type_traits>

namespace farhop::sampler {
namespace {

// Numbers of 16 bits that C++ has no type for.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

// A bfloat16 is the upper half of a float32.
inline float toFloat(BFloat value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

// Written with selects in place of branches, so that it becomes vector code. Exact for subnormal numbers whatever the
// processor's mode of treating them, since none is ever an operand: they are subtracted out of normal ones.
inline float toFloat(Half value) {
  const uint32_t magnitude = value.bits & 0x7FFFU;
  const uint32_t rebias = 112U << 23;  // exponent bias 127 for 15
  const uint32_t normal = (magnitude << 13) + rebias + (magnitude >= 0x7C00U ? rebias : 0U);  // Inf and NaN stay
  const uint32_t base = 113U << 23;    // 2^-14, the smallest normal number
  const float subnormal = std::bit_cast<float>(base | (magnitude << 13)) - std::bit_cast<float>(base);
  const uint32_t bits = magnitude < 0x0400U ? std::bit_cast<uint32_t>(subnormal) : normal;
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(value.bits & 0x8000U) << 16));
}

template <typename From, typename To>
void widen(const std::byte* from, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    To wide;
    if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat>) {
      wide = static_cast<To>(toFloat(value));
    } else {
      wide = static_cast<To>(value);
    }
    std::memcpy(to + i * sizeof(To), &wide, sizeof(To));
  }
}

using Widen = void (*)(const std::byte*, std::byte*, size_t);

template <typename From>
Widen widenToFloat(DType to) {
  if (to == DType::kFloat32 && (!std::is_integral_v<From> || sizeof(From) < sizeof(float))) return widen<From, float>;
  if (to == DType::kFloat64) return widen<From, double>;
  return nullptr;
}

template <typename From>
Widen widenInteger(DType to) {
  if (to == DType::kInt16 && sizeof(From) < sizeof(int16_t)) return widen<From, int16_t>;
  if (to == DType::kInt32 && sizeof(From) < sizeof(int32_t)) return widen<From, int32_t>;
  if (to == DType::kInt64) return widen<From, int64_t>;
  return widenToFloat<From>(to);
}

Widen widening(DType from, DType to) {
  switch (from) {
    case DType::kFloat16: return widenToFloat<Half>(to);
    case DType::kBFloat16: return widenToFloat<BFloat>(to);
    case DType::kFloat32: return to == DType::kFloat64 ? widen<float, double> : nullptr;
    case DType::kBool:
    case DType::kUInt8: return widenInteger<uint8_t>(to);
    case DType::kInt8: return widenInteger<int8_t>(to);
    case DType::kInt16: return widenInteger<int16_t>(to);
    case DType::kUInt16: return to == DType::kInt16 ? nullptr : widenInteger<uint16_t>(to);
    case DType::kInt32: return widenInteger<int32_t>(to);
    case DType::kUInt32: return widenInteger<uint32_t>(to);
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat64: break;
  }
  return nullptr;
}

}  // namespace

bool canWiden(DType from, DType to) { return from == to || widening(from, to) != nullptr; }

absl::StatusOr<RowCopy> RowCopy::make(const partition::FeatureSpec& spec, const RowFormat& format) {
  RowCopy copy;
  const size_t elementBytes = dtypeBytes(spec.dtype);
  copy.rowBytes_ = spec.rowBytes();
  copy.part_ = format.part.value_or(RowPart{0, copy.rowBytes_});
  if (copy.part_.bytes > copy.rowBytes_ || copy.part_.firstByte > copy.rowBytes_ - copy.part_.bytes ||
      copy.part_.firstByte % elementBytes != 0 || copy.part_.bytes % elementBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("feature '", spec.name, "' has rows of ", copy.rowBytes_, " bytes, of which ",
                                                   copy.part_.bytes, " from ", copy.part_.firstByte, " are no part"));
  }
  copy.elements_ = copy.sourceBytes() / elementBytes;
  const DType as = format.as.value_or(spec.dtype);
  if (!canWiden(spec.dtype, as)) {
    return absl::InvalidArgumentError(absl::StrCat("feature '", spec.name, "' is stored as ", dtypeName(spec.dtype), ", of which ",
                                                   dtypeName(as), " does not hold every value; convert the pulled tensor"));
  }
  if (as != spec.dtype) copy.widen_ = widening(spec.dtype, as);
  copy.destinationBytes_ = copy.elements_ * dtypeBytes(as);
  return copy;
}

absl::Status checkParts(std::span<const RowPart> parts, std::span<const size_t> rowBytes) {
  if (parts.empty()) return absl::OkStatus();
  if (parts.size() != rowBytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(parts.size(), " parts of rows of ", rowBytes.size(), " features"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].bytes > rowBytes[i] || parts[i].firstByte > rowBytes[i] - parts[i].bytes) {
      return absl::InvalidArgumentError(absl::StrCat("a part of ", parts[i].bytes, " bytes from ", parts[i].firstByte,
                                                     " of a row of ", rowBytes[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace farhop::sampler
