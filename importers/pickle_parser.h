// The stack machine of readPickle(), apart for its size.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "importers/pickle.h"

namespace farhop::importers {

class PickleParser {
 public:
  PickleParser(std::span<const std::byte> bytes, const PickleOptions& options) : bytes_(bytes), options_(options) {}
  absl::StatusOr<PickleDocument> parse();

 private:
  using Kind = PickleValue::Kind;

  absl::Status error(absl::string_view what) const;
  // Each takes the opcode and says whether it is one of its kind.
  absl::StatusOr<bool> number(unsigned char op);
  absl::StatusOr<bool> text(unsigned char op);
  absl::StatusOr<bool> container(unsigned char op);
  absl::StatusOr<bool> object(unsigned char op);
  absl::StatusOr<bool> memo(unsigned char op);

  absl::StatusOr<absl::string_view> take(uint64_t size);
  absl::StatusOr<absl::string_view> line();
  template <typename T>
  absl::StatusOr<T> fixed();
  absl::StatusOr<PickleValue*> push(Kind kind);
  absl::Status pushInteger(int64_t value);
  absl::Status pushLong(uint64_t size);
  absl::Status pushText(uint64_t size);
  absl::StatusOr<const PickleValue*> pop();
  absl::StatusOr<std::vector<const PickleValue*>> popToMark();
  absl::StatusOr<PickleValue*> top();
  absl::Status get(uint64_t key);
  absl::Status put(uint64_t key);
  absl::Status append(const std::vector<const PickleValue*>& items, bool pairs);
  // The name "module.name" of a global, kept.
  absl::Status pushGlobal(absl::string_view module, absl::string_view name);
  // A call of `callable` with `arguments`: what is known is built, other calls are records.
  absl::Status call(const PickleValue& callable, const PickleValue* arguments);
  absl::Status pushTensor(const std::vector<const PickleValue*>& arguments);
  absl::Status pushNestedStorage(const PickleValue& bytes);
  absl::Status pushStorage(const PickleValue& persistentId);
  absl::Status build(const PickleValue* state);
  absl::Status countCopies(size_t items);

  std::span<const std::byte> bytes_;
  const PickleOptions& options_;
  PickleDocument document_;
  size_t at_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  size_t copies_ = 0;
  int nested_ = 0;
  bool stopped_ = false;
};

}  // namespace farhop::importers
