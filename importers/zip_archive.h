// Zip archives, as .npz and .pt files are: their entries by name. Only what those need: entries that are stored or deflated,
// zip64, no encryption, one volume.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace farhop::importers {

struct ZipEntry {
  std::string name;
  bool deflated = false;
  uint64_t packedBytes = 0;
  uint64_t bytes = 0;
  uint32_t crc = 0;
  uint64_t headerOffset = 0;  // of its local header
};

// A mapped archive. Thread-safe: read-only. Hostile input is an error, never a crash (fuzzed).
class ZipArchive {
 public:
  static absl::StatusOr<std::shared_ptr<const ZipArchive>> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, ZipEntry>& entries() const { return entries_; }
  // NotFound names the archive and the entry.
  absl::StatusOr<const ZipEntry*> find(const std::string& name) const;

  // The bytes of a stored entry, borrowed from the mapping; their checksum is not compared, since that would read them all.
  // InvalidArgument when it is deflated.
  absl::StatusOr<std::span<const std::byte>> stored(const ZipEntry& entry) const;
  // All bytes of an entry, checked; ResourceExhausted beyond `maxBytes`.
  absl::StatusOr<std::string> read(const ZipEntry& entry, size_t maxBytes) const;
  // Unpacks a deflated or stored entry into `directory`, unlinked at once, and maps it: memory stays bounded.
  absl::StatusOr<std::span<const std::byte>> unpack(const ZipEntry& entry, const std::string& directory,
                                                    std::shared_ptr<const void>* owner) const;

 private:
  absl::Status readDirectory();
  absl::StatusOr<ZipEntry> readEntry(std::span<const std::byte> bytes, size_t* at) const;
  absl::StatusOr<std::span<const std::byte>> packed(const ZipEntry& entry) const;
  // Calls onBytes(data, size) for the unpacked bytes, piece by piece, and checks length and checksum.
  template <typename OnBytes>
  absl::Status inflateEntry(const ZipEntry& entry, const OnBytes& onBytes) const;
  absl::Status damaged(absl::string_view what) const;

  std::string path_;
  MappedFile file_;
  std::map<std::string, ZipEntry> entries_;
};

}  // namespace farhop::importers
