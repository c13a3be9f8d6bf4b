// The files of a store against the checksums that graph.json lists.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/manifest.h"

namespace farhop::partition {

// Reads a file to its end. NotFound, or DataLoss when its size or checksum is another; messages name it and say
// what to do. `onBytes`, where given, is called with the length of each piece read; its
// error ends the reading and is returned as it is.
absl::Status checkStoredFile(const std::string& fullPath, const StoredFile& expected,
                             const std::function<absl::Status(uint64_t bytes)>& onBytes);

struct StoredFileSelection {
  std::vector<int> partitions;  // in range; listed twice counts once
  bool features = true;         // false leaves out node and edge features
};
// The files of global/ and of the partitions: paths into manifest.files, ascending.
std::vector<std::string> selectFiles(const Manifest& manifest, const StoredFileSelection& selection);

// Share `share` of `shares` (0 <= share < shares) of these files: largest first, each to the share that has the
// fewest bytes so far. Depends on the arguments alone. Every file is in exactly one share.
std::vector<std::string> dealFiles(const Manifest& manifest, const std::vector<std::string>& paths, int share,
                                   int shares);

}  // namespace farhop::partition
