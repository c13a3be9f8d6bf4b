// A directory that appears whole or not at all: filled under a temporary name beside its final one, synced,
// then renamed into place.
#pragma once

#include <string>

#include "base/socket.h"
#include "base/status.h"
#include "partition/layout.h"

namespace farhop::partition {

// What kind of directory it is: the file by which a finished one is known, and what messages call it.
struct StagedKind {
  std::string markerFile = kManifestFile;
  std::string name = "graph store";
};

// Not thread-safe. Destroyed without commit(), it removes what was written. A process that dies leaves ".NAME.partial"
// behind, which the next create() for the same name takes over as it is (a lock on the directory tells the dead from
// the living).
class StagedDirectory {
 public:
  // `directory` is the final name. AlreadyExists when there is one of this kind and not `force`; FailedPrecondition
  // when there is something else than that or an empty directory, which no option replaces, and when another run is
  // writing one of that name.
  static absl::StatusOr<StagedDirectory> create(const std::string& directory, bool force, StagedKind kind = {});
  StagedDirectory(StagedDirectory&& other) noexcept;
  StagedDirectory& operator=(StagedDirectory&&) = delete;
  ~StagedDirectory();

  // Where to write. What an earlier run left is still there.
  const std::string& path() const { return temporary_; }
  // Syncs every file and directory inside: cheap for files whose writing was started long ago
  // (Durability::kStarted), so that a store of many small arrays does not wait for the disk once per array.
  absl::Status sync() const;
  // Renames. All that was written must have been synced, by its writer or by sync().
  absl::Status commit();

 private:
  StagedDirectory() = default;

  std::string final_;
  std::string temporary_;  // empty once committed
  bool force_ = false;
  StagedKind kind_;
  FileDescriptor lock_;
};

}  // namespace farhop::partition
