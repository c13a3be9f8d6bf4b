// Partitions that GraphLearn-for-PyTorch writes: graphlearn_torch/python/partition/base.py.
#include "base/file.h"
#include "importers/partition_parts.h"
#include "importers/sources.h"
#include "importers/torch_file.h"
#include "partition/dataset.h"

namespace farhop::importers {
namespace {

using Kind = PickleValue::Kind;

constexpr int64_t kMaxPartitions = 65536;
constexpr char kFeature[] = "feat";
constexpr char kWeight[] = "weight";

struct GraphLearnRelation {
  std::vector<std::string> parts;  // source, relation, destination
  std::string directory;           // below graph/ and edge_feat/; empty where there are no types
  std::string text() const { return absl::StrCat(parts[0], ":", parts[1], ":", parts[2]); }
};

class GraphLearnImporter {
 public:
  GraphLearnImporter(const std::string& directory, DatasetOutput* output) : directory_(directory), output_(*output) {}

  absl::Status run() {
    FARHOP_RETURN_IF_ERROR(readMeta());
    PartitionParts parts(numParts_, &output_);
    for (const std::string& type : nodeTypes_) {
      FARHOP_RETURN_IF_ERROR(addNodes(type, &parts));
      FARHOP_RETURN_IF_ERROR(addFeature("node", type, typed_ ? "/" + type : "", parts.numNodes(type), &parts));
    }
    for (const GraphLearnRelation& relation : relations_) FARHOP_RETURN_IF_ERROR(addRelation(relation, &parts));
    return absl::OkStatus();
  }

