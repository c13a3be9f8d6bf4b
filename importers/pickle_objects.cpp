// What a pickle builds by calls: tensors of torch, arrays of numpy, and records of all else.
#include <algorithm>
#include <cstring>

#include "importers/pickle_parser.h"
#include "importers/torch_file.h"

namespace farhop::importers {
namespace {

constexpr size_t kMaxDimensions = 32;
constexpr int kMaxNesting = 2;
constexpr int kMaxNestedStorages = 10000;

struct StorageClass {
  absl::string_view name;
  DType dtype;
};
constexpr StorageClass kStorageClasses[] = {
    {"torch.FloatStorage", DType::kFloat32}, {"torch.DoubleStorage", DType::kFloat64},
    {"torch.HalfStorage", DType::kFloat16},  {"torch.BFloat16Storage", DType::kBFloat16},
    {"torch.LongStorage", DType::kInt64},    {"torch.IntStorage", DType::kInt32},
    {"torch.ShortStorage", DType::kInt16},   {"torch.CharStorage", DType::kInt8},
    {"torch.ByteStorage", DType::kUInt8},    {"torch.BoolStorage", DType::kBool}};

bool isOneOf(absl::string_view name, std::initializer_list<absl::string_view> names) {
  for (const absl::string_view known : names) {
    if (name == known) return true;
  }
  return false;
}

bool sizesOf(const PickleValue& tuple, std::vector<uint64_t>* sizes) {
  using Kind = PickleValue::Kind;
  if ((!tuple.is(Kind::kTuple) && !tuple.is(Kind::kList)) || tuple.items.size() > kMaxDimensions) return false;
  for (const PickleValue* item : tuple.items) {
    if (!item->is(Kind::kInteger) || item->integer < 0 || item->integer >> 48 != 0) return false;
    sizes->push_back(static_cast<uint64_t>(item->integer));
  }
  return true;
}

// Whether all elements lie within `elements`, without overflow.
bool fits(const ArrayView& view, uint64_t offset, uint64_t elements) {
  // Sizes are below 2^48, so that a product that is at most `elements` cannot overflow.
  uint64_t last = offset, count = 1;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 0) return true;
    if (view.strides[i] > 0 && view.shape[i] - 1 > elements / view.strides[i]) return false;
    last += (view.shape[i] - 1) * view.strides[i];
    // With strides of 0 a few bytes could claim to be any number of elements.
    if (view.shape[i] > elements / count) return false;
    count *= view.shape[i];
  }
  return last < elements;
}

}  // namespace

absl::StatusOr<bool> PickleParser::object(unsigned char op) {
  switch (op) {
    case 'c': {
      FARHOP_ASSIGN_OR_RETURN(const absl::string_view module, line());
      FARHOP_ASSIGN_OR_RETURN(const absl::string_view name, line());
      FARHOP_RETURN_IF_ERROR(pushGlobal(module, name));
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* name, pop());
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* module, pop());
      if (!name->is(Kind::kText) || !module->is(Kind::kText)) return error("the name of a class is no text");
      FARHOP_RETURN_IF_ERROR(pushGlobal(module->text, name->text));
      return true;
    }
    case 'R':
    case 0x81: {  // REDUCE, NEWOBJ
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* arguments, pop());
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* callable, pop());
      FARHOP_RETURN_IF_ERROR(call(*callable, arguments));
      return true;
    }
    case 0x92: {  // NEWOBJ_EX
      FARHOP_RETURN_IF_ERROR(pop().status());
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* arguments, pop());
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* callable, pop());
      FARHOP_RETURN_IF_ERROR(call(*callable, arguments));
      return true;
    }
    case 'b': {
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* state, pop());
      FARHOP_RETURN_IF_ERROR(build(state));
      return true;
    }
    case 'Q': {  // BINPERSID
      FARHOP_ASSIGN_OR_RETURN(const PickleValue* id, pop());
      FARHOP_RETURN_IF_ERROR(pushStorage(*id));
      return true;
    }
    default:
      return false;
  }
}

absl::Status PickleParser::pushGlobal(absl::string_view module, absl::string_view name) {
  constexpr size_t kMaxName = 1000;
  if (module.size() + name.size() > kMaxName) return error("the name of a class is too long");
  document_.texts_->push_back(absl::StrCat(module, ".", name));
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kGlobal));
  value->text = document_.texts_->back();
  return absl::OkStatus();
}

