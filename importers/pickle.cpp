#include "importers/pickle.h"

#include <cmath>
#include <cstring>

#include "importers/delimited.h"
#include "importers/pickle_parser.h"

namespace farhop::importers {

const PickleValue* PickleValue::find(absl::string_view key) const {
  if (kind != Kind::kDict) return nullptr;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->kind == Kind::kText && items[i]->text == key) return items[i + 1];
  }
  return nullptr;
}

absl::StatusOr<PickleDocument> readPickle(std::span<const std::byte> bytes, const PickleOptions& options) {
  return PickleParser(bytes, options).parse();
}

absl::Status PickleParser::error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(options_.origin, ": not a pickle that is read, at byte ", at_, ": ", what));
}

absl::StatusOr<PickleDocument> PickleParser::parse() {
  while (!stopped_) {
    FARHOP_ASSIGN_OR_RETURN(const absl::string_view code, take(1));
    const auto op = static_cast<unsigned char>(code[0]);
    bool known = false;
    for (const auto handle : {&PickleParser::number, &PickleParser::text, &PickleParser::container, &PickleParser::object,
                              &PickleParser::memo}) {
      FARHOP_ASSIGN_OR_RETURN(known, (this->*handle)(op));
      if (known) break;
    }
    if (!known) return error(absl::StrCat("unknown operation ", static_cast<int>(op)));
  }
  document_.bytes_ = at_;
  return std::move(document_);
}

absl::StatusOr<absl::string_view> PickleParser::take(uint64_t size) {
  if (size > bytes_.size() - at_) return error("it ends too early");
  const absl::string_view taken(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(size));
  at_ += static_cast<size_t>(size);
  return taken;
}

absl::StatusOr<absl::string_view> PickleParser::line() {
  constexpr size_t kMaxLine = 1000;
  const absl::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
  const size_t end = rest.substr(0, kMaxLine).find('\n');
  if (end == absl::string_view::npos) return error("a line has no end");
  at_ += end + 1;
  return rest.substr(0, end);
}

template <typename T>
absl::StatusOr<T> PickleParser::fixed() {
  FARHOP_ASSIGN_OR_RETURN(const absl::string_view taken, take(sizeof(T)));
  T value;
  std::memcpy(&value, taken.data(), sizeof(T));
  return value;
}

absl::StatusOr<PickleValue*> PickleParser::push(Kind kind) {
  if (document_.values_->size() >= kMaxPickleValues) return error(absl::StrCat("more than ", kMaxPickleValues, " values"));
  document_.values_->emplace_back();
  PickleValue* value = &document_.values_->back();
  value->kind = kind;
  stack_.push_back(value);
  return value;
}

absl::Status PickleParser::pushInteger(int64_t number) {
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kInteger));
  value->integer = number;
  return absl::OkStatus();
}

// Two's complement, little-endian. Longer ones than int64 keep only their bytes.
absl::Status PickleParser::pushLong(uint64_t size) {
  FARHOP_ASSIGN_OR_RETURN(const absl::string_view taken, take(size));
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kInteger));
  if (size > 8) {
    value->text = taken;
    return absl::OkStatus();
  }
  const bool negative = size > 0 && (static_cast<unsigned char>(taken.back()) & 0x80) != 0;
  uint64_t bits = negative ? ~uint64_t{0} : 0;
  std::memcpy(&bits, taken.data(), static_cast<size_t>(size));
  value->integer = static_cast<int64_t>(bits);
  return absl::OkStatus();
}

absl::Status PickleParser::pushText(uint64_t size) {
  FARHOP_ASSIGN_OR_RETURN(const absl::string_view taken, take(size));
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kText));
  value->text = taken;
  return absl::OkStatus();
}

absl::StatusOr<PickleValue*> PickleParser::top() {
  if (stack_.empty() || (!marks_.empty() && marks_.back() >= stack_.size())) return error("the stack is empty");
  return stack_.back();
}

absl::StatusOr<const PickleValue*> PickleParser::pop() {
  FARHOP_ASSIGN_OR_RETURN(const PickleValue* value, top());
  stack_.pop_back();
  return value;
}

