// Files: read-only mappings, whole-file reads, and writes that are either complete or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace farhop {

// A read-only shared mapping of a whole file. Movable; unmapped on destruction. An empty file maps to an
// empty span. Pages are the page cache's: all processes of a machine share them.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  static absl::StatusOr<MappedFile> open(const std::string& path);

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

enum class Durability {
  kSynced,   // on the disk when commit() returns
  kStarted,  // on its way there; the caller calls syncFile() before anything relies on the file
};

// Writes a file beside its final name and renames it on commit(): readers see the whole file or none.
// Destroyed without commit, it removes the temporary file. Not thread-safe.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Appends; buffered.
  absl::Status write(const void* data, size_t bytes);
  // Overwrites bytes already written (for headers known only at the end).
  absl::Status writeAt(uint64_t offset, const void* data, size_t bytes);
  // XXH3-64 of all appended bytes; only valid without writeAt().
  uint64_t checksum() const;
  uint64_t bytesWritten() const { return bytesWritten_; }

  // Flushes, fsyncs, renames, fsyncs the directory. With kStarted it only starts the writing instead of waiting for
  // it: for many files of a directory that nobody uses before it is synced as a whole.
  absl::Status commit(Durability durability = Durability::kSynced);

 private:
  AtomicFile() = default;
  absl::Status flush();

  struct Hash;
  std::string path_;
  std::string temporaryPath_;
  int fd_ = -1;
  std::string buffer_;
  uint64_t bytesWritten_ = 0;
  std::unique_ptr<Hash> hash_;
};

absl::StatusOr<std::string> readFile(const std::string& path);
absl::Status writeFileAtomically(const std::string& path, absl::string_view content);
absl::Status makeDirectories(const std::string& path);
absl::Status syncFile(const std::string& path);
absl::Status syncDirectory(const std::string& path);
bool pathExists(const std::string& path);

// XXH3-64 of a span; streams over mapped memory.
uint64_t checksum64(std::span<const std::byte> bytes);

struct FileChecksum {
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3-64 of all of them
};
// Reads a regular file from its beginning to its end through a buffer: resident memory does not grow with the
// file, a read error is a status (in a mapping it is SIGBUS), and the pages stay in the page cache. `onBytes`,
// where given, is called with the length of each piece; its error ends the reading and is returned as it is. NotFound
// when there is no such file.
absl::StatusOr<FileChecksum> checksumFile(const std::string& path,
                                          const std::function<absl::Status(uint64_t bytes)>& onBytes = {});

}  // namespace farhop
