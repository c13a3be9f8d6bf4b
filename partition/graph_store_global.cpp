// The arrays of a store's global/: by original id or gid over all partitions, mapped when they are asked for.
#include <utility>

#include "partition/array_opener.h"
#include "partition/graph_store.h"
#include "partition/layout.h"

namespace farhop::partition {

absl::StatusOr<const NpyArray*> GraphStore::openGlobal(const std::string& path, DType dtype,
                                                       const std::vector<uint64_t>& shape,
                                                       const ArrayCheck& check) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto known = globals_.find(path);
  if (known == globals_.end()) {
    const ArrayOpener opener(directory_, manifest_);
    FARHOP_ASSIGN_OR_RETURN(NpyArray array, opener.open(path, dtype, shape));
    if (check) FARHOP_RETURN_IF_ERROR(check(array));
    known = globals_.emplace(path, std::move(array)).first;
  }
  return &known->second;  // a map's elements stay where they are
}

absl::StatusOr<std::span<const uint64_t>> GraphStore::gidsByOriginalId(int nodeType) const {
  FARHOP_ASSIGN_OR_RETURN(const NpyArray* array, openGlobal(gidMapPath(schema(), nodeType), DType::kUInt64,
                                                            {book_.numNodes(nodeType)}, nullptr));
  return array->as<uint64_t>();
}

absl::StatusOr<IdArray> GraphStore::originalIdsByGid(int nodeType) const {
  const uint64_t nodes = book_.numNodes(nodeType);
  const bool narrow = nodes < kSmallNodeCount;
  FARHOP_ASSIGN_OR_RETURN(const NpyArray* array, openGlobal(globalOriginalIdsPath(schema(), nodeType),
                                                            narrow ? DType::kUInt32 : DType::kUInt64, {nodes}, nullptr));
  IdArray ids;
  if (narrow) {
    FARHOP_ASSIGN_OR_RETURN(ids.narrow, array->as<uint32_t>());
  } else {
    FARHOP_ASSIGN_OR_RETURN(ids.wide, array->as<uint64_t>());
  }
  return ids;
}

absl::StatusOr<std::span<const uint32_t>> GraphStore::openDegrees(int forward, bool in) const {
  const Relation& relation = schema().relations[forward];
  const uint64_t nodes = book_.numNodes(in ? relation.destination : relation.source);
  FARHOP_ASSIGN_OR_RETURN(const NpyArray* array,
                          openGlobal(globalRelationPath(schema(), forward, in ? "in_degree" : "out_degree"),
                                     DType::kUInt32, {nodes}, nullptr));
  return array->as<uint32_t>();
}

absl::StatusOr<std::span<const uint32_t>> GraphStore::inDegrees(int relation) const {
  const int forward = schema().relations[relation].reverseOf;
  return forward < 0 ? openDegrees(relation, true) : openDegrees(forward, false);
}

absl::StatusOr<std::span<const uint32_t>> GraphStore::outDegrees(int relation) const {
  const int forward = schema().relations[relation].reverseOf;
  return forward < 0 ? openDegrees(relation, false) : openDegrees(forward, true);
}

absl::StatusOr<std::span<const uint64_t>> GraphStore::splitOriginalIds(const std::string& name,
                                                                       int nodeType) const {
  const std::string canonical = canonicalSplitName(name);
  for (const SplitInfo& split : splits()) {
    if (split.name != canonical || split.nodeType != nodeType) continue;
    const std::string path = globalSplitPath(schema(), nodeType, canonical);
    const uint64_t nodes = book_.numNodes(nodeType);
    const auto check = [&](const NpyArray& array) -> absl::Status {
      FARHOP_ASSIGN_OR_RETURN(const auto ids, array.as<uint64_t>());
      for (uint64_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < nodes && (i == 0 || ids[i - 1] <= ids[i])) continue;
        const std::string what = ids[i] < nodes
                                     ? absl::StrCat("seeds ", i - 1, " and ", i, " are not ascending")
                                     : absl::StrCat("original id ", ids[i], " at ", i, " is out of range (", nodes,
                                                    " nodes)");
        return absl::DataLossError(absl::StrCat(directory_, "/", path, ": ", what, "; copy it again"));
      }
      return absl::OkStatus();
    };
    FARHOP_ASSIGN_OR_RETURN(const NpyArray* array, openGlobal(path, DType::kUInt64, {split.count}, check));
    return array->as<uint64_t>();
  }
  return absl::NotFoundError(absl::StrCat(directory_, " has no split '", name, "' of node type '",
                                          schema().nodeTypes[nodeType].name, "'"));
}

absl::StatusOr<EdgeSeeds> GraphStore::edgeSplitOriginalIds(const std::string& name, int relation) const {
  const std::string canonical = canonicalSplitName(name);
  std::string known;
  for (const EdgeSplitInfo& split : edgeSplits()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", "'", split.name, "' of ", schema().relationText(split.relation));
    if (split.name != canonical || split.relation != relation) continue;
    const std::string path = globalEdgeSplitPath(schema(), relation, canonical);
    const uint64_t nodes[2] = {book_.numNodes(schema().relations[relation].source),
                               book_.numNodes(schema().relations[relation].destination)};
    const auto check = [&](const NpyArray& array) -> absl::Status {
      FARHOP_ASSIGN_OR_RETURN(const auto ends, array.as<uint64_t>());
      for (uint64_t i = 0; i < ends.size(); ++i) {
        if (ends[i] < nodes[i % 2]) continue;
        return absl::DataLossError(absl::StrCat(directory_, "/", path, ": ", i % 2 == 0 ? "source " : "destination ",
                                                ends[i], " of seed ", i / 2, " is out of range (", nodes[i % 2],
                                                " nodes); copy it again"));
      }
      return absl::OkStatus();
    };
    EdgeSeeds seeds;
    FARHOP_ASSIGN_OR_RETURN(const NpyArray* array, openGlobal(path, DType::kUInt64, {split.count, 2}, check));
    FARHOP_ASSIGN_OR_RETURN(seeds.ends, array->as<uint64_t>());
    if (!split.labels) return seeds;
    std::vector<uint64_t> shape = {split.count};
    shape.insert(shape.end(), split.labels->rowShape.begin(), split.labels->rowShape.end());
    FARHOP_ASSIGN_OR_RETURN(const NpyArray* labels,
                            openGlobal(globalEdgeSplitLabelsPath(schema(), relation, canonical), split.labels->dtype,
                                       shape, nullptr));
    seeds.labels = {*split.labels, split.count, labels->data().data()};
    return seeds;
  }
  return absl::NotFoundError(absl::StrCat(directory_, " has no split '", name, "' of edges of ",
                                          schema().relationText(relation), "; it has: ",
                                          known.empty() ? "none" : known));
}

}  // namespace farhop::partition