absl::StatusOr<std::vector<const PickleValue*>> PickleParser::popToMark() {
  if (marks_.empty()) return error("a mark is missing");
  std::vector<const PickleValue*> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

absl::StatusOr<bool> PickleParser::number(unsigned char op) {
  switch (op) {
    case 'N':
      FARHOP_RETURN_IF_ERROR(push(Kind::kNone).status());
      return true;
    case 0x88:
    case 0x89: {
      FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kBool));
      value->integer = op == 0x88;
      return true;
    }
    case 'K': {
      FARHOP_ASSIGN_OR_RETURN(const uint8_t byte, fixed<uint8_t>());
      FARHOP_RETURN_IF_ERROR(pushInteger(byte));
      return true;
    }
    case 'M': {
      FARHOP_ASSIGN_OR_RETURN(const uint16_t two, fixed<uint16_t>());
      FARHOP_RETURN_IF_ERROR(pushInteger(two));
      return true;
    }
    case 'J': {
      FARHOP_ASSIGN_OR_RETURN(const int32_t four, fixed<int32_t>());
      FARHOP_RETURN_IF_ERROR(pushInteger(four));
      return true;
    }
    case 0x8A: {
      FARHOP_ASSIGN_OR_RETURN(const uint8_t size, fixed<uint8_t>());
      FARHOP_RETURN_IF_ERROR(pushLong(size));
      return true;
    }
    case 'I':
    case 'L': {
      FARHOP_ASSIGN_OR_RETURN(absl::string_view digits, line());
      if (!digits.empty() && digits.back() == 'L') digits.remove_suffix(1);
      int64_t value = 0;
      if (!parseNumber(digits, &value)) return error("an integer is none");
      FARHOP_RETURN_IF_ERROR(pushInteger(value));
      return true;
    }
    case 'G': {
      FARHOP_ASSIGN_OR_RETURN(uint64_t bits, fixed<uint64_t>());
      bits = __builtin_bswap64(bits);
      FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kFloat));
      std::memcpy(&value->number, &bits, sizeof(bits));
      return true;
    }
    default:
      return false;
  }
}

absl::StatusOr<bool> PickleParser::text(unsigned char op) {
  uint64_t size = 0;
  switch (op) {
    case 'U':     // SHORT_BINSTRING
    case 'C':     // SHORT_BINBYTES
    case 0x8C: {  // SHORT_BINUNICODE
      FARHOP_ASSIGN_OR_RETURN(size, fixed<uint8_t>());
      break;
    }
    case 'T':    // BINSTRING
    case 'B':    // BINBYTES
    case 'X': {  // BINUNICODE
      FARHOP_ASSIGN_OR_RETURN(size, fixed<uint32_t>());
      break;
    }
    case 0x8D:    // BINUNICODE8
    case 0x8E:    // BINBYTES8
    case 0x96: {  // BYTEARRAY8
      FARHOP_ASSIGN_OR_RETURN(size, fixed<uint64_t>());
      break;
    }
    default:
      return false;
  }
  FARHOP_RETURN_IF_ERROR(pushText(size));
  return true;
}

