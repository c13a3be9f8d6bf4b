#include "partition/store_checksums.h"

#include <algorithm>
#include <set>

#include "base/file.h"
#include "partition/graph_store.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

// Names hold no '/' (pathComponent), so the components of a path tell what it is:
// part-NNNNN/nodes/TYPE/feat/NAME.npy, part-NNNNN/edges/REL/feat/NAME.npy, part-NNNNN/nodes/TYPE/cache/feat/NAME.npy.
bool isFeature(const std::string& path) {
  size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    at = path.find('/', at);
    if (at == std::string::npos) return false;
    ++at;
  }
  if (path.compare(0, 5, "part-") != 0) return false;
  return path.compare(at, 5, "feat/") == 0 || path.compare(at, 11, "cache/feat/") == 0;
}

}  // namespace

absl::Status checkStoredFile(const std::string& fullPath, const StoredFile& expected,
                             const std::function<absl::Status(uint64_t bytes)>& onBytes) {
  const auto found = checksumFile(fullPath, onBytes);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(absl::StrCat(fullPath, " is missing; copy it again or write the store again"));
  }
  FARHOP_RETURN_IF_ERROR(found.status());
  if (found->bytes != expected.bytes) {
    return absl::DataLossError(absl::StrCat(fullPath, " has ", found->bytes, " bytes instead of ",
                                            expected.bytes, "; copy it again"));
  }
  if (found->checksum != expected.checksum) {
    return absl::DataLossError(
        absl::StrCat(fullPath, " is damaged: its checksum does not match; copy it again"));
  }
  return absl::OkStatus();
}

std::vector<std::string> selectFiles(const Manifest& manifest, const StoredFileSelection& selection) {
  std::set<std::string> folders = {"global"};
  for (int k : selection.partitions) folders.insert(partitionPath(k));
  std::vector<std::string> paths;
  for (const auto& [path, file] : manifest.files) {
    if (folders.count(path.substr(0, path.find('/'))) == 0) continue;
    if (selection.features || !isFeature(path)) paths.push_back(path);
  }
  return paths;
}

std::vector<std::string> dealFiles(const Manifest& manifest, const std::vector<std::string>& paths, int share,
                                   int shares) {
  std::vector<std::pair<uint64_t, std::string>> bySize;
  for (const std::string& path : paths) bySize.emplace_back(manifest.files.at(path).bytes, path);
  std::sort(bySize.begin(), bySize.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::set<std::pair<uint64_t, int>> loads;  // (bytes, share), the least loaded first
  for (int i = 0; i < shares; ++i) loads.emplace(0, i);
  std::vector<std::string> dealt;
  for (const auto& [bytes, path] : bySize) {
    auto least = loads.extract(loads.begin());
    if (least.value().second == share) dealt.push_back(path);
    least.value().first += bytes;
    loads.insert(std::move(least));
  }
  std::sort(dealt.begin(), dealt.end());
  return dealt;
}

absl::Status GraphStore::verifyChecksums(
    const std::vector<int>& partitions, int share, int shares, bool features,
    const std::function<absl::Status(uint64_t done, uint64_t total)>& progress) const {
  if (shares < 1 || share < 0 || share >= shares) {
    return absl::InvalidArgumentError(absl::StrCat("share ", share, " of ", shares, " does not exist"));
  }
  for (int k : partitions) {
    if (k >= 0 && k < numPartitions()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, " has no partition ", k, "; it has ", numPartitions()));
  }
  const std::vector<std::string> paths =
      dealFiles(manifest_, selectFiles(manifest_, {partitions, features}), share, shares);
  uint64_t done = 0, total = 0;
  for (const std::string& path : paths) total += manifest_.files.at(path).bytes;
  absl::Status stopped;
  const auto onBytes = [&](uint64_t bytes) {
    done += bytes;
    // A file that is longer than it should be is told when it ends.
    if (progress) stopped = progress(std::min(done, total), total);
    return stopped;
  };
  for (const std::string& path : paths) {
    const absl::Status status =
        checkStoredFile(absl::StrCat(directory_, "/", path), manifest_.files.at(path), onBytes);
    if (status.ok()) continue;
    if (!stopped.ok()) return stopped;
    return absl::Status(status.code(), absl::StrCat(status.message(), ". `farhop inspect --verify ", directory_,
                                                    "` names all files that are damaged"));
  }
  return absl::OkStatus();
}

}  // namespace farhop::partition
