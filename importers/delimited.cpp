#include "importers/delimited.h"

namespace farhop::importers {
namespace {

struct NamedDelimiter {
  absl::string_view name;
  char delimiter;
};
constexpr NamedDelimiter kDelimiters[] = {{"comma", ','}, {"tab", '\t'}, {"semicolon", ';'}, {"blank", 0}};

template <typename T>
bool appendAs(absl::string_view text, std::string* values) {
  T value{};
  if (!parseNumber(text, &value)) return false;
  values->append(reinterpret_cast<const char*>(&value), sizeof(value));
  return true;
}

}  // namespace

absl::StatusOr<char> parseDelimiter(const std::string& text) {
  for (const NamedDelimiter& known : kDelimiters) {
    if (text == known.name) return known.delimiter;
  }
  if (text == "\\t") return '\t';
  if (text == " ") return '\0';
  if (text.size() == 1 && text[0] != '"' && text[0] != '\n') return text[0];
  return absl::InvalidArgumentError(absl::StrCat("delimiter '", shown(text),
                                                 "' is none of comma, tab, semicolon, blank and single characters"));
}

absl::string_view delimiterName(char delimiter) {
  for (const NamedDelimiter& known : kDelimiters) {
    if (delimiter == known.delimiter) return known.name;
  }
  return "another character";
}

bool appendNumber(absl::string_view text, DType dtype, std::string* values) {
  switch (dtype) {
    case DType::kInt32:
      return appendAs<int32_t>(text, values);
    case DType::kInt64:
      return appendAs<int64_t>(text, values);
    case DType::kFloat64:
      return appendAs<double>(text, values);
    default:
      return appendAs<float>(text, values);
  }
}

std::string shown(absl::string_view text) {
  constexpr size_t kShownBytes = 60;
  std::string result(text.substr(0, kShownBytes));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text.size() > kShownBytes ? result + "..." : result;
}

}  // namespace farhop::importers