absl::StatusOr<bool> PickleParser::container(unsigned char op) {
  switch (op) {
    case '(':
      if (marks_.size() >= kMaxPickleValues) return error("too many marks");
      marks_.push_back(stack_.size());
      return true;
    case ']':
    case 0x8F:  // EMPTY_SET
      FARHOP_RETURN_IF_ERROR(push(Kind::kList).status());
      return true;
    case ')':
      FARHOP_RETURN_IF_ERROR(push(Kind::kTuple).status());
      return true;
    case '}':
      FARHOP_RETURN_IF_ERROR(push(Kind::kDict).status());
      return true;
    case 't':
    case 'l':
    case 'd':
    case 0x91: {  // FROZENSET
      FARHOP_ASSIGN_OR_RETURN(std::vector<const PickleValue*> items, popToMark());
      if (op == 'd' && items.size() % 2 != 0) return error("a dictionary lacks a value");
      FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(op == 'd' ? Kind::kDict : op == 't' ? Kind::kTuple : Kind::kList));
      value->items = std::move(items);
      return true;
    }
    case 0x85:
    case 0x86:
    case 0x87: {
      std::vector<const PickleValue*> items(op - 0x84U);
      for (size_t i = items.size(); i-- > 0;) {
        FARHOP_ASSIGN_OR_RETURN(items[i], pop());
      }
      FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kTuple));
      value->items = std::move(items);
      return true;
    }
    case 'a':
    case 's': {
      std::vector<const PickleValue*> items(op == 's' ? 2 : 1);
      for (size_t i = items.size(); i-- > 0;) {
        FARHOP_ASSIGN_OR_RETURN(items[i], pop());
      }
      FARHOP_RETURN_IF_ERROR(append(items, op == 's'));
      return true;
    }
    case 'e':
    case 'u':
    case 0x90: {  // ADDITEMS
      FARHOP_ASSIGN_OR_RETURN(const std::vector<const PickleValue*> items, popToMark());
      if (op == 'u' && items.size() % 2 != 0) return error("a dictionary lacks a value");
      FARHOP_RETURN_IF_ERROR(append(items, op == 'u'));
      return true;
    }
    default:
      return false;
  }
}

absl::Status PickleParser::append(const std::vector<const PickleValue*>& items, bool pairs) {
  FARHOP_ASSIGN_OR_RETURN(PickleValue * container, top());
  // Items of a record, which some class of lists or dictionaries was, are not kept.
  if (container->is(Kind::kRecord)) return absl::OkStatus();
  if (!container->is(pairs ? Kind::kDict : Kind::kList)) return error("items are added to what takes none");
  container->items.insert(container->items.end(), items.begin(), items.end());
  return absl::OkStatus();
}

absl::StatusOr<bool> PickleParser::memo(unsigned char op) {
  switch (op) {
    case 0x80: {  // PROTO
      FARHOP_ASSIGN_OR_RETURN(const uint8_t version, fixed<uint8_t>());
      if (version > 5) return error(absl::StrCat("protocol ", static_cast<int>(version)));
      return true;
    }
    case 0x95:  // FRAME: its length says nothing that is needed
      FARHOP_RETURN_IF_ERROR(take(8).status());
      return true;
    case '.': {
      FARHOP_ASSIGN_OR_RETURN(document_.root_, pop());
      stopped_ = true;
      return true;
    }
    case '0':
      FARHOP_RETURN_IF_ERROR(pop().status());
      return true;
    case '1':
      FARHOP_RETURN_IF_ERROR(popToMark().status());
      return true;
    case '2': {
      FARHOP_ASSIGN_OR_RETURN(PickleValue * value, top());
      stack_.push_back(value);
      return true;
    }
    case 'q':
    case 'h': {
      FARHOP_ASSIGN_OR_RETURN(const uint8_t key, fixed<uint8_t>());
      FARHOP_RETURN_IF_ERROR(op == 'q' ? put(key) : get(key));
      return true;
    }
    case 'r':
    case 'j': {
      FARHOP_ASSIGN_OR_RETURN(const uint32_t key, fixed<uint32_t>());
      FARHOP_RETURN_IF_ERROR(op == 'r' ? put(key) : get(key));
      return true;
    }
    case 'p':
    case 'g': {
      FARHOP_ASSIGN_OR_RETURN(const absl::string_view digits, line());
      uint64_t key = 0;
      if (!parseNumber(digits, &key)) return error("a place in the memo is none");
      FARHOP_RETURN_IF_ERROR(op == 'p' ? put(key) : get(key));
      return true;
    }
    case 0x94:  // MEMOIZE
      FARHOP_RETURN_IF_ERROR(put(memo_.size()));
      return true;
    default:
      return false;
  }
}

absl::Status PickleParser::get(uint64_t key) {
  const auto known = memo_.find(key);
  if (known == memo_.end()) return error("a value that was not kept is asked for");
  stack_.push_back(known->second);
  return absl::OkStatus();
}

absl::Status PickleParser::put(uint64_t key) {
  FARHOP_ASSIGN_OR_RETURN(memo_[key], top());
  return absl::OkStatus();
}

}  // namespace farhop::importers
