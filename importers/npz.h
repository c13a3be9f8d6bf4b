// .npz archives: .npy files by name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "importers/array_view.h"
#include "importers/zip_archive.h"

namespace farhop::importers {

class NpzFile {
 public:
  static absl::StatusOr<NpzFile> open(const std::string& path);

  // Names without ".npy".
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return archive_->entries().count(name + ".npy") > 0; }
  // Stored arrays stay mapped in place; compressed ones are unpacked to a nameless file in `directory`.
  absl::StatusOr<ArrayView> array(const std::string& name, const std::string& directory) const;

 private:
  explicit NpzFile(std::shared_ptr<const ZipArchive> archive) : archive_(std::move(archive)) {}
  std::shared_ptr<const ZipArchive> archive_;
};

}  // namespace farhop::importers
