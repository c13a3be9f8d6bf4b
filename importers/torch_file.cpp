#include "importers/torch_file.h"

#include <cstring>
#include <map>
#include <utility>

#include "base/file.h"
#include "importers/zip_archive.h"

namespace farhop::importers {
namespace {

constexpr size_t kMaxPickleBytes = size_t{256} << 20;
// 0x1950a86a20f9469cfc6c, little-endian, as an integer of a pickle.
constexpr unsigned char kStreamMagic[] = {0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19};
constexpr char kPickleName[] = "data.pkl";

struct MappedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

absl::StatusOr<MappedBytes> mapFile(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  auto shared = std::make_shared<const MappedFile>(std::move(file));
  return MappedBytes{shared->bytes(), shared};
}

bool isZip(std::span<const std::byte> bytes) { return bytes.size() >= 4 && std::memcmp(bytes.data(), "PK\x03\x04", 4) == 0; }

bool isStreamMagic(const PickleValue& value) {
  return value.is(PickleValue::Kind::kInteger) && value.text.size() == sizeof(kStreamMagic) &&
         std::memcmp(value.text.data(), kStreamMagic, sizeof(kStreamMagic)) == 0;
}

// A document that keeps alive the memory its texts lie in.
absl::StatusOr<PickleDocument> openZip(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(const std::shared_ptr<const ZipArchive> archive, ZipArchive::open(path));
  const ZipEntry* pickle = nullptr;
  for (const auto& [name, entry] : archive->entries()) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos && name.substr(slash + 1) == kPickleName) pickle = &entry;
  }
  if (pickle == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, " is no .pt file: it has no ", kPickleName));
  const std::string prefix = pickle->name.substr(0, pickle->name.size() - std::strlen(kPickleName));
  const auto order = archive->entries().find(prefix + "byteorder");
  if (order != archive->entries().end()) {
    FARHOP_ASSIGN_OR_RETURN(const std::string text, archive->read(order->second, 16));
    if (text != "little") return absl::InvalidArgumentError(absl::StrCat(path, " is big-endian; save it again on x86 or ARM"));
  }
  if (pickle->bytes > kMaxPickleBytes) return absl::InvalidArgumentError(absl::StrCat(path, ": its pickle is too long"));
  FARHOP_ASSIGN_OR_RETURN(const auto bytes, archive->stored(*pickle));
  PickleOptions options;
  options.origin = path;
  options.owner = archive;
  options.storage = [&](const StorageRequest& request) -> absl::StatusOr<StorageMemory> {
    FARHOP_ASSIGN_OR_RETURN(const ZipEntry* entry, archive->find(absl::StrCat(prefix, "data/", request.key)));
    FARHOP_ASSIGN_OR_RETURN(const auto data, archive->stored(*entry));
    return StorageMemory{data, archive};
  };
  FARHOP_ASSIGN_OR_RETURN(PickleDocument document, readPickle(bytes, options));
  document.keep(archive);
  return document;
}

}  // namespace

absl::StatusOr<PickleDocument> readTorchStream(std::span<const std::byte> bytes, const PickleOptions& options, size_t* used) {
  size_t at = 0;
  const auto next = [&](const StorageProvider& provider) {
    PickleOptions inner = options;
    inner.storage = provider;
    return readPickle(bytes.subspan(at), inner);
  };
  for (int i = 0; i < 3; ++i) {  // magic, protocol, what machine wrote it
    FARHOP_ASSIGN_OR_RETURN(const PickleDocument head, next({}));
    if (i == 0 && !isStreamMagic(head.root())) {
      return absl::InvalidArgumentError(absl::StrCat(options.origin, " is no .pt file"));
    }
    at += head.bytes();
  }
  // The storages lie behind the pickle that names them: it is read once for their names, and again with their memory.
  std::map<std::string, DType> dtypes;
  const std::vector<std::byte> nothing;
  StorageProvider note = [&](const StorageRequest& request) -> absl::StatusOr<StorageMemory> {
    dtypes[request.key] = request.dtype;
    const uint64_t size = request.elements * dtypeBytes(request.dtype);
    if (size > bytes.size()) return absl::DataLossError(absl::StrCat(options.origin, " ends within a tensor"));
    return StorageMemory{bytes.subspan(0, size), nullptr};
  };
  FARHOP_ASSIGN_OR_RETURN(const PickleDocument first, next(note));
  const size_t objectAt = std::exchange(at, at + first.bytes());
  FARHOP_ASSIGN_OR_RETURN(const PickleDocument keys, next({}));
  at += keys.bytes();
  std::map<std::string, std::span<const std::byte>> storages;
  for (const PickleValue* key : keys.root().items) {
    uint64_t elements = 0;
    const auto dtype = dtypes.find(std::string(key->text));
    if (dtype == dtypes.end() || bytes.size() - at < sizeof(elements)) {
      return absl::DataLossError(absl::StrCat(options.origin, ": a storage is missing"));
    }
    std::memcpy(&elements, bytes.data() + at, sizeof(elements));
    at += sizeof(elements);
    if (elements > (bytes.size() - at) / dtypeBytes(dtype->second)) {
      return absl::DataLossError(absl::StrCat(options.origin, " ends within a tensor; copy it again"));
    }
    storages[dtype->first] = bytes.subspan(at, elements * dtypeBytes(dtype->second));
    at += elements * dtypeBytes(dtype->second);
  }
  if (used != nullptr) *used = at;
  PickleOptions second = options;
  second.storage = [&](const StorageRequest& request) -> absl::StatusOr<StorageMemory> {
    const auto storage = storages.find(request.key);
    if (storage == storages.end()) return absl::DataLossError(absl::StrCat(options.origin, ": a storage is missing"));
    return StorageMemory{storage->second, options.owner};
  };
  return readPickle(bytes.subspan(objectAt), second);
}

absl::StatusOr<PickleDocument> openTorchFile(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(const MappedBytes file, mapFile(path));
  if (isZip(file.bytes)) return openZip(path);
  PickleOptions options;
  options.origin = path;
  options.owner = file.owner;
  FARHOP_ASSIGN_OR_RETURN(PickleDocument document, readTorchStream(file.bytes, options));
  document.keep(file.owner);
  return document;
}

absl::StatusOr<ArrayView> openTensor(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(const PickleDocument document, openTorchFile(path));
  if (document.root().is(PickleValue::Kind::kTensor)) return *document.root().tensor;
  return absl::InvalidArgumentError(absl::StrCat(path, " does not hold a single tensor"));
}

absl::StatusOr<std::vector<PickleDocument>> openPickles(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(const MappedBytes file, mapFile(path));
  std::vector<PickleDocument> documents;
  if (isZip(file.bytes)) {
    FARHOP_ASSIGN_OR_RETURN(PickleDocument document, openZip(path));
    documents.push_back(std::move(document));
    return documents;
  }
  PickleOptions options;
  options.origin = path;
  options.owner = file.owner;
  for (size_t at = 0; at < file.bytes.size();) {
    const auto rest = file.bytes.subspan(at);
    FARHOP_ASSIGN_OR_RETURN(PickleDocument document, readPickle(rest, options));
    size_t used = document.bytes();
    if (isStreamMagic(document.root())) {
      FARHOP_ASSIGN_OR_RETURN(document, readTorchStream(rest, options, &used));
    }
    document.keep(file.owner);
    documents.push_back(std::move(document));
    at += used;
  }
  return documents;
}

}  // namespace farhop::importers
