// Where each array of a store lies: paths relative to the store's directory. docs/store-format.md, "Files".
#pragma once

#include <string>

#include "partition/schema.h"

namespace farhop::partition {

inline constexpr char kManifestFile[] = "graph.json";
// Longest name of a type, relation, feature or split, so that no path component exceeds what file systems
// take.
inline constexpr size_t kMaxNameBytes = 60;

// Letters, digits, '_' and '-' stay; every other byte becomes %XX. Different names give different components.
std::string pathComponent(absl::string_view name);
// Not empty, at most kMaxNameBytes. `what` says whose name it is.
absl::Status checkName(absl::string_view what, absl::string_view name);

std::string partitionPath(int partition);  // "part-00003"
// "source.name.destination"; unambiguous, since the components hold no dot.
std::string relationComponent(const Schema& schema, int relation);

std::string originalIdsPath(const Schema& schema, int partition, int nodeType);
std::string nodeFeaturePath(const Schema& schema, int partition, int nodeType, absl::string_view feature);
// Of a partition's cache: the gids of the remote nodes whose rows it keeps, and a feature's rows.
std::string cacheGidsPath(const Schema& schema, int partition, int nodeType);
std::string cacheFeaturePath(const Schema& schema, int partition, int nodeType, absl::string_view feature);
std::string splitPath(const Schema& schema, int partition, int nodeType, absl::string_view split);
// `array` is "indptr", "neighbors", "edge_ids", "times" or "weights".
std::string relationPath(const Schema& schema, int partition, int relation, absl::string_view array);
std::string edgeFeaturePath(const Schema& schema, int partition, int relation, absl::string_view feature);
std::string edgeSplitPath(const Schema& schema, int partition, int relation, absl::string_view split);
std::string edgeSplitLabelsPath(const Schema& schema, int partition, int relation, absl::string_view split);
std::string gidMapPath(const Schema& schema, int nodeType);
std::string globalOriginalIdsPath(const Schema& schema, int nodeType);
// `array` is "in_degree" or "out_degree"; of a forward relation.
std::string globalRelationPath(const Schema& schema, int relation, absl::string_view array);
std::string globalEdgeSplitPath(const Schema& schema, int relation, absl::string_view split);
std::string globalEdgeSplitLabelsPath(const Schema& schema, int relation, absl::string_view split);
std::string globalSplitPath(const Schema& schema, int nodeType, absl::string_view split);

// "val" and "valid" mean "validation"; every other name means itself.
std::string canonicalSplitName(absl::string_view name);

}  // namespace farhop::partition