 private:
  absl::Status readMeta() {
    const std::string path = directory_ + "/META";
    FARHOP_ASSIGN_OR_RETURN(const std::vector<PickleDocument> documents, openPickles(path));
    if (documents.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
    const PickleValue& meta = documents[0].root();
    const PickleValue* parts = meta.find("num_parts");
    if (parts == nullptr || !parts->is(Kind::kInteger) || parts->integer < 1 || parts->integer > kMaxPartitions) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": 'num_parts' is no number of partitions"));
    }
    numParts_ = static_cast<int>(parts->integer);
    const PickleValue* kind = meta.find("data_cls");
    typed_ = kind != nullptr && kind->text == "hetero";
    if (!typed_) {
      nodeTypes_ = {partition::kHomogeneousNodeType};
      relations_ = {{{partition::kHomogeneousNodeType, partition::kHomogeneousRelation, partition::kHomogeneousNodeType}, ""}};
      return absl::OkStatus();
    }
    const PickleValue* nodes = meta.find("node_types");
    const PickleValue* edges = meta.find("edge_types");
    if (nodes == nullptr || edges == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, ": 'node_types' or 'edge_types' is missing"));
    for (const PickleValue* type : nodes->items) nodeTypes_.emplace_back(type->text);
    for (const PickleValue* type : edges->items) {
      if (type->items.size() != 3) return absl::InvalidArgumentError(absl::StrCat(path, ": an edge type has no three parts"));
      GraphLearnRelation relation;
      for (const PickleValue* part : type->items) relation.parts.emplace_back(part->text);
      relation.directory = absl::StrCat("/", relation.parts[0], "__", relation.parts[1], "__", relation.parts[2]);
      relations_.push_back(std::move(relation));
    }
    return absl::OkStatus();
  }

  absl::Status addNodes(const std::string& type, PartitionParts* parts) {
    const std::string path = typed_ ? absl::StrCat(directory_, "/node_pb/", type, ".pt") : directory_ + "/node_pb.pt";
    FARHOP_ASSIGN_OR_RETURN(const PickleDocument document, openTorchFile(path));
    const PickleValue& book = document.root();
    if (book.is(Kind::kTensor)) {
      ArrayView view = *book.tensor;
      view.origin = path;
      return parts->addNodes(type, view);
    }
    // A book of ranges: partition k has the ids from the bound before to its own.
    const PickleValue* bounds = book.state == nullptr ? nullptr : book.state->find("partition_bounds");
    const bool known = bounds != nullptr && bounds->is(Kind::kTensor) && bounds->tensor->isInteger() &&
                       bounds->tensor->shape.size() == 1 && bounds->tensor->rows() == static_cast<uint64_t>(numParts_);
    if (!known) return absl::InvalidArgumentError(absl::StrCat(path, " is no partition book: neither a tensor nor ranges"));
    const ArrayView& ends = *bounds->tensor;
    uint64_t last = 0;
    for (uint64_t k = 0; k < ends.rows(); ++k) {
      if (ends.integerAt(k) < last || ends.integerAt(k) >> 48 != 0) return absl::InvalidArgumentError(absl::StrCat(path, ": the ranges do not ascend"));
      last = ends.integerAt(k);
    }
    int32_t partition = 0;
    return parts->addNodes(type, last, [&](uint64_t node) {
      while (node >= ends.integerAt(static_cast<uint64_t>(partition))) ++partition;
      return partition;
    });
  }

  // The tensor of a file STEM.pt, or those of a STEM.pkl one after the other; none where there is neither.
  absl::StatusOr<std::vector<ArrayView>> tensors(const std::string& stem) const {
    std::vector<ArrayView> arrays;
    for (const char* ending : {".pkl", ".pt"}) {
      const std::string path = stem + ending;
      if (!pathExists(path)) continue;
      FARHOP_ASSIGN_OR_RETURN(const std::vector<PickleDocument> documents, openPickles(path));
      for (const PickleDocument& document : documents) {
        if (!document.root().is(Kind::kTensor)) return absl::InvalidArgumentError(absl::StrCat(path, " holds something else than tensors"));
        arrays.push_back(*document.root().tensor);
        arrays.back().origin = path;
      }
      break;
    }
    return arrays;
  }

  // What partitions keep of others' rows (cache_feats) are copies of rows that are elsewhere.
  absl::Status addFeature(const std::string& domain, const std::string& type, const std::string& below, uint64_t rows,
                          PartitionParts* parts) {
    std::vector<PartitionParts::Rows> pieces;
    for (int part = 0; part < numParts_; ++part) {
      const std::string where = absl::StrCat(directory_, "/part", part, "/", domain, "_feat", below);
      FARHOP_ASSIGN_OR_RETURN(const std::vector<ArrayView> ids, tensors(where + "/ids"));
      FARHOP_ASSIGN_OR_RETURN(const std::vector<ArrayView> values, tensors(where + "/feats"));
      if (ids.size() != values.size()) {
        return absl::InvalidArgumentError(absl::StrCat(where, ": ", ids.size(), " pieces of ids for ", values.size(), " of features"));
      }
      for (size_t i = 0; i < ids.size(); ++i) pieces.push_back({ids[i], values[i]});
    }
    return parts->addFeature({domain, type, kFeature, ""}, rows, 0, pieces);
  }

  absl::Status addRelation(const GraphLearnRelation& relation, PartitionParts* parts) {
    std::vector<std::string> places;
    for (int part = 0; part < numParts_; ++part) places.push_back(absl::StrCat(directory_, "/part", part, "/graph", relation.directory));
    // With "graph caching" the whole graph lies at one place instead.
    const std::string whole = absl::StrCat(directory_, "/graph", relation.directory);
    if (pathExists(whole + "/rows.pt")) places = {whole};
    std::vector<PartitionParts::Edges> pieces;
    std::vector<PartitionParts::Rows> weights;
    uint64_t edges = 0;
    for (const std::string& where : places) {
      PartitionParts::Edges piece;
      FARHOP_ASSIGN_OR_RETURN(piece.sources, openTensor(where + "/rows.pt"));
      FARHOP_ASSIGN_OR_RETURN(piece.destinations, openTensor(where + "/cols.pt"));
      if (pathExists(where + "/eids.pt")) {
        FARHOP_ASSIGN_OR_RETURN(piece.ids, openTensor(where + "/eids.pt"));
      } else {
        piece.ids = countUp(edges, piece.sources.rows(), where);
      }
      if (pathExists(where + "/weights.pt")) {
        FARHOP_ASSIGN_OR_RETURN(ArrayView values, openTensor(where + "/weights.pt"));
        weights.push_back({piece.ids, std::move(values)});
      }
      edges += piece.ids.rows();
      pieces.push_back(std::move(piece));
    }
    FARHOP_RETURN_IF_ERROR(parts->addEdges(relation.parts[0], relation.parts[1], relation.parts[2], edges, 0, pieces));
    FARHOP_RETURN_IF_ERROR(parts->addFeature({"edge", relation.text(), kWeight, ""}, edges, 0, weights));
    return addFeature("edge", relation.text(), relation.directory, edges, parts);
  }

  // Where edges have no ids they are numbered as they come.
  static ArrayView countUp(uint64_t first, uint64_t count, const std::string& where) {
    auto numbers = std::make_shared<std::vector<uint64_t>>(count);
    for (uint64_t i = 0; i < count; ++i) (*numbers)[i] = first + i;
    ArrayView view;
    view.dtype = DType::kInt64;
    view.shape = {count};
    view.strides = {1};
    view.data = reinterpret_cast<const std::byte*>(numbers->data());
    view.owner = numbers;
    view.origin = where;
    return view;
  }

  const std::string directory_;
  DatasetOutput& output_;
  int numParts_ = 0;
  bool typed_ = false;
  std::vector<std::string> nodeTypes_;
  std::vector<GraphLearnRelation> relations_;
};

}  // namespace

absl::Status importGraphLearn(const std::string& directory, const ImportOptions&, DatasetOutput* output) {
  return GraphLearnImporter(directory, output).run();
}

}  // namespace farhop::importers
