#include "importers/task_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/npy.h"

namespace farhop::importers {
namespace {

absl::Status writeInt64(const std::string& path, const std::vector<uint64_t>& values, std::vector<uint64_t> shape) {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, DType::kInt64, std::move(shape)));
  FARHOP_RETURN_IF_ERROR(writer.write(values.data(), values.size() * sizeof(uint64_t)));
  return writer.commit(Durability::kStarted);
}

// The ids that a list or a mask names.
absl::StatusOr<std::vector<uint64_t>> seedIds(const DatasetDescription::Nodes& nodes, const ArrayView& seeds) {
  std::vector<uint64_t> ids;
  const bool isMask = seeds.dtype == DType::kBool || (seeds.dtype == DType::kUInt8 && seeds.elements() == nodes.count);
  const bool isList = seeds.isInteger() && (seeds.shape.size() == 1 || (seeds.shape.size() == 2 && seeds.shape[1] == 1));
  if (isMask && seeds.shape.size() == 1 && seeds.rows() == nodes.count) {
    for (uint64_t i = 0; i < seeds.rows(); ++i) {
      if (seeds.data[i * seeds.strides[0]] != std::byte{0}) ids.push_back(i);
    }
    return ids;
  }
  if (!isList) {
    return absl::InvalidArgumentError(absl::StrCat(seeds.origin, " holds ", dtypeName(seeds.dtype), " of shape ",
                                                   seeds.shapeText(), "; seeds are integers of one dimension, or a mask of ",
                                                   nodes.count, " nodes"));
  }
  for (uint64_t i = 0; i < seeds.rows(); ++i) {
    ids.push_back(seeds.integerAt(i));
    if (ids.back() < nodes.count) continue;
    return absl::OutOfRangeError(absl::StrCat(seeds.origin, ": seed ", i, " is ", static_cast<int64_t>(ids.back()),
                                              ", but type '", nodes.type, "' has ", nodes.count, " nodes"));
  }
  return ids;
}

double floatAt(const ArrayView& array, uint64_t row) {
  const std::byte* at = array.data + row * array.strides[0] * dtypeBytes(array.dtype);
  if (array.dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  float value;
  std::memcpy(&value, at, sizeof(value));
  return static_cast<double>(value);
}

}  // namespace

absl::StatusOr<std::string> TaskWriter::saveLabels(const std::string& split, const std::string& type,
                                                   const std::vector<uint64_t>& seeds, const ArrayView& labels) {
  const std::string path = output_.newFile({split, type, "labels"});
  const bool single = labels.rowElements() == 1;
  const bool isFloat = labels.dtype == DType::kFloat32 || labels.dtype == DType::kFloat64;
  const bool whole = single && isFloat && std::all_of(seeds.begin(), seeds.end(), [&](uint64_t id) {
    const double value = floatAt(labels, id);
    return std::nearbyint(value) == value && std::fabs(value) < 9e15;
  });
  if (single && (labels.isInteger() || whole)) {
    std::vector<uint64_t> values;
    values.reserve(seeds.size());
    for (uint64_t id : seeds) {
      const int64_t value =
          whole ? static_cast<int64_t>(floatAt(labels, id)) : static_cast<int64_t>(labels.integerAt(id));
      largestLabel_ = std::max(largestLabel_, value);
      values.push_back(static_cast<uint64_t>(value));
    }
    FARHOP_RETURN_IF_ERROR(writeInt64(output_.pathOf(path), values, {values.size()}));
    return path;
  }
  std::vector<uint64_t> shape = labels.shape;
  shape[0] = seeds.size();
  if (single) shape.resize(1);
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(output_.pathOf(path), labels.dtype, shape));
  std::vector<std::byte> row(static_cast<size_t>(labels.rowElements()) * dtypeBytes(labels.dtype));
  for (uint64_t id : seeds) {
    labels.copyRow(id, row.data());
    FARHOP_RETURN_IF_ERROR(writer.write(row.data(), row.size()));
  }
  FARHOP_RETURN_IF_ERROR(writer.commit(Durability::kStarted));
  return path;
}

absl::Status TaskWriter::addNodes(const std::string& split, const DatasetDescription::Nodes& nodes,
                                  const ArrayView& seeds, const std::optional<ArrayView>& labels) {
  FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, seedIds(nodes, seeds));
  DatasetDescription::Set set;
  set.split = split;
  set.type = nodes.type;
  set.data.push_back({"seeds", output_.newFile({split, nodes.type, "seeds"})});
  FARHOP_RETURN_IF_ERROR(writeInt64(output_.pathOf(set.data[0].path), ids, {ids.size()}));
  if (labels) {
    if (labels->shape.empty() || labels->rows() != nodes.count) {
      return absl::InvalidArgumentError(absl::StrCat(labels->origin, " has shape ", labels->shapeText(), ", but type '",
                                                     nodes.type, "' has ", nodes.count, " nodes"));
    }
    FARHOP_ASSIGN_OR_RETURN(std::string path, saveLabels(split, nodes.type, ids, *labels));
    set.data.push_back({"labels", std::move(path)});
  }
  task_.sets.push_back(std::move(set));
  return absl::OkStatus();
}

absl::Status TaskWriter::addPairs(const std::string& split, const std::string& relation, const ArrayView& pairs,
                                  const std::optional<ArrayView>& labels) {
  if (!pairs.isInteger() || pairs.shape.size() != 2 || pairs.shape[1] != 2) {
    return absl::InvalidArgumentError(absl::StrCat(pairs.origin, " holds ", dtypeName(pairs.dtype), " of shape ",
                                                   pairs.shapeText(), "; seed edges are integers of shape (n, 2)"));
  }
  DatasetDescription::Set set;
  set.split = split;
  set.type = relation;
  set.data.push_back({"seeds", output_.newFile({split, relation, "seeds"})});
  FARHOP_RETURN_IF_ERROR(saveArray(pairs, output_.pathOf(set.data[0].path)));
  if (labels) {
    if (labels->shape.empty() || labels->rows() != pairs.rows()) {
      return absl::InvalidArgumentError(absl::StrCat(labels->origin, " has shape ", labels->shapeText(), " for ",
                                                     pairs.rows(), " seed edges"));
    }
    set.data.push_back({"labels", output_.newFile({split, relation, "labels"})});
    FARHOP_RETURN_IF_ERROR(saveArray(*labels, output_.pathOf(set.data[1].path)));
  }
  task_.sets.push_back(std::move(set));
  return absl::OkStatus();
}

absl::Status TaskWriter::finish() {
  if (task_.sets.empty()) return absl::OkStatus();
  constexpr int64_t kMostClasses = int64_t{1} << 31;
  if (largestLabel_ >= 0 && largestLabel_ + 1 < kMostClasses) task_.numClasses = static_cast<uint64_t>(largestLabel_) + 1;
  output_.description().tasks.push_back(std::move(task_));
  return absl::OkStatus();
}

}  // namespace farhop::importers
