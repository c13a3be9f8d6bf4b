#include "importers/zip_archive.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/socket.h"

namespace farhop::importers {
namespace {

constexpr uint32_t kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50, kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50;
constexpr size_t kEntryBytes = 46, kLocalBytes = 30, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr size_t kMaxCommentBytes = 65535;
constexpr size_t kMaxEntries = size_t{1} << 20;
constexpr uint16_t kZip64Extra = 1;

template <typename T>
T number(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct DirectoryPlace {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

}  // namespace

absl::Status ZipArchive::damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, " is no sound zip archive: ", what, "; copy or write it again"));
}

absl::StatusOr<std::shared_ptr<const ZipArchive>> ZipArchive::open(const std::string& path) {
  auto archive = std::make_shared<ZipArchive>();
  archive->path_ = path;
  FARHOP_ASSIGN_OR_RETURN(archive->file_, MappedFile::open(path));
  FARHOP_RETURN_IF_ERROR(archive->readDirectory());
  return archive;
}

absl::Status ZipArchive::readDirectory() {
  const std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < kEndBytes) return damaged("it is too short");
  // The end record lies before a comment of unknown length.
  size_t end = bytes.size() - kEndBytes;
  const size_t first = end > kMaxCommentBytes ? end - kMaxCommentBytes : 0;
  while (number<uint32_t>(bytes, end) != kEndSignature) {
    if (end == first) return damaged("there is no directory at its end (was it cut short?)");
    --end;
  }
  DirectoryPlace place{number<uint32_t>(bytes, end + 16), number<uint32_t>(bytes, end + 12),
                       number<uint16_t>(bytes, end + 10)};
  if (end >= kLocator64Bytes && number<uint32_t>(bytes, end - kLocator64Bytes) == kLocator64Signature) {
    const uint64_t at = number<uint64_t>(bytes, end - kLocator64Bytes + 8);
    if (at > bytes.size() || bytes.size() - at < kEnd64Bytes || number<uint32_t>(bytes, at) != kEnd64Signature) {
      return damaged("its 64-bit directory is missing");
    }
    place = {number<uint64_t>(bytes, at + 48), number<uint64_t>(bytes, at + 40), number<uint64_t>(bytes, at + 32)};
  }
  if (place.offset > bytes.size() || place.bytes > bytes.size() - place.offset) return damaged("its directory is missing");
  if (place.entries > kMaxEntries) return damaged(absl::StrCat("it claims ", place.entries, " entries"));
  const auto directory = bytes.subspan(place.offset, place.bytes);
  size_t at = 0;
  for (uint64_t i = 0; i < place.entries; ++i) {
    FARHOP_ASSIGN_OR_RETURN(ZipEntry entry, readEntry(directory, &at));
    std::string name = entry.name;
    if (!entries_.emplace(std::move(name), std::move(entry)).second) return damaged("two entries have one name");
  }
  return absl::OkStatus();
}

absl::StatusOr<ZipEntry> ZipArchive::readEntry(std::span<const std::byte> bytes, size_t* at) const {
  if (bytes.size() - *at < kEntryBytes || number<uint32_t>(bytes, *at) != kEntrySignature) {
    return damaged("an entry of its directory is missing");
  }
  const auto fixed = bytes.subspan(*at);
  const size_t nameBytes = number<uint16_t>(fixed, 28), extraBytes = number<uint16_t>(fixed, 30);
  const size_t all = kEntryBytes + nameBytes + extraBytes + number<uint16_t>(fixed, 32);
  if (fixed.size() < all) return damaged("an entry of its directory is cut short");
  *at += all;
  ZipEntry entry;
  entry.name.assign(reinterpret_cast<const char*>(fixed.data()) + kEntryBytes, nameBytes);
  const uint16_t flags = number<uint16_t>(fixed, 8), method = number<uint16_t>(fixed, 10);
  if ((flags & 1) != 0) return damaged(absl::StrCat("'", entry.name, "' is encrypted"));
  if (method != 0 && method != 8) return damaged(absl::StrCat("'", entry.name, "' is packed by the unknown method ", method));
  entry.deflated = method == 8;
  entry.crc = number<uint32_t>(fixed, 16);
  entry.packedBytes = number<uint32_t>(fixed, 20);
  entry.bytes = number<uint32_t>(fixed, 24);
  entry.headerOffset = number<uint32_t>(fixed, 42);
  const auto extra = fixed.subspan(kEntryBytes + nameBytes, extraBytes);
  for (size_t i = 0; i + 4 <= extra.size();) {
    const size_t size = number<uint16_t>(extra, i + 2);
    if (extra.size() - i - 4 < size) return damaged("an extra field is cut short");
    if (number<uint16_t>(extra, i) == kZip64Extra) {
      // Those of the three that did not fit, in this order.
      size_t field = i + 4;
      for (uint64_t* value : {&entry.bytes, &entry.packedBytes, &entry.headerOffset}) {
        if (*value != UINT32_MAX) continue;
        if (field + 8 > i + 4 + size) return damaged("a 64-bit size is missing");
        *value = number<uint64_t>(extra, field);
        field += 8;
      }
    }
    i += 4 + size;
  }
  return entry;
}

absl::StatusOr<const ZipEntry*> ZipArchive::find(const std::string& name) const {
  const auto entry = entries_.find(name);
  if (entry != entries_.end()) return &entry->second;
  return absl::NotFoundError(absl::StrCat(path_, " has no entry '", name, "'"));
}

