#include "launcher/config_file.h"

#include <CLI/CLI.hpp>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "base/file.h"

namespace farhop::launcher {
namespace {

constexpr size_t kMaxValues = 100'000;

class ConfigFile {
 public:
  ConfigFile(const std::string& path, CLI::App& command) : path_(path), command_(command) {}

  absl::Status apply(const YAML::Node& root, std::optional<std::vector<std::string>>& trainer) {
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) return error(root, "a mapping of flags is expected, as in graph: /data/store");
    std::set<CLI::Option*> seen;
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) return error(entry.first, "a flag's name is expected");
      const std::string key = entry.first.Scalar();
      if (key == "trainer") {
        FARHOP_ASSIGN_OR_RETURN(std::vector<std::string> words, valuesOf(key, entry.second));
        if (!trainer) trainer = std::move(words);
        continue;
      }
      std::string name = "--" + key;
      std::replace(name.begin() + 2, name.end(), '_', '-');
      CLI::Option* const option = command_.get_option_no_throw(name);
      if (option == nullptr || key == "config" || key == "help") {
        return error(entry.first, absl::StrCat("'", key.substr(0, 60), "' is no flag of farhop ", command_.get_name()));
      }
      if (!seen.insert(option).second) return error(entry.first, absl::StrCat("'", key, "' is given twice"));
      FARHOP_RETURN_IF_ERROR(applyOption(key, entry.second, *option));
    }
    return absl::OkStatus();
  }

  absl::Status error(const YAML::Node& node, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("--config ", path_, " line ", node.Mark().line + 1, ": ", what));
  }

 private:
  absl::Status applyOption(const std::string& key, const YAML::Node& node, CLI::Option& option) const {
    FARHOP_ASSIGN_OR_RETURN(std::vector<std::string> values, valuesOf(key, node));
    const bool isFlag = option.get_expected_max() == 0;
    if (isFlag && (values.size() != 1 || (values[0] != "true" && values[0] != "false"))) {
      return error(node, absl::StrCat("'", key, "' is true or false"));
    }
    if (option.count() > 0 || values.empty() || (isFlag && values[0] == "false")) return absl::OkStatus();
    for (const std::string& value : values) option.add_result(value);
    try {
      option.run_callback();
    } catch (const CLI::Error& refused) {
      return error(node, refused.what());
    }
    return absl::OkStatus();
  }

  // A scalar is one value, a list several, a mapping NAME=VALUE for each of its entries.
  absl::StatusOr<std::vector<std::string>> valuesOf(const std::string& key, const YAML::Node& node) const {
    std::vector<std::string> values;
    if (node.IsNull()) return values;
    if (node.size() > kMaxValues) return error(node, absl::StrCat("'", key, "' has too many values"));
    if (node.IsScalar()) {
      values.push_back(node.Scalar());
    } else if (node.IsSequence()) {
      for (const YAML::Node& element : node) {
        if (!element.IsScalar()) return error(element, absl::StrCat("'", key, "' is a list of single values"));
        values.push_back(element.Scalar());
      }
    } else {
      for (const auto& entry : node) {
        if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
          return error(entry.first, absl::StrCat("'", key, "' is a mapping of names to single values"));
        }
        values.push_back(absl::StrCat(entry.first.Scalar(), "=", entry.second.Scalar()));
      }
    }
    return values;
  }

  const std::string& path_;
  CLI::App& command_;
};

}  // namespace

absl::Status applyConfigFile(const std::string& path, CLI::App& command, std::optional<std::vector<std::string>>& trainer) {
  const absl::StatusOr<std::string> text = readFile(path);
  if (!text.ok()) return annotate(text.status(), "--config");
  if (text->size() > kMaxConfigBytes) return absl::InvalidArgumentError(absl::StrCat("--config ", path, " is too long"));
  try {
    return ConfigFile(path, command).apply(YAML::Load(*text), trainer);
  } catch (const YAML::Exception& broken) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config ", path, " line ", broken.mark.line + 1, ": ", broken.msg));
  }
}

}  // namespace farhop::launcher
