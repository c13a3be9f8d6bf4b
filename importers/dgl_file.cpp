#include "importers/dgl_file.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/file.h"

namespace farhop::importers {
namespace {

constexpr uint64_t kTensorsMagic = 0xDD5A9FBE3FA2443F, kArrayMagic = 0xDD5E40F096B4A13F, kFileMagic = 0xDD2E4FF046B4A13F;
constexpr uint64_t kHeteroMagic = 0xDD589FBE35224ABF, kMetaGraphMagic = 0xDD3C5FFE20046ABF, kCsrMagic = 0xDD6CD31205DFF127;
constexpr uint64_t kCooMagic = 0xDD61FFD305DFF127, kUnitMagic = 0xDD2E60F0F6B4A127;
constexpr uint64_t kGraphVersion = 2, kHeteroGraphs = 2;
constexpr uint64_t kCooCode = 1, kCsrCode = 2;
constexpr size_t kHeadBytes = 4096;
constexpr int kMaxDimensions = 32;

// Reads values one after the other from a mapped file.
class DglReader {
 public:
  static absl::StatusOr<DglReader> open(const std::string& path) {
    FARHOP_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    DglReader reader;
    reader.file_ = std::make_shared<const MappedFile>(std::move(file));
    return reader;
  }
  const std::string& path() const { return file_->path(); }
  absl::Status error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(path(), " is no file of DGL's that is read: ", what, " (at byte ", at_, ")"));
  }