absl::StatusOr<std::span<const std::byte>> ZipArchive::packed(const ZipEntry& entry) const {
  const std::span<const std::byte> bytes = file_.bytes();
  const uint64_t at = entry.headerOffset;
  if (at > bytes.size() || bytes.size() - at < kLocalBytes || number<uint32_t>(bytes, at) != kLocalSignature) {
    return damaged(absl::StrCat("'", entry.name, "' is not where the directory says"));
  }
  const size_t before = kLocalBytes + number<uint16_t>(bytes, at + 26) + number<uint16_t>(bytes, at + 28);
  if (bytes.size() - at < before || bytes.size() - at - before < entry.packedBytes) {
    return damaged(absl::StrCat("'", entry.name, "' is cut short"));
  }
  return bytes.subspan(at + before, entry.packedBytes);
}

absl::StatusOr<std::span<const std::byte>> ZipArchive::stored(const ZipEntry& entry) const {
  if (entry.deflated) return absl::InvalidArgumentError(absl::StrCat(path_, ": '", entry.name, "' is compressed"));
  FARHOP_ASSIGN_OR_RETURN(const auto bytes, packed(entry));
  if (entry.bytes != bytes.size()) return damaged(absl::StrCat("'", entry.name, "' has two sizes"));
  return bytes;
}

template <typename OnBytes>
absl::Status ZipArchive::inflateEntry(const ZipEntry& entry, const OnBytes& onBytes) const {
  FARHOP_ASSIGN_OR_RETURN(std::span<const std::byte> input, packed(entry));
  uint32_t crc = static_cast<uint32_t>(::crc32(0, nullptr, 0));
  uint64_t total = 0;
  const auto take = [&](const char* data, size_t size) -> absl::Status {
    if (size > entry.bytes - total) return damaged(absl::StrCat("'", entry.name, "' is longer than it says"));
    total += size;
    crc = static_cast<uint32_t>(::crc32(crc, reinterpret_cast<const Bytef*>(data), static_cast<uInt>(size)));
    return onBytes(data, size);
  };
  constexpr size_t kPieceBytes = size_t{1} << 18;
  if (!entry.deflated) {
    for (size_t at = 0; at < input.size(); at += kPieceBytes) {
      FARHOP_RETURN_IF_ERROR(take(reinterpret_cast<const char*>(input.data()) + at, std::min(kPieceBytes, input.size() - at)));
    }
  } else {
    struct Stream {
      z_stream z{};
      ~Stream() { ::inflateEnd(&z); }
    } stream;
    if (::inflateInit2(&stream.z, -15) != Z_OK) return absl::ResourceExhaustedError("no memory to unpack a zip entry");
    std::vector<char> output(kPieceBytes);
    int result = Z_OK;
    while (result != Z_STREAM_END) {
      if (stream.z.avail_in == 0 && !input.empty()) {
        const size_t piece = std::min(kPieceBytes, input.size());
        stream.z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
        stream.z.avail_in = static_cast<uInt>(piece);
        input = input.subspan(piece);
      }
      stream.z.next_out = reinterpret_cast<Bytef*>(output.data());
      stream.z.avail_out = static_cast<uInt>(output.size());
      result = ::inflate(&stream.z, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END) return damaged(absl::StrCat("'", entry.name, "' cannot be unpacked"));
      FARHOP_RETURN_IF_ERROR(take(output.data(), output.size() - stream.z.avail_out));
    }
  }
  if (total != entry.bytes || crc != entry.crc) return damaged(absl::StrCat("'", entry.name, "' does not have its checksum"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ZipArchive::read(const ZipEntry& entry, size_t maxBytes) const {
  if (entry.bytes > maxBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path_, ": '", entry.name, "' is ", entry.bytes, " bytes long; at most ", maxBytes, " are read"));
  }
  std::string result;
  FARHOP_RETURN_IF_ERROR(inflateEntry(entry, [&](const char* data, size_t size) {
    result.append(data, size);
    return absl::OkStatus();
  }));
  return result;
}

absl::StatusOr<std::span<const std::byte>> ZipArchive::unpack(const ZipEntry& entry, const std::string& directory,
                                                              std::shared_ptr<const void>* owner) const {
  std::string pattern = directory + "/.unpacked-XXXXXX";
  FileDescriptor fd(::mkostemp(pattern.data(), O_CLOEXEC));
  if (!fd.valid()) return errnoStatus(absl::StrCat("creating ", pattern), errno);
  ::unlink(pattern.c_str());
  FARHOP_RETURN_IF_ERROR(inflateEntry(entry, [&](const char* data, size_t size) -> absl::Status {
    while (size > 0) {
      const ssize_t n = ::write(fd.get(), data, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errnoStatus(absl::StrCat("unpacking ", path_, " in ", directory), errno);
      data += n;
      size -= static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }));
  const size_t bytes = static_cast<size_t>(entry.bytes);
  if (bytes == 0) return std::span<const std::byte>();
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return errnoStatus(absl::StrCat("mapping what ", path_, " holds"), errno);
  *owner = std::shared_ptr<const void>(address, [bytes](const void* at) { ::munmap(const_cast<void*>(at), bytes); });
  return std::span<const std::byte>(static_cast<const std::byte*>(address), bytes);
}

}  // namespace farhop::importers
