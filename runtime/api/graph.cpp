#include "farhop/graph.h"

#include "absl/strings/str_join.h"
#include "runtime/api/graph_core.h"
#include "runtime/api/status_error.h"
#include "sampler/feature_service.h"

namespace farhop {

using api::toError;
using api::valueOrThrow;

absl::Status GraphCore::explained(const absl::Status& status) const {
  if (status.ok()) return status;
  // The agent's own report may still be on its way; a trainer that ends because of this error must not be
  // taken for the culprit.
  if (absl::IsUnavailable(status) && peerOf(status)) session->failure().record(status);
  const absl::Status failure = session->failure().status();
  return failure.ok() ? status : failure;
}

int GraphCore::nodeType(const std::string& name) const {
  const auto& types = graph->schema().nodeTypes;
  if (name.empty() && types.size() == 1) return 0;
  if (name.empty()) {
    std::vector<std::string> names;
    for (const auto& type : types) names.push_back(type.name);
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat("the graph has several node types (", absl::StrJoin(names, ", "), "); name one"));
  }
  return valueOrThrow(graph->schema().nodeTypeIndex(name));
}

int GraphCore::relation(const std::string& name) const {
  const auto& relations = graph->schema().relations;
  if (name.empty() && relations.size() == 1) return 0;
  if (name.empty()) {
    std::vector<std::string> names;
    for (size_t i = 0; i < relations.size(); ++i) names.push_back(graph->schema().relationText(static_cast<int>(i)));
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat("the graph has several relations (", absl::StrJoin(names, ", "), "); name one"));
  }
  return valueOrThrow(graph->schema().relationIndex(name));
}

torch::ScalarType torchType(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return torch::kInt8;
    case DType::kUInt8: return torch::kUInt8;
    case DType::kInt16: return torch::kInt16;
    case DType::kInt32: return torch::kInt32;
    case DType::kInt64:
    case DType::kUInt64: return torch::kInt64;  // same bits; ids stay below 2^63
    case DType::kFloat16: return torch::kFloat16;
    case DType::kBFloat16: return torch::kBFloat16;
    case DType::kFloat32: return torch::kFloat32;
    case DType::kFloat64: return torch::kFloat64;
    case DType::kBool: return torch::kBool;
    case DType::kUInt16:
    case DType::kUInt32: break;
  }
  throw Error(ErrorCode::kInvalidArgument, absl::StrCat("libtorch has no ", dtypeName(dtype),
                                                        " tensors; store the feature as a signed integer"));
}

std::optional<DType> storedType(torch::ScalarType type) {
  for (DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kFloat16,
                      DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kBool}) {
    if (torchType(dtype) == type) return dtype;
  }
  return std::nullopt;
}

std::vector<std::string> Graph::nodeTypes() const {
  std::vector<std::string> names;
  for (const auto& type : core_->graph->schema().nodeTypes) names.push_back(type.name);
  return names;
}

std::vector<std::string> Graph::relations() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < core_->graph->schema().relations.size(); ++i) {
    names.push_back(core_->graph->schema().relationText(static_cast<int>(i)));
  }
  return names;
}

int64_t Graph::numNodes(const std::string& nodeType) const {
  return static_cast<int64_t>(core_->graph->schema().nodeTypes[core_->nodeType(nodeType)].count);
}

int64_t Graph::numEdges(const std::string& relation) const {
  return static_cast<int64_t>(core_->graph->schema().relations[core_->relation(relation)].count);
}

int Graph::numPartitions() const { return core_->graph->book().numPartitions(); }

int64_t Graph::numClasses() const { return core_->graph->store().manifest().numClasses; }

std::vector<std::string> Graph::features(const std::string& nodeType) const {
  std::vector<std::string> names;
  const int type = core_->nodeType(nodeType);
  for (const auto& feature : core_->graph->schema().nodeTypes[type].features) names.push_back(feature.name);
  for (std::string& name : core_->graph->jobFeatures().names(type)) names.push_back(std::move(name));
  return names;
}

std::vector<int64_t> Graph::featureShape(const std::string& feature, const std::string& nodeType) const {
  const int type = core_->nodeType(nodeType);
  const auto spec = sampler::featureSpec(*core_->graph, type,
                                         valueOrThrow(sampler::featureIndex(*core_->graph, type, feature)));
  return {spec.rowShape.begin(), spec.rowShape.end()};
}

torch::ScalarType Graph::featureType(const std::string& feature, const std::string& nodeType) const {
  const int type = core_->nodeType(nodeType);
  return torchType(sampler::featureSpec(*core_->graph, type,
                                        valueOrThrow(sampler::featureIndex(*core_->graph, type, feature))).dtype);
}

Seeds Graph::split(const std::string& name, const std::string& nodeType) const {
  std::vector<std::string> known;
  for (const partition::SplitInfo& split : core_->graph->store().splits()) {
    const std::string& type = core_->graph->schema().nodeTypes[split.nodeType].name;
    if (split.name == name && (nodeType.empty() || nodeType == type)) {
      Seeds seeds;
      seeds.name_ = name;
      seeds.nodeType_ = type;
      seeds.count_ = static_cast<int64_t>(split.count);
      seeds.isSplit_ = true;
      return seeds;
    }
    known.push_back(absl::StrCat("'", split.name, "' of '", type, "'"));
  }
  throw Error(ErrorCode::kNotFound, absl::StrCat("the graph has no split '", name, "'; it has ",
                                                 known.empty() ? "none" : absl::StrJoin(known, ", ")));
}

Seeds Graph::seeds(const torch::Tensor& originalIds, const std::string& nodeType) const {
  const int type = core_->nodeType(nodeType);
  if (originalIds.dim() != 1 || originalIds.scalar_type() != torch::kInt64 || !originalIds.device().is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument, "seeds: expected an int64 CPU tensor of shape [n]");
  }
  const torch::Tensor ids = originalIds.contiguous();
  Seeds seeds;
  seeds.name_ = "seeds";
  seeds.nodeType_ = core_->graph->schema().nodeTypes[type].name;
  seeds.count_ = ids.size(0);
  seeds.originalIds_.assign(ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.size(0));
  const int64_t count = static_cast<int64_t>(core_->graph->schema().nodeTypes[type].count);
  for (int64_t id : seeds.originalIds_) {
    if (id < 0 || id >= count) {
      throw Error(ErrorCode::kInvalidArgument, absl::StrCat("seed ", id, " is out of range: node type '",
                                                            seeds.nodeType_, "' has ", count, " nodes"));
    }
  }
  return seeds;
}

Seeds Graph::seeds(const torch::Tensor& originalIds, const std::string& nodeType, const torch::Tensor& times) const {
  Seeds seeds = this->seeds(originalIds, nodeType);
  if (times.dim() != 1 || times.scalar_type() != torch::kInt64 || !times.device().is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument, "seeds: expected times as an int64 CPU tensor of shape [n]");
  }
  if (times.size(0) != seeds.count()) {
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat("seeds: ", times.size(0), " times for ", seeds.count(), " seeds; give one for each"));
  }
  const torch::Tensor values = times.contiguous();
  seeds.times_.assign(values.data_ptr<int64_t>(), values.data_ptr<int64_t>() + values.size(0));
  return seeds;
}

Seeds Graph::nodes(const std::string& nodeType) const {
  const partition::NodeType& type = core_->graph->schema().nodeTypes[core_->nodeType(nodeType)];
  Seeds seeds;
  seeds.name_ = "nodes";
  seeds.nodeType_ = type.name;
  seeds.count_ = static_cast<int64_t>(type.count);
  seeds.isAll_ = true;
  return seeds;
}

}  // namespace farhop
