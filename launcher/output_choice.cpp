#include "launcher/output_choice.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace farhop::launcher {
namespace {

// A number of at most five digits at the front of `text`, cut off; -1 when there is none.
int takeNumber(absl::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && digits < 6 && text[digits] >= '0' && text[digits] <= '9') ++digits;
  int value = -1;
  if (digits == 0 || digits > 5 || !absl::SimpleAtoi(text.substr(0, digits), &value)) return -1;
  text.remove_prefix(digits);
  return value;
}

OutputShown ofCode(int code) {
  return {(code & 1) != 0, (code & 2) != 0};
}

}  // namespace

absl::StatusOr<OutputChoice> OutputChoice::parse(const std::string& text) {
  OutputChoice choice;
  if (text == "all") return choice;
  choice.restricted_ = true;
  if (text == "none") return choice;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    const absl::Status wrong = absl::InvalidArgumentError(
        absl::StrCat("--tee '", text.substr(0, 100), "': '", word.substr(0, 20),
                     "' is not understood; it may be all, none, m1, p0, m1p0, or torchrun's 0 to 3 and RANK:0 to RANK:3"));
    Rule rule;
    absl::string_view left = word;
    if (const int number = takeNumber(left); number >= 0) {
      int code = number;
      if (!left.empty() && left.front() == ':') {
        left.remove_prefix(1);
        rule.proc = number;
        code = takeNumber(left);
      }
      if (code < 0 || code > 3 || !left.empty()) return wrong;
      rule.shown = ofCode(code);
      choice.rules_.push_back(rule);
      continue;
    }
    for (const auto& [letter, field] : {std::pair('m', &rule.machine), std::pair('p', &rule.proc)}) {
      if (left.empty() || left.front() != letter) continue;
      left.remove_prefix(1);
      if ((*field = takeNumber(left)) < 0) return wrong;
    }
    if (!left.empty() || (rule.machine < 0 && rule.proc < 0)) return wrong;
    choice.rules_.push_back(rule);
  }
  return choice;
}

OutputShown OutputChoice::shown(int machine, int proc) const {
  if (!restricted_) return {};
  OutputShown result{false, false};
  for (const Rule& rule : rules_) {
    if ((rule.machine >= 0 && rule.machine != machine) || (rule.proc >= 0 && rule.proc != proc)) continue;
    result.out |= rule.shown.out;
    result.err |= rule.shown.err;
  }
  return result;
}

}  // namespace farhop::launcher
