// Sources of any kind as data set directories, for who reads them once.
#pragma once

#include <string>

#include "base/status.h"
#include "importers/dataset_output.h"

namespace farhop::importers {

// A data set directory as it is; or one that was imported for this, and is removed with this object. Movable.
class DirectSource {
 public:
  // `source` is what `farhop import` takes without options. What has to be imported is put beside `output`, in
  // ".NAME.imported": where the disk must have room anyway. One run at a time for one output.
  static absl::StatusOr<DirectSource> open(const std::string& source, const std::string& output, int threads,
                                           const ProgressReport& progress);
  DirectSource(DirectSource&& other) noexcept;
  DirectSource& operator=(DirectSource&&) = delete;
  ~DirectSource();

  // What partition::readDataset() takes.
  const std::string& path() const { return path_; }

 private:
  DirectSource(std::string path, bool temporary) : path_(std::move(path)), temporary_(temporary) {}

  std::string path_;
  bool temporary_;
};

}  // namespace farhop::importers
