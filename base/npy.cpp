#include "base/npy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"

namespace farhop {
namespace {

struct DTypeRow {
  DType dtype;
  size_t bytes;
  absl::string_view name;
  absl::string_view descriptor;
};

// kUInt16 stands before kBFloat16 so that a "<u2" descriptor reads as uint16.
constexpr std::array<DTypeRow, 13> kDTypes{{
    {DType::kInt8, 1, "int8", "|i1"},
    {DType::kUInt8, 1, "uint8", "|u1"},
    {DType::kInt16, 2, "int16", "<i2"},
    {DType::kUInt16, 2, "uint16", "<u2"},
    {DType::kInt32, 4, "int32", "<i4"},
    {DType::kUInt32, 4, "uint32", "<u4"},
    {DType::kInt64, 8, "int64", "<i8"},
    {DType::kUInt64, 8, "uint64", "<u8"},
    {DType::kFloat16, 2, "float16", "<f2"},
    {DType::kBFloat16, 2, "bfloat16", "<u2"},
    {DType::kFloat32, 4, "float32", "<f4"},
    {DType::kFloat64, 8, "float64", "<f8"},
    {DType::kBool, 1, "bool", "|b1"},
}};

const DTypeRow& rowOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr size_t kMaxHeaderBytes = size_t{1} << 16;
constexpr size_t kMaxDimensions = 32;

// A reader for the one dictionary literal that numpy writes: {'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }.
class HeaderReader {
 public:
  explicit HeaderReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<NpyHeader> read() {
    NpyHeader header;
    bool haveDescriptor = false, haveOrder = false, haveShape = false;
    if (!take('{')) return bad("no dictionary");
    while (!take('}')) {
      absl::string_view key;
      if (!quoted(&key) || !take(':')) return bad("no key");
      if (key == "descr") {
        absl::string_view descriptor;
        if (!quoted(&descriptor)) return bad("structured dtypes are not supported");
        FARHOP_ASSIGN_OR_RETURN(header.dtype, dtypeFromDescriptor(descriptor));
        haveDescriptor = true;
      } else if (key == "fortran_order") {
        if (word("True")) header.fortranOrder = true;
        else if (!word("False")) return bad("fortran_order is neither True nor False");
        haveOrder = true;
      } else if (key == "shape") {
        FARHOP_RETURN_IF_ERROR(readShape(&header.shape));
        haveShape = true;
      } else {
        return bad(absl::StrCat("unknown key '", key.substr(0, 40), "'"));
      }
      if (!take(',') && peek() != '}') return bad("no comma between keys");
    }
    if (!haveDescriptor || !haveOrder || !haveShape) return bad("a key is missing");
    return header;
  }

