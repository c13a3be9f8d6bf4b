// Which part of a feature's rows is wanted, and as which dtype it lands.
//
// Rows are stored and travel narrow. The part is cut out by whoever reads the mapping, so that nothing else moves; the
// numbers are widened where they are put in their place, in the same pass as the copy that has to be made anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/npy.h"
#include "base/status.h"
#include "partition/schema.h"

namespace farhop::sampler {

// Consecutive bytes of each row of a feature. On the wire, little-endian.
struct RowPart {
  uint64_t firstByte = 0;
  uint64_t bytes = 0;
};

// What is made of a stored row. The default is the row as it is.
struct RowFormat {
  std::optional<RowPart> part;  // whole numbers within the row
  std::optional<DType> as;      // canWiden() from the stored dtype
};

// True where every value of `from` is one of `to`: the same dtype, an integer in a wider one, a number in a float that
// holds it. Such conversions are exact.
bool canWiden(DType from, DType to);

// A format applied to a feature: copies the wanted part of rows, widening on the way. Cheap to copy; thread-safe.
class RowCopy {
 public:
  // InvalidArgument for a part beyond the row or through a number, or a dtype that does not hold all values.
  static absl::StatusOr<RowCopy> make(const partition::FeatureSpec& spec, const RowFormat& format);

  // Of the stored row: where the part begins, how long it is, and how long a whole row is.
  const RowPart& part() const { return part_; }
  size_t sourceBytes() const { return static_cast<size_t>(part_.bytes); }
  bool isWholeRow() const { return part_.bytes == rowBytes_; }
  size_t rowBytes() const { return rowBytes_; }
  // Of what lands.
  size_t destinationBytes() const { return destinationBytes_; }
  bool widens() const { return widen_ != nullptr; }

  // Lands `rows` parts that lie packed.
  void copy(const std::byte* parts, std::byte* destination, size_t rows) const {
    if (widen_ != nullptr) {
      widen_(parts, destination, rows * elements_);
    } else if (sourceBytes() > 0) {
      std::memcpy(destination, parts, rows * sourceBytes());
    }
  }

 private:
  using Widen = void (*)(const std::byte* from, std::byte* to, size_t count);
  RowPart part_;
  size_t rowBytes_ = 0;
  size_t elements_ = 0;
  size_t destinationBytes_ = 0;
  Widen widen_ = nullptr;  // null: the same dtype
};

// For requests: `parts` is one per feature, or empty for whole rows. Checked before anything is read.
// InvalidArgument for a part beyond its row. rowBytes[i] is the length of feature i's rows.
absl::Status checkParts(std::span<const RowPart> parts, std::span<const size_t> rowBytes);
inline RowPart partOf(std::span<const RowPart> parts, size_t feature, size_t rowBytes) {
  return parts.empty() ? RowPart{0, rowBytes} : parts[feature];
}

}  // namespace farhop::sampler
