// Single numbers of features as exact integers or as doubles, whatever their dtype: times and weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/npy.h"
#include "base/status.h"
#include "partition/schema.h"

namespace farhop::partition {

// The integers, float32 and float64: what sampling weights may be.
bool isWeightDType(DType dtype);

// InvalidArgument, saying why, unless a feature is one integer per row; `file` for messages.
absl::Status checkTimeFeature(const FeatureSpec& spec, absl::string_view file);
// InvalidArgument unless it is one number per row of a dtype that isWeightDType() accepts.
absl::Status checkWeightFeature(const FeatureSpec& spec, absl::string_view file);

// Element `index` of an integer array. uint64 beyond 2^63 - 1 comes out negative.
int64_t integerAt(DType dtype, const std::byte* data, uint64_t index);
// Element `index` of an array of a dtype that isWeightDType() accepts.
double numberAt(DType dtype, const std::byte* data, uint64_t index);

// A weight as stores keep it. Positive numbers too small for a float become the smallest one, so that the edge can
// still be drawn; what is too large becomes infinite.
float storedWeight(double weight);

}  // namespace farhop::partition
