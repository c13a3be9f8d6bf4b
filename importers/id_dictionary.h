// From the ids that a source has to 0, 1, 2, ..., in the order in which they are first seen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace farhop::importers {

// Needs the strings and about 100 bytes besides for each; this is what the result is, so no bound is set. Not thread-safe.
class StringDictionary {
 public:
  // Asks for the memory that number() of the same id will read.
  void prefetch(absl::string_view id) const { numbers_.prefetch(id); }
  uint64_t number(absl::string_view id);
  uint64_t size() const { return ids_.size(); }
  // One id per line; line i (from 0) is that of node i.
  absl::Status save(const std::string& path) const;

 private:
  absl::string_view keep(absl::string_view id);

  absl::flat_hash_map<absl::string_view, uint64_t> numbers_;
  std::vector<absl::string_view> ids_;
  std::vector<std::unique_ptr<char[]>> memory_;
  size_t free_ = 0;  // at the end of the last piece of `memory_`
  char* at_ = nullptr;
};

// About 50 bytes for each id. Not thread-safe.
class IntegerDictionary {
 public:
  void prefetch(uint64_t id) const { numbers_.prefetch(id); }
  uint64_t number(uint64_t id);
  uint64_t size() const { return ids_.size(); }
  // int64 [nodes], the id of node i.
  absl::Status save(const std::string& path) const;

 private:
  absl::flat_hash_map<uint64_t, uint64_t> numbers_;
  std::vector<uint64_t> ids_;
};

}  // namespace farhop::importers
