// Pickles, read without executing anything: numbers, strings, lists, tuples, dictionaries and tensors come out as they are;
// whatever else a pickle names is a passive record of its name and arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "importers/array_view.h"

namespace farhop::importers {

// Lives as long as its PickleDocument.
struct PickleValue {
  enum class Kind { kNone, kBool, kInteger, kFloat, kText, kList, kTuple, kDict, kGlobal, kRecord, kStorage, kTensor };

  Kind kind = Kind::kNone;
  int64_t integer = 0;     // kBool, kInteger
  double number = 0;       // kFloat
  absl::string_view text;  // kText (str or bytes); kGlobal and kRecord: "module.name"; kInteger beyond int64: its bytes
  // kList, kTuple: the items; kDict: keys and values in turn; kRecord: the tuple of its arguments.
  std::vector<const PickleValue*> items;
  const PickleValue* state = nullptr;  // kRecord: what was set on it afterwards, may be null
  // kTensor, and kStorage with one dimension.
  std::shared_ptr<const ArrayView> tensor;

  bool is(Kind wanted) const { return kind == wanted; }
  // Of a dictionary, by text; null where there is none.
  const PickleValue* find(absl::string_view key) const;
};

// A parsed pickle and what its values point into. Movable.
class PickleDocument {
 public:
  const PickleValue& root() const { return *root_; }
  // Bytes that the pickle took.
  size_t bytes() const { return bytes_; }
  // Keeps the memory alive that texts point into.
  void keep(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

 private:
  friend class PickleParser;
  std::shared_ptr<std::deque<PickleValue>> values_ = std::make_shared<std::deque<PickleValue>>();
  std::shared_ptr<std::deque<std::string>> texts_ = std::make_shared<std::deque<std::string>>();
  const PickleValue* root_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<const void> owner_;
};

// The memory of the storage that a persistent id names: (key, dtype, elements).
struct StorageRequest {
  std::string key;
  DType dtype = DType::kFloat32;
  uint64_t elements = 0;
};
struct StorageMemory {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};
using StorageProvider = std::function<absl::StatusOr<StorageMemory>(const StorageRequest&)>;

struct PickleOptions {
  std::string origin;       // the file, for messages
  StorageProvider storage;  // empty: persistent ids are errors
  // Pieces of memory that `bytes` of nested storages live in; kept by the tensors made of them.
  std::shared_ptr<const void> owner;
  int depth = 0;  // of pickles inside pickles
};

// Reads the first pickle in `bytes`, which must outlive the document. Protocols 0 to 5. InvalidArgument or DataLoss for what
// is none, says what it may not, or needs more values than kMaxPickleValues: never a crash (fuzzed), and never more memory
// than a constant times the bytes of the pickle.
inline constexpr size_t kMaxPickleValues = size_t{1} << 22;
absl::StatusOr<PickleDocument> readPickle(std::span<const std::byte> bytes, const PickleOptions& options);

}  // namespace farhop::importers
