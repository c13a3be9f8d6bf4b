// Files that torch.save and pickle.dump write, read without executing anything (importers/pickle.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "importers/pickle.h"

namespace farhop::importers {

// A .pt file: a zip archive, or the older form. Tensors stay mapped.
absl::StatusOr<PickleDocument> openTorchFile(const std::string& path);
// A .pt file that is one tensor; InvalidArgument when it is something else.
absl::StatusOr<ArrayView> openTensor(const std::string& path);
// All pickles of a file, one after the other, each of any form. Tensors stay mapped.
absl::StatusOr<std::vector<PickleDocument>> openPickles(const std::string& path);

// The older form of .pt in memory: what torch wrote before version 1.6, and writes into pickles.
absl::StatusOr<PickleDocument> readTorchStream(std::span<const std::byte> bytes, const PickleOptions& options,
                                               size_t* used = nullptr);

}  // namespace farhop::importers
