#include "runtime/binding_choice.h"

namespace farhop::runtime {

absl::StatusOr<BindingChoice> parseBindingChoice(const std::string& text) {
  constexpr char kSplit[] = ":split";
  BindingChoice choice;
  std::string to = text;
  if (const size_t colon = text.find(':'); colon != std::string::npos && text.substr(colon) == kSplit) {
    choice.splitThreads = true;
    to = text.substr(0, colon);
  }
  if (to == "core") return choice;
  choice.to = BindTo::kNuma;
  if (to == "numa") return choice;
  choice.to = BindTo::kNone;
  // Who is bound nowhere has nothing to split.
  if (to == "none" && !choice.splitThreads) return choice;
  return absl::InvalidArgumentError(
      absl::StrCat("binding '", text.substr(0, 100), "': it must be none, core, numa, core:split or numa:split"));
}

std::string formatBindingChoice(const BindingChoice& choice) {
  if (choice.to == BindTo::kNone) return "none";
  return absl::StrCat(choice.to == BindTo::kNuma ? "numa" : "core", choice.splitThreads ? ":split" : "");
}

}  // namespace farhop::runtime
