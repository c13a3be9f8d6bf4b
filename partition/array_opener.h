// Maps the arrays of a store, each checked against what graph.json says of it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/npy.h"
#include "base/status.h"
#include "partition/graph_store.h"

namespace farhop::partition {

// Borrows both arguments. Thread-safe.
class ArrayOpener {
 public:
  ArrayOpener(const std::string& directory, const Manifest& manifest)
      : directory_(directory), manifest_(manifest) {}

  // DataLoss or NotFound name the file when it is missing or not of this size, dtype and shape.
  absl::StatusOr<NpyArray> open(const std::string& path, DType dtype, const std::vector<uint64_t>& shape) const;

  // Also keeps the mapping in `files`, where it stays for as long as the shard. The data of all of it.
  template <typename T>
  absl::StatusOr<std::span<const T>> openArray(const std::string& path, const std::vector<uint64_t>& shape,
                                               std::vector<NpyArray>* files) const {
    FARHOP_ASSIGN_OR_RETURN(NpyArray array, open(path, dtypeOf<T>(), shape));
    FARHOP_ASSIGN_OR_RETURN(auto values, array.as<T>());
    files->push_back(std::move(array));
    return values;
  }
  template <typename T>
  absl::StatusOr<std::span<const T>> openColumn(const std::string& path, uint64_t count,
                                                std::vector<NpyArray>* files) const {
    return openArray<T>(path, {count}, files);
  }

  // Ids of nodes of a type that has `nodes` of them: as wide as such ids are stored.
  absl::StatusOr<IdArray> openIds(const std::string& path, uint64_t count, uint64_t nodes,
                                  std::vector<NpyArray>* files) const;

  absl::StatusOr<FeatureTable> openFeature(const std::string& path, const FeatureSpec& spec, uint64_t rows,
                                           std::vector<NpyArray>* files) const;

 private:
  const std::string& directory_;
  const Manifest& manifest_;
};

}  // namespace farhop::partition
