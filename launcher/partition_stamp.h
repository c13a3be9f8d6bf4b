// What a store was made from, kept in a file beside it, so that a partitioning that is done is not done again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace farhop::launcher {

struct PartitionStamp {
  struct RawFile {
    uint64_t bytes = 0, checksum = 0;
    int64_t modifiedNs = 0;
  };
  std::vector<std::string> arguments;
  std::map<std::string, RawFile> files;  // of the data set's directory, by relative path
};

// The file of a store: STORE.made-from.json.
std::string stampPath(const std::string& store);

// Reads all files of the data set; those whose size and time are the ones of the store's stamp keep its checksum. NotFound
// when there is no data set.
absl::StatusOr<PartitionStamp> makeStamp(const std::string& raw, const std::vector<std::string>& arguments,
                                         const std::string& store);
// Whether the store is there, whole as far as its graph.json says so, and was made from this.
bool isStamped(const std::string& store, const PartitionStamp& stamp);
absl::Status putStamp(const std::string& store, const PartitionStamp& stamp);

}  // namespace farhop::launcher
