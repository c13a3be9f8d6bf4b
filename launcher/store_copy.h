// What of a store a machine needs, and whether a directory has it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "partition/manifest.h"

namespace farhop::launcher {

// Global files and those of the partitions that the machine serves; not graph.json.
std::vector<std::string> filesOfMachine(const partition::Manifest& manifest, int machine, int machines);

struct CopyState {
  std::vector<std::string> wrong;  // missing, of another size or checksum; relative paths
  uint64_t wrongBytes = 0;         // of these files, as they should be
  bool manifestSame = false;       // graph.json is there, byte for byte
  bool complete() const { return wrong.empty() && manifestSame; }
};
// Reads all of the machine's files. An error when the directory cannot be read.
absl::StatusOr<CopyState> compareCopy(const std::string& directory, const partition::Manifest& manifest,
                                      absl::string_view manifestText, const std::vector<std::string>& files);

}  // namespace farhop::launcher