absl::Status PickleParser::call(const PickleValue& callable, const PickleValue* arguments) {
  if (!arguments->is(Kind::kTuple)) return error("the arguments of a call are no tuple");
  const std::vector<const PickleValue*>& items = arguments->items;
  const absl::string_view name = callable.is(Kind::kGlobal) ? callable.text : absl::string_view("?");
  if (isOneOf(name, {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"})) return pushTensor(items);
  if (isOneOf(name, {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}) && !items.empty() &&
      items[0]->is(Kind::kTensor)) {
    FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kTensor));
    value->tensor = items[0]->tensor;
    return absl::OkStatus();
  }
  if (name == "torch._tensor._rebuild_from_type_v2" && items.size() >= 3 && items[0]->is(Kind::kGlobal) &&
      items[0]->text != name) {
    return call(*items[0], items[2]);  // of a class derived from tensors
  }
  if (name == "torch.storage._load_from_bytes" && items.size() == 1) return pushNestedStorage(*items[0]);
  if (isOneOf(name, {"collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"})) {
    FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kDict));
    // OrderedDict may list its pairs at once.
    if (items.empty() || !items[0]->is(Kind::kList)) return absl::OkStatus();
    FARHOP_RETURN_IF_ERROR(countCopies(items[0]->items.size()));
    for (const PickleValue* pair : items[0]->items) {
      const bool isPair = (pair->is(Kind::kTuple) || pair->is(Kind::kList)) && pair->items.size() == 2;
      if (!isPair) return error("an item of a dictionary is no pair");
      value->items.insert(value->items.end(), pair->items.begin(), pair->items.end());
    }
    return absl::OkStatus();
  }
  if (name == "torch.Size" && items.size() == 1) {
    FARHOP_RETURN_IF_ERROR(countCopies(items[0]->items.size()));
    FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kTuple));
    value->items = items[0]->items;
    return absl::OkStatus();
  }
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kRecord));
  value->text = name;
  value->items = {arguments};
  return absl::OkStatus();
}

// Values that are kept can be named again and again: what is copied of them is counted, so that memory stays bounded.
absl::Status PickleParser::countCopies(size_t items) {
  copies_ += items;
  return copies_ <= kMaxPickleValues ? absl::OkStatus() : error("too many items");
}

absl::Status PickleParser::build(const PickleValue* state) {
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, top());
  // What is set on a tensor or dictionary are attributes of Python's, which nobody here reads.
  if (value->is(Kind::kRecord)) value->state = state;
  return absl::OkStatus();
}

absl::Status PickleParser::pushTensor(const std::vector<const PickleValue*>& arguments) {
  if (arguments.size() < 4 || !arguments[0]->is(Kind::kStorage) || !arguments[1]->is(Kind::kInteger) ||
      arguments[1]->integer < 0) {
    return error("a tensor's description is none");
  }
  const ArrayView& storage = *arguments[0]->tensor;
  ArrayView view = storage;
  view.shape.clear();
  view.strides.clear();
  const bool sized = sizesOf(*arguments[2], &view.shape) && sizesOf(*arguments[3], &view.strides);
  if (!sized || view.shape.size() != view.strides.size()) return error("a tensor's shape is none");
  const auto offset = static_cast<uint64_t>(arguments[1]->integer);
  const bool empty = std::find(view.shape.begin(), view.shape.end(), uint64_t{0}) != view.shape.end();
  if (!fits(view, offset, storage.shape[0])) return error("a tensor reaches beyond its storage");
  if (empty) {
    view.strides = contiguousStrides(view.shape);
  } else {
    view.data = storage.data + offset * dtypeBytes(view.dtype);
  }
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kTensor));
  value->tensor = std::make_shared<const ArrayView>(std::move(view));
  return absl::OkStatus();
}

// ("storage", class, key, device, elements, ...).
absl::Status PickleParser::pushStorage(const PickleValue& id) {
  const bool described = id.is(Kind::kTuple) && id.items.size() >= 5 && id.items[0]->is(Kind::kText) &&
                         id.items[0]->text == "storage" && id.items[1]->is(Kind::kGlobal) && id.items[2]->is(Kind::kText) &&
                         id.items[4]->is(Kind::kInteger) && id.items[4]->integer >= 0 && id.items[4]->integer >> 48 == 0;
  if (!described || !options_.storage) return error("a reference to outside of it is of no kind that is known");
  StorageRequest request;
  bool known = false;
  for (const StorageClass& row : kStorageClasses) {
    if (row.name != id.items[1]->text) continue;
    request.dtype = row.dtype;
    known = true;
  }
  if (!known) return error(absl::StrCat("tensors of ", id.items[1]->text, " are not read"));
  request.key = std::string(id.items[2]->text);
  request.elements = static_cast<uint64_t>(id.items[4]->integer);
  FARHOP_ASSIGN_OR_RETURN(StorageMemory memory, options_.storage(request));
  if (memory.bytes.size() / dtypeBytes(request.dtype) < request.elements) return error("a storage is shorter than it says");
  ArrayView view;
  view.dtype = request.dtype;
  view.shape = {request.elements};
  view.strides = {1};
  view.data = memory.bytes.data();
  view.owner = std::move(memory.owner);
  view.origin = options_.origin;
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kStorage));
  value->tensor = std::make_shared<const ArrayView>(std::move(view));
  return absl::OkStatus();
}

// A storage that was pickled without a file of its own: the bytes of such a file.
absl::Status PickleParser::pushNestedStorage(const PickleValue& bytes) {
  if (!bytes.is(Kind::kText) || options_.depth >= kMaxNesting || ++nested_ > kMaxNestedStorages) {
    return error("a storage inside is none");
  }
  PickleOptions inner;
  inner.origin = options_.origin;
  inner.owner = options_.owner;
  inner.depth = options_.depth + 1;
  const std::span<const std::byte> content(reinterpret_cast<const std::byte*>(bytes.text.data()), bytes.text.size());
  FARHOP_ASSIGN_OR_RETURN(const PickleDocument document, readTorchStream(content, inner));
  if (!document.root().is(Kind::kStorage)) return error("a storage inside is none");
  FARHOP_ASSIGN_OR_RETURN(PickleValue * value, push(Kind::kStorage));
  value->tensor = document.root().tensor;
  return absl::OkStatus();
}

}  // namespace farhop::importers
