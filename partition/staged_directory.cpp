#include "partition/staged_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

namespace fs = std::filesystem;

// The directory that `path` lies in and its last component, also for "a/b/" and "b".
std::pair<std::string, std::string> splitPathName(const std::string& path) {
  fs::path clean = fs::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  const std::string parent = clean.parent_path().string();
  return {parent.empty() ? "." : parent, clean.filename().string()};
}

void removeTree(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

bool isSameFile(int fd, const std::string& path) {
  struct stat opened {}, named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// Makes the directory if need be. FailedPrecondition when another process, or another call in this one, holds it.
absl::StatusOr<FileDescriptor> lockDirectory(const std::string& path) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return errnoStatus(absl::StrCat("creating ", path), errno);
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() && errno == ENOENT) continue;  // its owner has just finished
    if (!fd.valid()) return errnoStatus(absl::StrCat("opening ", path), errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return errnoStatus(absl::StrCat("locking ", path), errno);
      return absl::FailedPreconditionError(
          absl::StrCat("another run is writing this store (it holds ", path, "); wait for it, or choose another name"));
    }
    // Renamed between the two calls: then what is locked is a finished store.
    if (isSameFile(fd.get(), path)) return fd;
  }
  return absl::UnavailableError(absl::StrCat(path, " comes and goes; other runs write the same store"));
}

absl::Status checkReplaceable(const std::string& directory, bool force, const StagedKind& kind) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(directory, error);
  if (!fs::exists(status)) return absl::OkStatus();
  if (fs::is_directory(status) && fs::is_empty(directory, error) && !error) return absl::OkStatus();
  if (!fs::is_directory(status) || !pathExists(absl::StrCat(directory, "/", kind.markerFile))) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " exists and is no ", kind.name, " (no ", kind.markerFile,
                     "); it is not touched. Choose another name or remove it"));
  }
  if (!force) {
    return absl::AlreadyExistsError(
        absl::StrCat(directory, " is a ", kind.name, " already; --force replaces it"));
  }
  return absl::OkStatus();
}

absl::Status syncTree(const std::string& root) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    FARHOP_RETURN_IF_ERROR(it->is_directory() ? syncDirectory(path) : syncFile(path));
  }
  if (error) return errnoStatus(absl::StrCat("reading ", root), error.value());
  return syncDirectory(root);
}

}  // namespace

absl::StatusOr<StagedDirectory> StagedDirectory::create(const std::string& directory, bool force,
                                                        StagedKind kind) {
  const auto [parent, name] = splitPathName(directory);
  if (name.empty() || name == "." || name == "..") {
    return absl::InvalidArgumentError(absl::StrCat("'", directory, "' is no name for the directory of a ", kind.name));
  }
  StagedDirectory staged;
  staged.final_ = absl::StrCat(parent, "/", name);
  staged.force_ = force;
  staged.kind_ = std::move(kind);
  FARHOP_RETURN_IF_ERROR(checkReplaceable(staged.final_, force, staged.kind_));
  FARHOP_RETURN_IF_ERROR(makeDirectories(parent));
  const std::string partial = absl::StrCat(parent, "/.", name, ".partial");
  FARHOP_ASSIGN_OR_RETURN(staged.lock_, lockDirectory(partial));
  staged.temporary_ = partial;
  return staged;
}

StagedDirectory::StagedDirectory(StagedDirectory&& other) noexcept
    : final_(std::move(other.final_)),
      temporary_(std::exchange(other.temporary_, std::string())),
      force_(other.force_),
      kind_(std::move(other.kind_)),
      lock_(std::move(other.lock_)) {}

StagedDirectory::~StagedDirectory() {
  if (!temporary_.empty()) removeTree(temporary_);
}

absl::Status StagedDirectory::sync() const { return syncTree(temporary_); }

absl::Status StagedDirectory::commit() {
  FARHOP_RETURN_IF_ERROR(checkReplaceable(final_, force_, kind_));
  const std::string parent = splitPathName(final_).first;
  // A rename onto a missing or empty directory is atomic.
  if (::rename(temporary_.c_str(), final_.c_str()) == 0) {
    temporary_.clear();
    return syncDirectory(parent);
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    return errnoStatus(absl::StrCat("renaming ", temporary_, " to ", final_), errno);
  }
  // Swaps the old store and the new one; there is no moment without a store.
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) {
      return errnoStatus(absl::StrCat("exchanging ", temporary_, " and ", final_), errno);
    }
    // File systems that cannot swap: the old store goes first.
    std::error_code error;
    fs::remove_all(final_, error);
    if (error) return errnoStatus(absl::StrCat("removing ", final_), error.value());
    if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
      return errnoStatus(absl::StrCat("renaming ", temporary_, " to ", final_), errno);
    }
    temporary_.clear();
    return syncDirectory(parent);
  }
  FARHOP_RETURN_IF_ERROR(syncDirectory(parent));
  removeTree(std::exchange(temporary_, std::string()));  // now the old store
  return absl::OkStatus();
}

}  // namespace farhop::partition
