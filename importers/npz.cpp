#include "importers/npz.h"

namespace farhop::importers {

absl::StatusOr<NpzFile> NpzFile::open(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(auto archive, ZipArchive::open(path));
  return NpzFile(std::move(archive));
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : archive_->entries()) {
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0) names.push_back(name.substr(0, name.size() - 4));
  }
  return names;
}

absl::StatusOr<ArrayView> NpzFile::array(const std::string& name, const std::string& directory) const {
  FARHOP_ASSIGN_OR_RETURN(const ZipEntry* entry, archive_->find(name + ".npy"));
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner = archive_;
  if (entry->deflated) {
    FARHOP_ASSIGN_OR_RETURN(bytes, archive_->unpack(*entry, directory, &owner));
  } else {
    FARHOP_ASSIGN_OR_RETURN(bytes, archive_->stored(*entry));
  }
  ArrayView view;
  view.origin = absl::StrCat(archive_->path(), " (", name, ")");
  auto header = parseNpyHeader(bytes);
  if (!header.ok()) return annotate(header.status(), view.origin);
  FARHOP_RETURN_IF_ERROR(describeNpy(*header, bytes, &view));
  view.owner = std::move(owner);
  return view;
}

}  // namespace farhop::importers
