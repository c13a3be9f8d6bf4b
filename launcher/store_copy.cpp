#include "launcher/store_copy.h"

#include "base/file.h"
#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/store_checksums.h"

namespace farhop::launcher {

std::vector<std::string> filesOfMachine(const partition::Manifest& manifest, int machine, int machines) {
  partition::StoredFileSelection selection;
  for (int k = 0; k < manifest.numPartitions(); ++k) {
    if (partition::machineOfPartition(k, manifest.numPartitions(), machines) == machine) selection.partitions.push_back(k);
  }
  return partition::selectFiles(manifest, selection);
}

absl::StatusOr<CopyState> compareCopy(const std::string& directory, const partition::Manifest& manifest,
                                      absl::string_view manifestText, const std::vector<std::string>& files) {
  CopyState state;
  for (const std::string& path : files) {
    const partition::StoredFile& expected = manifest.files.at(path);
    const absl::Status found = partition::checkStoredFile(absl::StrCat(directory, "/", path), expected, {});
    if (found.ok()) continue;
    if (!absl::IsNotFound(found) && !absl::IsDataLoss(found)) return found;
    state.wrong.push_back(path);
    state.wrongBytes += expected.bytes;
  }
  const auto text = readFile(absl::StrCat(directory, "/", partition::kManifestFile));
  state.manifestSame = text.ok() && *text == manifestText;
  return state;
}

}  // namespace farhop::launcher
