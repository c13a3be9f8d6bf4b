#include "importers/fused_graph.h"

#include <set>

#include "importers/torch_file.h"

namespace farhop::importers {
namespace {

using Kind = PickleValue::Kind;

constexpr char kTensors[] = "independent_tensors";

// The dictionary of the graph's state, wherever in the pickled objects it is.
const PickleValue* findState(const PickleValue& root) {
  std::vector<const PickleValue*> open = {&root};
  std::set<const PickleValue*> seen;
  while (!open.empty()) {
    const PickleValue* value = open.back();
    open.pop_back();
    if (!seen.insert(value).second) continue;
    if (value->find(kTensors) != nullptr) return value;
    open.insert(open.end(), value->items.begin(), value->items.end());
    if (value->state != nullptr) open.push_back(value->state);
  }
  return nullptr;
}

TensorMap tensorsOf(const PickleValue* dictionary, const std::string& path) {
  TensorMap result;
  if (dictionary == nullptr || !dictionary->is(Kind::kDict)) return result;
  for (size_t i = 0; i + 1 < dictionary->items.size(); i += 2) {
    if (!dictionary->items[i]->is(Kind::kText) || !dictionary->items[i + 1]->is(Kind::kTensor)) continue;
    ArrayView view = *dictionary->items[i + 1]->tensor;
    view.origin = absl::StrCat(path, " (", dictionary->items[i]->text, ")");
    result.emplace(std::string(dictionary->items[i]->text), std::move(view));
  }
  return result;
}

// Names by number, from a dictionary of names to numbers.
absl::StatusOr<std::vector<std::string>> namesOf(const PickleValue* dictionary, const std::string& path) {
  const TensorMap numbers = tensorsOf(dictionary, path);
  std::vector<std::string> names(numbers.size());
  for (const auto& [name, number] : numbers) {
    const bool known = number.isInteger() && number.elements() == 1 && number.integerAt(0) < names.size() &&
                       names[number.integerAt(0)].empty();
    if (!known) return absl::InvalidArgumentError(absl::StrCat(path, ": types are not numbered from 0"));
    names[number.integerAt(0)] = name;
  }
  return names;
}

}  // namespace

absl::StatusOr<FusedGraph> openFusedGraph(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(const PickleDocument document, openTorchFile(path));
  const PickleValue* state = findState(document.root());
  if (state == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, " holds no FusedCSCSamplingGraph"));
  TensorMap tensors = tensorsOf(state->find(kTensors), path);
  FusedGraph fused;
  for (const char* name : {"indptr", "indices"}) {
    if (tensors.count(name) == 0 || tensors[name].shape.size() != 1 || !tensors[name].isInteger() || tensors[name].shape.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": '", name, "' is no list of integers"));
    }
  }
  DglGraph& graph = fused.graph;
  graph.indptr = tensors["indptr"];
  graph.first = tensors["indices"];
  graph.rowsAreDestinations = true;
  graph.edgeIds.shape = {0};
  graph.edgeIds.strides = {1};
  if (graph.indptr.rows() == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": 'indptr' is empty"));
  graph.numNodes = graph.indptr.rows() - 1;
  graph.nodes = tensorsOf(state->find("node_attributes"), path);
  graph.edges = tensorsOf(state->find("edge_attributes"), path);
  FARHOP_ASSIGN_OR_RETURN(fused.nodeTypes, namesOf(state->find("node_type_to_id"), path));
  FARHOP_ASSIGN_OR_RETURN(fused.edgeTypes, namesOf(state->find("edge_type_to_id"), path));
  if (tensors.count("node_type_offset") > 0) {
    const ArrayView& offsets = tensors["node_type_offset"];
    for (uint64_t i = 0; offsets.isInteger() && i < offsets.rows(); ++i) fused.typeOffsets.push_back(offsets.integerAt(i));
    bool ascends = fused.typeOffsets.size() == fused.nodeTypes.size() + 1 && fused.typeOffsets.back() == graph.numNodes;
    for (size_t i = 0; i + 1 < fused.typeOffsets.size(); ++i) ascends = ascends && fused.typeOffsets[i] <= fused.typeOffsets[i + 1];
    if (!ascends) return absl::InvalidArgumentError(absl::StrCat(path, ": 'node_type_offset' does not fit the node types"));
  }
  if (tensors.count("type_per_edge") > 0) {
    fused.typePerEdge = tensors["type_per_edge"];
    if (fused.typePerEdge.shape != graph.first.shape || !fused.typePerEdge.isInteger()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": 'type_per_edge' does not fit the edges"));
    }
  }
  return fused;
}

}  // namespace farhop::importers
