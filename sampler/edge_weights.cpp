#include "sampler/edge_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace farhop::sampler {
namespace {

template <typename T>
double readAs(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return static_cast<double>(value);
}

// A reader of one number of a dtype; null where weights of it are not supported.
using Reader = double (*)(const std::byte*);
Reader readerOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return readAs<int8_t>;
    case DType::kUInt8: return readAs<uint8_t>;
    case DType::kInt16: return readAs<int16_t>;
    case DType::kUInt16: return readAs<uint16_t>;
    case DType::kInt32: return readAs<int32_t>;
    case DType::kUInt32: return readAs<uint32_t>;
    case DType::kInt64: return readAs<int64_t>;
    case DType::kUInt64: return readAs<uint64_t>;
    case DType::kFloat32: return readAs<float>;
    case DType::kFloat64: return readAs<double>;
    default: return nullptr;
  }
}

// Working memory for one row's table.
struct RowScratch {
  std::vector<double> weights;
  std::vector<double> share;    // weight * degree / sum
  std::vector<uint32_t> small;  // positions with a share below 1
  std::vector<uint32_t> large;
};

// Vose's method: every position keeps a part of its slot and gives the rest to one alias.
void fillSlots(RowScratch* row, AliasSlot* slots) {
  const std::vector<double>& weights = row->weights;
  const uint32_t degree = static_cast<uint32_t>(weights.size());
  const auto heaviest = std::max_element(weights.begin(), weights.end());
  if (*heaviest <= 0) {
    std::fill_n(slots, degree, AliasSlot{0, kNoAlias});
    return;
  }
  const double most = *heaviest;
  double sum = 0;  // of weights divided by the largest: neither infinite nor zero
  for (double weight : weights) sum += weight / most;
  row->share.resize(degree);
  row->small.clear();
  row->large.clear();
  for (uint32_t i = 0; i < degree; ++i) {
    row->share[i] = weights[i] / most / sum * degree;
    (row->share[i] < 1 ? row->small : row->large).push_back(i);
  }
  while (!row->small.empty() && !row->large.empty()) {
    const uint32_t small = row->small.back(), large = row->large.back();
    row->small.pop_back();
    slots[small] = {static_cast<uint32_t>(std::min(std::floor(row->share[small] * 0x1.0p32), 0x1.fffffffep31)), large};
    row->share[large] = (row->share[large] + row->share[small]) - 1;
    if (row->share[large] >= 1) continue;
    row->large.pop_back();
    row->small.push_back(large);
  }
  // What is left has a share of 1, up to rounding; a weight of zero must not profit from that.
  const uint32_t instead = static_cast<uint32_t>(heaviest - weights.begin());
  for (const std::vector<uint32_t>* left : {&row->small, &row->large}) {
    for (uint32_t i : *left) slots[i] = {0, weights[i] > 0 ? i : instead};
  }
}

}  // namespace

absl::Status EdgeWeights::checkFeature(const partition::FeatureSpec& spec) {
  if (readerOf(spec.dtype) != nullptr && spec.rowElements() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("edge feature '", spec.name, "' holds ", spec.rowElements(), " x ",
                                                 dtypeName(spec.dtype), " per edge; weights must be one number per edge, ",
                                                 "of an integer type, float32 or float64"));
}

absl::StatusOr<EdgeWeights> EdgeWeights::make(const partition::RelationShard& edges,
                                              const partition::FeatureTable& feature, const std::string& file) {
  const Reader read = readerOf(feature.spec.dtype);
  EdgeWeights made;
  const bool asStored = feature.spec.dtype == DType::kFloat32;
  if (asStored) {
    made.weights_ = reinterpret_cast<const float*>(feature.data);
  } else {
    made.own_.resizeUninitialized(edges.edges());
    made.weights_ = made.own_.data();
  }
  made.slots_.resizeUninitialized(edges.edges());
  RowScratch row;
  const size_t bytes = feature.spec.rowBytes();
  for (uint64_t r = 0; r < edges.rows(); ++r) {
    const uint64_t from = edges.indptr[r], to = edges.indptr[r + 1];
    if (from == to) continue;
    if (to < from || to > edges.edges()) {
      return absl::DataLossError(absl::StrCat(file, ": the row bounds of row ", r, " are damaged; copy the store again"));
    }
    if (to - from >= kNoAlias) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": row ", r, " has 2^32 edges or more, too many to weigh"));
    }
    row.weights.resize(to - from);
    for (uint64_t e = from; e < to; ++e) {
      const double weight = read(feature.data + e * bytes);
      if (!(weight >= 0) || std::isinf(weight)) {
        return absl::InvalidArgumentError(absl::StrCat(
            file, ", row ", e, " (original edge ", edges.edgeIds[e], "): weight ", weight,
            "; weights must be finite and not negative, correct the feature and partition the data again"));
      }
      row.weights[e - from] = weight;
    }
    fillSlots(&row, made.slots_.data() + from);
    if (asStored) continue;
    // Only the ratios within a row matter, so that large and small doubles fit a float.
    const double most = *std::max_element(row.weights.begin(), row.weights.end());
    for (uint64_t e = from; e < to; ++e) {
      const double weight = row.weights[e - from];
      made.own_[e] = weight > 0 ? std::max(static_cast<float>(weight / most), std::numeric_limits<float>::min()) : 0;
    }
  }
  return made;
}

}  // namespace farhop::sampler
