// One task of a data set: its seeds and their labels.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "importers/array_view.h"
#include "importers/dataset_output.h"

namespace farhop::importers {

// Not thread-safe.
class TaskWriter {
 public:
  TaskWriter(std::string name, DatasetOutput* output) : output_(*output) { task_.name = std::move(name); }

  // Seeds that are nodes: integers of shape (n) or (n, 1), or a mask, bool or uint8 of shape (nodes). `labels`, where given,
  // has a row for each node of the type; those of the seeds are written beside them. Floating labels that are whole numbers
  // at all seeds become int64. OutOfRange names the file and the seed.
  absl::Status addNodes(const std::string& split, const DatasetDescription::Nodes& nodes, const ArrayView& seeds,
                        const std::optional<ArrayView>& labels);
  // Seeds that are pairs, of shape (n, 2), with labels where given, one per pair.
  absl::Status addPairs(const std::string& split, const std::string& relation, const ArrayView& pairs,
                        const std::optional<ArrayView>& labels);
  // Adds the task to the description, unless it has no set. The number of classes is one more than the largest label where
  // labels are single integers.
  absl::Status finish();

 private:
  absl::StatusOr<std::string> saveLabels(const std::string& split, const std::string& type,
                                         const std::vector<uint64_t>& seeds, const ArrayView& labels);

  DatasetOutput& output_;
  DatasetDescription::Task task_;
  int64_t largestLabel_ = -1;
};

}  // namespace farhop::importers
