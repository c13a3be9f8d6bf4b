#include "importers/partition_parts.h"

#include <algorithm>
#include <limits>

#include "partition/layout.h"

namespace farhop::importers {

uint64_t idOffset(const std::vector<ArrayView>& ids, uint64_t typeOffset) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const ArrayView& array : ids) {
    if (!array.isInteger() || array.shape.size() != 1) continue;
    for (uint64_t i = 0; i < array.rows(); ++i) least = std::min(least, array.integerAt(i));
  }
  return least >= typeOffset ? typeOffset : 0;
}

absl::StatusOr<NpyWriter> PartitionParts::startNodes(const std::string& type, uint64_t count) {
  if (!counts_.emplace(type, count).second) return absl::InvalidArgumentError(absl::StrCat("two node types are called '", type, "'"));
  const std::string path = absl::StrCat("partition_", partition::pathComponent(type), ".npy");
  output_.description().nodes.push_back({type, count, path, ""});
  return NpyWriter::create(output_.pathOf(path), DType::kInt32, {count});
}

absl::Status PartitionParts::addNodes(const std::string& type, const ArrayView& partitions) {
  if (!partitions.isInteger() || partitions.shape.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(partitions.origin, " holds ", dtypeName(partitions.dtype), " of shape ",
                                                   partitions.shapeText(), "; the partition of each node is expected"));
  }
  for (uint64_t i = 0; i < partitions.rows(); ++i) {
    if (partitions.integerAt(i) < static_cast<uint64_t>(numPartitions_)) continue;
    return absl::OutOfRangeError(absl::StrCat(partitions.origin, ": node ", i, " is of partition ",
                                              static_cast<int64_t>(partitions.integerAt(i)), ", but there are ", numPartitions_));
  }
  return addNodes(type, partitions.rows(), [&](uint64_t i) { return static_cast<int32_t>(partitions.integerAt(i)); });
}

absl::Status PartitionParts::addEdges(const std::string& source, const std::string& relation, const std::string& destination,
                                      uint64_t edges, uint64_t offset, const std::vector<Edges>& parts) {
  const std::string path = output_.newFile({"edges", source, relation, destination});
  const std::string type = absl::StrCat(source, ":", relation, ":", destination);
  const auto from = counts_.find(source), to = counts_.find(destination);
  if (from == counts_.end() || to == counts_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("relation ", type, " is between unknown node types"));
  }
  FARHOP_ASSIGN_OR_RETURN(ScatterNpy pairs,
                          ScatterNpy::createPairs(output_.pathOf(path), edges, std::max(from->second, to->second)));
  for (const Edges& part : parts) {
    for (const ArrayView* array : {&part.ids, &part.sources, &part.destinations}) {
      if (array->isInteger() && array->shape.size() == 1 && array->rows() == part.ids.rows()) continue;
      return absl::InvalidArgumentError(absl::StrCat(array->origin, ": edges of ", type, " are not arrays of integers of one length"));
    }
    for (uint64_t i = 0; i < part.ids.rows(); ++i) {
      const uint64_t ends[2] = {part.sources.integerAt(i), part.destinations.integerAt(i)};
      if (ends[0] >= from->second || ends[1] >= to->second) {
        return absl::OutOfRangeError(absl::StrCat(part.sources.origin, ": edge ", part.ids.integerAt(i), " of ", type, " runs ",
                                                  static_cast<int64_t>(ends[0]), " -> ", static_cast<int64_t>(ends[1]),
                                                  ", but there are ", from->second, " and ", to->second, " nodes"));
      }
      FARHOP_RETURN_IF_ERROR(pairs.putPair(part.ids.integerAt(i) - offset, ends[0], ends[1], part.ids.origin));
    }
  }
  output_.description().edges.push_back({type, path});
  return pairs.finish(absl::StrCat("edges of ", type));
}

absl::Status PartitionParts::addFeature(DatasetDescription::Feature feature, uint64_t rows, uint64_t offset,
                                        const std::vector<Rows>& parts) {
  const ArrayView* first = nullptr;
  for (const Rows& part : parts) {
    if (first == nullptr && !part.values.shape.empty()) first = &part.values;
  }
  if (first == nullptr) return absl::OkStatus();
  feature.path = output_.newFile({feature.domain, feature.type, feature.name});
  FARHOP_ASSIGN_OR_RETURN(ScatterNpy file, ScatterNpy::create(output_.pathOf(feature.path), first->dtype,
                                                              {first->shape.begin() + 1, first->shape.end()}, rows));
  for (const Rows& part : parts) FARHOP_RETURN_IF_ERROR(file.putRows(part.ids, offset, part.values));
  FARHOP_RETURN_IF_ERROR(file.finish(absl::StrCat("feature '", feature.name, "' of ", feature.type)));
  output_.description().features.push_back(std::move(feature));
  return absl::OkStatus();
}

}  // namespace farhop::importers
