// Lines of fields: csv, tab-separated, blank-separated; and the numbers in them.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/npy.h"
#include "base/status.h"

namespace farhop::importers {

struct Dialect {
  char delimiter = 0;              // 0: runs of blanks and tabs
  std::string comments = "#%";     // a line that begins with one of these is none
};

// "comma", "tab", "semicolon", "blank", or one character. InvalidArgument for anything else.
absl::StatusOr<char> parseDelimiter(const std::string& text);
absl::string_view delimiterName(char delimiter);

inline bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

inline absl::string_view trimBlanks(absl::string_view text) {
  while (!text.empty() && isBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && isBlank(text.back())) text.remove_suffix(1);
  return text;
}

// The fields of one line, from left to right. Around fields blanks are dropped, and so are double quotes; between these a
// delimiter is an ordinary character (a line end is not: a quoted field ends with its line).
class FieldReader {
 public:
  FieldReader(absl::string_view line, char delimiter)
      : at_(line.data()), end_(line.data() + line.size()), delimiter_(delimiter) {}

  bool next(absl::string_view* field) {
    if (delimiter_ == 0) return nextWord(field);
    if (done_) return false;
    const char* begin = at_;
    bool quoted = false;
    while (at_ != end_ && (*at_ != delimiter_ || quoted)) quoted ^= *at_++ == '"';
    *field = unquoted(trimBlanks({begin, static_cast<size_t>(at_ - begin)}));
    done_ = at_ == end_;
    if (!done_) ++at_;
    return true;
  }

 private:
  bool nextWord(absl::string_view* field) {
    while (at_ != end_ && isBlank(*at_)) ++at_;
    if (at_ == end_) return false;
    const char* begin = at_;
    bool quoted = false;
    while (at_ != end_ && (!isBlank(*at_) || quoted)) quoted ^= *at_++ == '"';
    *field = unquoted({begin, static_cast<size_t>(at_ - begin)});
    return true;
  }
  static absl::string_view unquoted(absl::string_view text) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') return text.substr(1, text.size() - 2);
    return text;
  }

  const char* at_;
  const char* end_;
  char delimiter_;
  bool done_ = false;
};

// Calls onLine(line, number) for each line of `text` that is neither empty nor a comment, until an error.
template <typename OnLine>
absl::Status eachLine(absl::string_view text, uint64_t firstLine, const std::string& comments, const OnLine& onLine) {
  for (uint64_t number = firstLine; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const absl::string_view line = trimBlanks(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || comments.find(line.front()) != std::string::npos) continue;
    FARHOP_RETURN_IF_ERROR(onLine(line, number));
  }
  return absl::OkStatus();
}

// The whole of `text` as a number, with a leading '+' allowed; false when it is none or does not fit.
template <typename T>
bool parseNumber(absl::string_view text, T* value) {
  if (text.size() > 1 && text.front() == '+') text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// Appends the number in `text` as a `dtype` (int32, int64, float32 or float64); false when it is none. Infinities and
// "nan" are numbers of floating types.
bool appendNumber(absl::string_view text, DType dtype, std::string* values);

// For messages: cut to a length that fits into a line.
std::string shown(absl::string_view text);

}  // namespace farhop::importers
