// Tables of numbers as text, one row per line, to .npy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/status.h"
#include "importers/dataset_output.h"

namespace farhop::importers {

struct NumberTableOptions {
  char delimiter = ',';
  // A single column has shape (rows), not (rows, 1).
  bool squeeze = false;
  int threads = 1;
};

struct NumberTable {
  DType dtype = DType::kInt64;
  uint64_t rows = 0;
  uint64_t columns = 0;
};

// Writes the numbers in the file `text`, packed or not, to `npy`: int64 where all are integers, else float32, as OGB reads
// them; an empty field is NaN. The first line says how many columns there are, and others differ at their peril: the error
// names file and line. Streams; reads twice where the first number with a fraction comes late.
absl::StatusOr<NumberTable> convertNumberTable(const std::string& text, const std::string& npy,
                                               const NumberTableOptions& options, const ProgressReport& progress);

}  // namespace farhop::importers