  absl::StatusOr<std::span<const std::byte>> take(uint64_t bytes) {
    if (bytes > file_->bytes().size() - at_) return error("it ends too early");
    const auto taken = file_->bytes().subspan(at_, bytes);
    at_ += bytes;
    return taken;
  }
  template <typename T>
  absl::StatusOr<T> value() {
    FARHOP_ASSIGN_OR_RETURN(const auto taken, take(sizeof(T)));
    T result;
    std::memcpy(&result, taken.data(), sizeof(T));
    return result;
  }
  absl::Status magic(uint64_t expected, absl::string_view what) {
    FARHOP_ASSIGN_OR_RETURN(const uint64_t found, value<uint64_t>());
    return found == expected ? absl::OkStatus() : error(absl::StrCat("a ", what, " is expected"));
  }
  absl::Status seek(uint64_t at) {
    if (at > file_->bytes().size()) return error("it ends too early");
    at_ = at;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> text() {
    FARHOP_ASSIGN_OR_RETURN(const uint64_t size, value<uint64_t>());
    FARHOP_ASSIGN_OR_RETURN(const auto taken, take(size));
    return std::string(reinterpret_cast<const char*>(taken.data()), taken.size());
  }

  absl::StatusOr<ArrayView> array() {
    FARHOP_RETURN_IF_ERROR(magic(kArrayMagic, "tensor"));
    FARHOP_RETURN_IF_ERROR(take(16).status());  // reserved, device and its number
    FARHOP_ASSIGN_OR_RETURN(const int32_t dimensions, value<int32_t>());
    FARHOP_ASSIGN_OR_RETURN(const uint8_t code, value<uint8_t>());
    FARHOP_ASSIGN_OR_RETURN(const uint8_t bits, value<uint8_t>());
    FARHOP_ASSIGN_OR_RETURN(const uint16_t lanes, value<uint16_t>());
    if (dimensions < 0 || dimensions > kMaxDimensions || lanes != 1) return error("a tensor's description is none");
    ArrayView view;
    FARHOP_ASSIGN_OR_RETURN(view.dtype, dtypeOfCode(code, bits));
    uint64_t elements = 1;
    for (int i = 0; i < dimensions; ++i) {
      FARHOP_ASSIGN_OR_RETURN(const uint64_t size, value<uint64_t>());
      if (size >> 48 != 0 || (size > 0 && elements > (uint64_t{1} << 56) / size)) return error("a tensor is too large");
      elements *= size;
      view.shape.push_back(size);
    }
    view.strides = contiguousStrides(view.shape);
    FARHOP_ASSIGN_OR_RETURN(const uint64_t bytes, value<uint64_t>());
    if (bytes != elements * dtypeBytes(view.dtype)) return error("a tensor's size does not fit its shape");
    FARHOP_ASSIGN_OR_RETURN(const auto data, take(bytes));
    view.data = data.data();
    view.owner = file_;
    view.origin = path();
    return view;
  }

  // A list of pairs of name and tensor.
  absl::StatusOr<TensorMap> tensors() {
    TensorMap result;
    FARHOP_ASSIGN_OR_RETURN(const uint64_t count, value<uint64_t>());
    for (uint64_t i = 0; i < count; ++i) {
      FARHOP_ASSIGN_OR_RETURN(std::string name, text());
      FARHOP_ASSIGN_OR_RETURN(ArrayView view, array());
      view.origin = absl::StrCat(path(), " (", name, ")");
      result.emplace(std::move(name), std::move(view));
    }
    return result;
  }

 private:
  absl::StatusOr<DType> dtypeOfCode(uint8_t code, uint8_t bits) {
    struct Row {
      uint8_t code, bits;
      DType dtype;
    };
    constexpr Row kRows[] = {{0, 8, DType::kInt8},   {0, 16, DType::kInt16},   {0, 32, DType::kInt32},   {0, 64, DType::kInt64},
                             {1, 8, DType::kUInt8},  {1, 16, DType::kUInt16},  {1, 32, DType::kUInt32},  {1, 64, DType::kUInt64},
                             {1, 1, DType::kBool},   {2, 16, DType::kFloat16}, {2, 32, DType::kFloat32}, {2, 64, DType::kFloat64},
                             {4, 16, DType::kBFloat16}};
    for (const Row& row : kRows) {
      if (row.code == code && row.bits == bits) return row.dtype;
    }
    return error("a tensor's dtype is unknown");
  }

  std::shared_ptr<const MappedFile> file_;
  size_t at_ = 0;
};

// A sparse matrix; of pairs where `pairs`.
absl::Status readMatrix(DglReader* reader, bool pairs, ArrayView* first, ArrayView* second, ArrayView* data) {
  FARHOP_RETURN_IF_ERROR(reader->magic(pairs ? kCooMagic : kCsrMagic, "matrix"));
  FARHOP_RETURN_IF_ERROR(reader->take(16).status());  // columns and rows
  FARHOP_ASSIGN_OR_RETURN(*first, reader->array());
  FARHOP_ASSIGN_OR_RETURN(*second, reader->array());
  FARHOP_ASSIGN_OR_RETURN(*data, reader->array());
  return reader->take(pairs ? 2 : 1).status();  // whether it is sorted
}

absl::Status checkShapes(const DglReader& reader, const DglGraph& graph) {
  const bool pairs = graph.indptr.shape.empty();
  std::vector<const ArrayView*> arrays = {&graph.first, &graph.edgeIds};
  arrays.push_back(pairs ? &graph.second : &graph.indptr);
  for (const ArrayView* array : arrays) {
    if (array->shape.size() != 1 || !array->isInteger()) return reader.error("its edges are no lists of integers");
  }
  if (graph.edgeIds.rows() != 0 && graph.edgeIds.rows() != graph.first.rows()) return reader.error("its edges have ids only in part");
  if (pairs && graph.second.rows() != graph.first.rows()) return reader.error("its edges have one end only");
  return absl::OkStatus();
}

// Graph of one relation; of several forms that may be there the first is taken.
absl::Status readUnitGraph(DglReader* reader, DglGraph* graph) {
  FARHOP_RETURN_IF_ERROR(reader->magic(kUnitMagic, "relation's graph"));
  FARHOP_ASSIGN_OR_RETURN(uint64_t formats, reader->value<uint64_t>());
  FARHOP_RETURN_IF_ERROR(reader->take(8).status());
  // Old files number the one form they have.
  formats = formats >> 32 != 0 ? formats & 0xFFFFFFFF : (uint64_t{1} << (formats == 0 ? 0 : (formats - 1) & 3));
  bool have = false;
  for (const uint64_t code : {kCooCode, kCsrCode, uint64_t{4}}) {
    if ((formats & code) == 0) continue;
    ArrayView first, second, data;
    FARHOP_RETURN_IF_ERROR(readMatrix(reader, code == kCooCode, &first, &second, &data));
    if (std::exchange(have, true)) continue;
    graph->edgeIds = std::move(data);
    if (code == kCooCode) {
      graph->first = std::move(first);
      graph->second = std::move(second);
    } else {
      graph->indptr = std::move(first);
      graph->first = std::move(second);
      graph->rowsAreDestinations = code != kCsrCode;
    }
  }
  return have ? checkShapes(*reader, *graph) : reader->error("its edges are in no form that is known");
}

}  // namespace