 private:
  static absl::Status bad(absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("not a .npy header: ", why));
  }
  void skipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skipBlanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool word(absl::string_view w) {
    skipBlanks();
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }
  bool quoted(absl::string_view* out) {
    char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    size_t end = text_.find(quote, at_ + 1);
    if (end == absl::string_view::npos) return false;
    *out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  absl::Status readShape(std::vector<uint64_t>* shape) {
    if (!take('(')) return bad("shape is not a tuple");
    uint64_t product = 1;
    while (!take(')')) {
      skipBlanks();
      size_t start = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      uint64_t dimension = 0;
      if (!absl::SimpleAtoi(text_.substr(start, at_ - start), &dimension)) return bad("a dimension is no number");
      if (shape->size() == kMaxDimensions) return bad("too many dimensions");
      shape->push_back(dimension);
      const uint64_t factor = std::max<uint64_t>(dimension, 1);
      if (factor > (uint64_t{1} << 56) / product) return bad("the shape is too large");
      product *= factor;
      if (!take(',') && peek() != ')') return bad("no comma between dimensions");
    }
    return absl::OkStatus();
  }

  absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

size_t dtypeBytes(DType dtype) { return rowOf(dtype).bytes; }
absl::string_view dtypeName(DType dtype) { return rowOf(dtype).name; }
absl::string_view npyDescriptor(DType dtype) { return rowOf(dtype).descriptor; }

absl::StatusOr<DType> dtypeFromName(absl::string_view name) {
  for (const DTypeRow& row : kDTypes)
    if (row.name == name) return row.dtype;
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", name, "'"));
}

absl::StatusOr<DType> dtypeFromDescriptor(absl::string_view descriptor) {
  std::string normal(descriptor);
  if (normal.size() == 3 && normal[2] == '1' && (normal[0] == '<' || normal[0] == '=')) normal[0] = '|';
  if (!normal.empty() && normal[0] == '=') normal[0] = '<';
  for (const DTypeRow& row : kDTypes)
    if (row.descriptor == normal) return row.dtype;
  return absl::InvalidArgumentError(absl::StrCat("unsupported .npy dtype '", descriptor.substr(0, 40),
                                                 "' (little-endian integers, floats and bool are read)"));
}

uint64_t NpyHeader::elements() const {
  uint64_t product = 1;
  for (uint64_t dimension : shape) product *= dimension;
  return product;
}

absl::StatusOr<NpyHeader> parseNpyHeader(std::span<const std::byte> bytes) {
  const char* data = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < kMagicBytes + 4 || std::memcmp(data, kMagic, kMagicBytes) != 0) {
    return absl::InvalidArgumentError("not a .npy file: the magic string is missing");
  }
  const int major = static_cast<unsigned char>(data[6]);
  if (major < 1 || major > 3) return absl::InvalidArgumentError(absl::StrCat("unknown .npy version ", major));
  const size_t lengthBytes = major == 1 ? 2 : 4;
  if (bytes.size() < 8 + lengthBytes) return absl::InvalidArgumentError("truncated .npy header");
  size_t length = 0;
  for (size_t i = 0; i < lengthBytes; ++i) {
    length |= static_cast<size_t>(static_cast<unsigned char>(data[8 + i])) << (8 * i);
  }
  const size_t start = 8 + lengthBytes;
  if (length > kMaxHeaderBytes || bytes.size() < start + length) {
    return absl::InvalidArgumentError("truncated .npy header");
  }
  FARHOP_ASSIGN_OR_RETURN(NpyHeader header, HeaderReader(absl::string_view(data + start, length)).read());
  header.dataOffset = start + length;
  return header;
}

std::string formatNpyHeader(DType dtype, std::span<const uint64_t> shape) {
  std::string dictionary = absl::StrCat("{'descr': '", npyDescriptor(dtype), "', 'fortran_order': False, 'shape': (");
  for (size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&dictionary, shape[i], i + 1 < shape.size() ? ", " : (shape.size() == 1 ? "," : ""));
  }
  dictionary += "), }";
  const size_t unpadded = kMagicBytes + 4 + dictionary.size() + 1;
  dictionary.append((64 - unpadded % 64) % 64, ' ');
  dictionary += '\n';
  std::string header(kMagic, kMagicBytes);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dictionary.size() & 0xFF);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

absl::StatusOr<NpyArray> NpyArray::open(const std::string& path) {
  NpyArray array;
  FARHOP_ASSIGN_OR_RETURN(array.file_, MappedFile::open(path));
  auto header = parseNpyHeader(array.file_.bytes());
  if (!header.ok()) return annotate(header.status(), path);
  array.header_ = *std::move(header);
  const uint64_t expected = array.header_.dataOffset + array.header_.elements() * dtypeBytes(array.header_.dtype);
  const uint64_t actual = array.file_.bytes().size();
  if (actual < expected) {
    return absl::DataLossError(absl::StrCat(path, " is ", expected - actual, " bytes short (expected ", expected,
                                            ", found ", actual, "); copy or write it again"));
  }
  if (actual > expected) {
    return absl::DataLossError(absl::StrCat(path, " has ", actual - expected, " bytes more than its header says (",
                                            expected, "); copy or write it again"));
  }
  return array;
}

size_t NpyArray::rowBytes() const {
  uint64_t product = 1;
  for (size_t i = 1; i < header_.shape.size(); ++i) product *= header_.shape[i];
  return static_cast<size_t>(product) * dtypeBytes(header_.dtype);
}

absl::Status NpyArray::expect(DType wanted) const {
  if (header_.dataOffset % dtypeBytes(header_.dtype) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": data starts at the unaligned offset ",
                                                   header_.dataOffset, "; write it again with numpy.save"));
  }
  if (npyDescriptor(wanted) == npyDescriptor(header_.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file_.path(), " holds ", dtypeName(header_.dtype), ", expected ",
                                                 dtypeName(wanted)));
}

absl::StatusOr<NpyWriter> NpyWriter::create(const std::string& path, DType dtype, std::vector<uint64_t> shape) {
  FARHOP_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  const std::string header = formatNpyHeader(dtype, shape);
  FARHOP_RETURN_IF_ERROR(file.write(header.data(), header.size()));
  uint64_t elements = 1;
  for (uint64_t dimension : shape) elements *= dimension;
  return NpyWriter(std::move(file), path, header.size() + elements * dtypeBytes(dtype));
}

absl::Status NpyWriter::write(const void* data, size_t bytes) { return file_.write(data, bytes); }

absl::Status NpyWriter::commit(Durability durability) {
  if (file_.bytesWritten() != expectedBytes_) {
    return absl::InternalError(absl::StrCat(path_, ": wrote ", file_.bytesWritten(), " bytes of ", expectedBytes_));
  }
  return file_.commit(durability);
}

}  // namespace farhop
