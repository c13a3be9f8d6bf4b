#include "importers/id_dictionary.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/file.h"
#include "base/npy.h"

namespace farhop::importers {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

uint64_t StringDictionary::number(absl::string_view id) {
  const auto known = numbers_.find(id);
  if (known != numbers_.end()) return known->second;
  const absl::string_view kept = keep(id);
  numbers_.emplace(kept, ids_.size());
  ids_.push_back(kept);
  return ids_.size() - 1;
}

absl::string_view StringDictionary::keep(absl::string_view id) {
  if (id.empty()) return {};
  if (id.size() > free_) {
    const size_t bytes = std::max(id.size(), kPieceBytes);
    memory_.push_back(std::make_unique<char[]>(bytes));
    at_ = memory_.back().get();
    free_ = bytes;
  }
  std::memcpy(at_, id.data(), id.size());
  const absl::string_view kept(at_, id.size());
  at_ += id.size();
  free_ -= id.size();
  return kept;
}

absl::Status StringDictionary::save(const std::string& path) const {
  FARHOP_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  for (const absl::string_view id : ids_) {
    FARHOP_RETURN_IF_ERROR(file.write(id.data(), id.size()));
    FARHOP_RETURN_IF_ERROR(file.write("\n", 1));
  }
  return file.commit(Durability::kStarted);
}

uint64_t IntegerDictionary::number(uint64_t id) {
  const auto [at, added] = numbers_.try_emplace(id, ids_.size());
  if (added) ids_.push_back(id);
  return at->second;
}

absl::Status IntegerDictionary::save(const std::string& path) const {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, DType::kInt64, {ids_.size()}));
  FARHOP_RETURN_IF_ERROR(writer.write(ids_.data(), ids_.size() * sizeof(uint64_t)));
  return writer.commit(Durability::kStarted);
}

}  // namespace farhop::importers