absl::StatusOr<TensorMap> openDglTensors(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(DglReader reader, DglReader::open(path));
  FARHOP_RETURN_IF_ERROR(reader.magic(kTensorsMagic, "dictionary of tensors"));
  FARHOP_RETURN_IF_ERROR(reader.take(8).status());  // the count, which the list itself has again
  return reader.tensors();
}

absl::StatusOr<DglGraph> openDglGraph(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(DglReader reader, DglReader::open(path));
  FARHOP_RETURN_IF_ERROR(reader.magic(kFileMagic, "file of graphs"));
  FARHOP_ASSIGN_OR_RETURN(const uint64_t version, reader.value<uint64_t>());
  FARHOP_ASSIGN_OR_RETURN(const uint64_t kind, reader.value<uint64_t>());
  FARHOP_ASSIGN_OR_RETURN(const uint64_t graphs, reader.value<uint64_t>());
  if (version != kGraphVersion || kind != kHeteroGraphs || graphs != 1) {
    return reader.error(absl::StrCat("version ", version, " with ", graphs, " graphs; 2 with one is read"));
  }
  FARHOP_RETURN_IF_ERROR(reader.seek(kHeadBytes));
  FARHOP_ASSIGN_OR_RETURN(const uint64_t begin, reader.value<uint64_t>());
  FARHOP_RETURN_IF_ERROR(reader.seek(begin));
  FARHOP_RETURN_IF_ERROR(reader.magic(kHeteroMagic, "graph"));
  FARHOP_RETURN_IF_ERROR(reader.magic(kMetaGraphMagic, "graph of types"));
  ArrayView ignored[3];
  FARHOP_RETURN_IF_ERROR(readMatrix(&reader, false, &ignored[0], &ignored[1], &ignored[2]));
  FARHOP_ASSIGN_OR_RETURN(const uint64_t relations, reader.value<uint64_t>());
  if (relations != 1) return reader.error(absl::StrCat(relations, " relations; a partition's graph has one"));
  DglGraph graph;
  FARHOP_RETURN_IF_ERROR(readUnitGraph(&reader, &graph));
  FARHOP_ASSIGN_OR_RETURN(const uint64_t types, reader.value<uint64_t>());
  if (types != 1) return reader.error(absl::StrCat(types, " node types; a partition's graph has one"));
  FARHOP_ASSIGN_OR_RETURN(graph.numNodes, reader.value<uint64_t>());
  for (TensorMap* data : {&graph.nodes, &graph.edges}) {
    FARHOP_ASSIGN_OR_RETURN(const uint64_t lists, reader.value<uint64_t>());
    if (lists != 1) return reader.error("its data are not of one type");
    FARHOP_ASSIGN_OR_RETURN(*data, reader.tensors());
  }
  return graph;
}

}  // namespace farhop::importers
