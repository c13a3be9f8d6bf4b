// Typed access to a YAML document with errors that name file and line. No exception of yaml-cpp gets out.
#pragma once

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <string>
#include <utility>

#include "base/status.h"

namespace farhop::partition {

// A node of a document and the file it comes from. Cheap to copy.
class YamlReader {
 public:
  YamlReader(YAML::Node node, std::string file) : node_(std::move(node)), file_(std::move(file)) {}

  bool isMap() const { return node_.IsMap(); }
  bool isNull() const { return !node_.IsDefined() || node_.IsNull(); }

  // "metadata.yaml:12: what".
  absl::Status error(absl::string_view what) const { return errorAt(node_, what); }

  // A missing key and a null one are the same: has() is false.
  bool has(const char* key) const { return node_.IsMap() && find(key).IsDefined() && !find(key).IsNull(); }
  YamlReader optional(const char* key) const {
    return has(key) ? YamlReader(find(key), file_) : YamlReader(YAML::Node(YAML::NodeType::Null), file_);
  }
  absl::StatusOr<YamlReader> required(const char* key) const {
    if (!node_.IsMap()) return error(absl::StrCat("expected a mapping with the key '", key, "'"));
    if (!has(key)) return error(absl::StrCat("the key '", key, "' is missing"));
    return optional(key);
  }
  absl::StatusOr<std::string> text(const char* key) const {
    FARHOP_ASSIGN_OR_RETURN(YamlReader value, required(key));
    if (!value.node_.IsScalar()) return value.error(absl::StrCat("'", key, "' is not a single value"));
    return value.node_.Scalar();
  }
  absl::StatusOr<std::string> textOr(const char* key, std::string otherwise) const {
    if (!has(key)) return otherwise;
    return text(key);
  }
  absl::StatusOr<uint64_t> count(const char* key) const {
    FARHOP_ASSIGN_OR_RETURN(YamlReader value, required(key));
    FARHOP_ASSIGN_OR_RETURN(std::string digits, text(key));
    uint64_t number = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size() || number >> 48 != 0) {
      return value.error(absl::StrCat("'", key, "' is '", digits.substr(0, 60), "', not a count"));
    }
    return number;
  }
  // Calls read(YamlReader) for each element of a list; a missing or null key is an empty list.
  template <typename Read>
  absl::Status each(const char* key, const Read& read) const {
    if (!has(key)) return absl::OkStatus();
    const YamlReader list = optional(key);
    if (!list.node_.IsSequence()) return list.error(absl::StrCat("'", key, "' is not a list"));
    for (const YAML::Node& element : list.node_) FARHOP_RETURN_IF_ERROR(read(YamlReader(element, file_)));
    return absl::OkStatus();
  }

 private:
  // On a const node operator[] does not insert.
  YAML::Node find(const char* key) const {
    const YAML::Node& constant = node_;
    return constant[key];
  }
  absl::Status errorAt(const YAML::Node& node, absl::string_view what) const {
    const YAML::Mark mark = node.Mark();
    if (mark.is_null()) return absl::InvalidArgumentError(absl::StrCat(file_, ": ", what));
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", mark.line + 1, ": ", what));
  }

  YAML::Node node_;
  std::string file_;
};

}  // namespace farhop::partition
