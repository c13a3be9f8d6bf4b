// Slurm's compressed lists, expanded here rather than by calling scontrol, which compute nodes need not have.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {
namespace {

constexpr size_t kMaxListBytes = size_t{1} << 20;
constexpr size_t kMaxDigits = 9;  // fits an int, and Slurm's own numbers are shorter
constexpr size_t kMaxHostBytes = 255;

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}
bool isHostByte(char c) {
  return isDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

class ListParser {
 public:
  ListParser(const std::string& text, const char* what) : text_(text), what_(what) {}

  absl::StatusOr<std::vector<std::string>> nodes() {
    FARHOP_RETURN_IF_ERROR(checkSize());
    std::vector<std::string> hosts;
    do {
      FARHOP_RETURN_IF_ERROR(appendNames(hosts));
    } while (accept(','));
    if (!atEnd()) return error("a comma or the end");
    return hosts;
  }

  absl::StatusOr<std::vector<int>> tasks() {
    FARHOP_RETURN_IF_ERROR(checkSize());
    std::vector<int> result;
    do {
      FARHOP_ASSIGN_OR_RETURN(const int tasks, number());
      int times = 1;
      if (accept('(')) {
        if (!accept('x')) return error("'x' and a count");
        FARHOP_ASSIGN_OR_RETURN(times, number());
        if (!accept(')')) return error("')'");
      }
      if (times < 1) return error("a count of at least 1");
      if (result.size() + static_cast<size_t>(times) > kMaxMachines) return tooMany();
      result.insert(result.end(), static_cast<size_t>(times), tasks);
    } while (accept(','));
    if (!atEnd()) return error("a comma or the end");
    return result;
  }

 private:
  bool atEnd() const { return at_ == text_.size(); }
  char peek() const { return atEnd() ? '\0' : text_[at_]; }
  bool accept(char wanted) {
    if (peek() != wanted || atEnd()) return false;
    ++at_;
    return true;
  }

  absl::Status checkSize() const {
    if (text_.size() <= kMaxListBytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what_, " of ", text_.size(), " bytes: at most ", kMaxListBytes, " are accepted"));
  }
  absl::Status error(absl::string_view wanted) const {
    return absl::InvalidArgumentError(
        absl::StrCat(what_, " '", text_.substr(0, 200), "': expected ", wanted, " at character ", at_ + 1));
  }
  absl::Status nameTooLong() const { return error(absl::StrCat("at most ", kMaxHostBytes, " bytes a name")); }
  absl::Status tooMany() const {
    return absl::InvalidArgumentError(
        absl::StrCat(what_, " '", text_.substr(0, 200), "': more than ", kMaxMachines, " hosts"));
  }

  absl::StatusOr<absl::string_view> digits() {
    const size_t begin = at_;
    while (isDigit(peek())) ++at_;
    if (at_ == begin) return error("a number");
    if (at_ - begin > kMaxDigits) return error(absl::StrCat("a number of at most ", kMaxDigits, " digits"));
    return absl::string_view(text_).substr(begin, at_ - begin);
  }
  static int valueOf(absl::string_view digits) {
    int value = 0;
    for (char c : digits) value = value * 10 + (c - '0');
    return value;
  }
  absl::StatusOr<int> number() {
    FARHOP_ASSIGN_OR_RETURN(const absl::string_view text, digits());
    return valueOf(text);
  }

  // "001-003,7" inside brackets; the opening one is already read.
  absl::StatusOr<std::vector<std::string>> ranges() {
    std::vector<std::string> result;
    do {
      FARHOP_ASSIGN_OR_RETURN(const absl::string_view first, digits());
      absl::string_view last = first;
      if (accept('-')) {
        FARHOP_ASSIGN_OR_RETURN(last, digits());
      }
      const int begin = valueOf(first), end = valueOf(last);
      if (end < begin) return error("a range that counts upwards");
      if (result.size() + static_cast<size_t>(end - begin) + 1 > kMaxMachines) return tooMany();
      // Slurm pads to the width of the first number.
      for (int i = begin; i <= end; ++i) {
        result.push_back(absl::StrFormat("%0*d", static_cast<int>(first.size()), i));
      }
    } while (accept(','));
    if (!accept(']')) return error("']'");
    return result;
  }

  // One name with any number of brackets: appends every combination.
  absl::Status appendNames(std::vector<std::string>& hosts) {
    std::vector<std::string> names{""};
    const size_t begin = at_;
    for (;;) {
      if (accept('[')) {
        FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> parts, ranges());
        if (hosts.size() + names.size() * parts.size() > kMaxMachines) return tooMany();
        std::vector<std::string> longer;
        longer.reserve(names.size() * parts.size());
        for (const std::string& name : names) {
          for (const std::string& part : parts) longer.push_back(name + part);
        }
        names = std::move(longer);
      } else {
        const size_t literal = at_;
        while (isHostByte(peek())) ++at_;
        if (at_ == literal) break;
        // Before the copies, so that a hostile list cannot make long names times many names.
        if (names.front().size() + (at_ - literal) > kMaxHostBytes) return nameTooLong();
        for (std::string& name : names) name.append(text_, literal, at_ - literal);
      }
      if (names.front().size() > kMaxHostBytes) return nameTooLong();
    }
    if (at_ == begin) return error("a host name");
    if (hosts.size() + names.size() > kMaxMachines) return tooMany();
    hosts.insert(hosts.end(), std::make_move_iterator(names.begin()), std::make_move_iterator(names.end()));
    return absl::OkStatus();
  }

  const std::string& text_;
  const char* what_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> expandNodeList(const std::string& list) {
  return ListParser(list, "node list").nodes();
}

absl::StatusOr<std::vector<int>> expandTasksPerNode(const std::string& text) {
  return ListParser(text, "tasks per node").tasks();
}

}  // namespace farhop::runtime
