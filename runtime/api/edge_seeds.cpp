#include "farhop/edge_seeds.h"

#include "absl/strings/str_join.h"
#include "farhop/graph.h"
#include "partition/layout.h"
#include "runtime/api/graph_core.h"
#include "runtime/api/status_error.h"

namespace farhop {

EdgeSeeds Graph::edgeSplit(const std::string& name, const std::string& relation) const {
  const partition::Schema& schema = core_->graph->schema();
  const int wanted = relation.empty() ? -1 : core_->relation(relation);
  std::vector<std::string> known, fitting;
  EdgeSeeds seeds;
  for (const partition::EdgeSplitInfo& split : core_->graph->store().edgeSplits()) {
    const std::string text = schema.relationText(split.relation);
    known.push_back(absl::StrCat("'", split.name, "' of ", text));
    if (split.name != partition::canonicalSplitName(name) || (wanted >= 0 && wanted != split.relation)) continue;
    fitting.push_back(text);
    seeds.name_ = split.name;
    seeds.relation_ = text;
    seeds.count_ = static_cast<int64_t>(split.count);
    seeds.hasLabels_ = split.labels.has_value();
  }
  if (fitting.size() == 1) return seeds;
  if (fitting.empty()) {
    throw Error(ErrorCode::kNotFound, absl::StrCat("the graph has no split '", name, "' of edges",
                                                   relation.empty() ? "" : " of ", relation, "; it has ",
                                                   known.empty() ? "none" : absl::StrJoin(known, ", ")));
  }
  throw Error(ErrorCode::kInvalidArgument, absl::StrCat("the graph has a split '", name, "' of edges of several relations (",
                                                        absl::StrJoin(fitting, ", "), "); name one"));
}

EdgeSeeds EdgeSeeds::withTimes(const torch::Tensor& times) const {
  if (kind_ == Kind::kAll) {
    throw Error(ErrorCode::kInvalidArgument, absl::StrCat("withTimes: all edges of ", relation_,
                                                          " have the times of the store; give times to a split or to pairs"));
  }
  if (!times.defined() || times.dim() != 1 || times.scalar_type() != torch::kInt64 || !times.device().is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat("withTimes: expected an int64 CPU tensor of shape [", count_, "]"));
  }
  if (times.size(0) != count_) {
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat("withTimes: ", times.size(0), " times for ", count_, " seed edges; give one for each"));
  }
  const torch::Tensor values = times.contiguous();
  EdgeSeeds seeds = *this;
  seeds.times_.assign(values.data_ptr<int64_t>(), values.data_ptr<int64_t>() + values.size(0));
  return seeds;
}

EdgeSeeds Graph::edges(const std::string& relation) const {
  const int index = core_->relation(relation);
  EdgeSeeds seeds;
  seeds.kind_ = EdgeSeeds::Kind::kAll;
  seeds.name_ = "edges";
  seeds.relation_ = core_->graph->schema().relationText(index);
  seeds.count_ = static_cast<int64_t>(core_->graph->schema().relations[index].count);
  return seeds;
}

EdgeSeeds Graph::edgePairs(const torch::Tensor& pairs, const std::string& relation, const torch::Tensor& labels) const {
  const int index = core_->relation(relation);
  const partition::Relation& edges = core_->graph->schema().relations[index];
  if (!pairs.defined() || pairs.dim() != 2 || pairs.size(1) != 2 || pairs.scalar_type() != torch::kInt64 ||
      !pairs.device().is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument, "edgePairs: expected an int64 CPU tensor of shape [n, 2]");
  }
  const torch::Tensor ends = pairs.contiguous();
  EdgeSeeds seeds;
  seeds.kind_ = EdgeSeeds::Kind::kPairs;
  seeds.name_ = "pairs";
  seeds.relation_ = core_->graph->schema().relationText(index);
  seeds.count_ = ends.size(0);
  seeds.ends_.assign(ends.data_ptr<int64_t>(), ends.data_ptr<int64_t>() + ends.numel());
  for (size_t i = 0; i < seeds.ends_.size(); ++i) {
    const partition::NodeType& type = core_->graph->schema().nodeTypes[i % 2 == 0 ? edges.source : edges.destination];
    if (seeds.ends_[i] >= 0 && static_cast<uint64_t>(seeds.ends_[i]) < type.count) continue;
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat(i % 2 == 0 ? "source " : "destination ", seeds.ends_[i], " of pair ", i / 2,
                             " is out of range: node type '", type.name, "' has ", type.count, " nodes"));
  }
  if (!labels.defined()) return seeds;
  if (labels.dim() != 1 || labels.size(0) != seeds.count_ || !labels.device().is_cpu() || labels.is_complex()) {
    throw Error(ErrorCode::kInvalidArgument,
                absl::StrCat("edgePairs: expected labels as a CPU tensor of numbers of shape [", seeds.count_, "]"));
  }
  seeds.labels_ = labels.contiguous().clone();
  seeds.hasLabels_ = true;
  return seeds;
}

}  // namespace farhop
