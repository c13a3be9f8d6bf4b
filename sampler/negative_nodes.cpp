#include "sampler/negative_nodes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"

namespace farhop::sampler {
namespace {

constexpr uint64_t kBlockNodes = 128;
constexpr uint32_t kTabledDegrees = 1024;

// degree^0.75 of exactly rounded operations, so that all machines agree.
double computeWeight(uint32_t degree) {
  const double d = static_cast<double>(degree);
  return std::sqrt(d * std::sqrt(d));
}

double weightOf(uint32_t degree) {
  static const std::array<double, kTabledDegrees> table = [] {
    std::array<double, kTabledDegrees> weights{};
    for (uint32_t d = 0; d < kTabledDegrees; ++d) weights[d] = computeWeight(d);
    return weights;
  }();
  return degree < kTabledDegrees ? table[degree] : computeWeight(degree);
}

}  // namespace

absl::StatusOr<NegativeNodeDraw> NegativeNodeDraw::make(const PartitionedGraph& graph, int relation, bool destinations,
                                                        NegativeNodes nodes) {
  const partition::Relation& edges = graph.schema().relations[relation];
  const int type = destinations ? edges.destination : edges.source;
  NegativeNodeDraw draw;
  FARHOP_ASSIGN_OR_RETURN(draw.gidOf_, graph.store().gidsByOriginalId(type));
  if (nodes == NegativeNodes::kUniform) {
    if (!draw.gidOf_.empty()) return draw;
    return absl::InvalidArgumentError(absl::StrCat("node type '", graph.schema().nodeTypes[type].name,
                                                   "' has no nodes to draw negatives from"));
  }
  FARHOP_ASSIGN_OR_RETURN(draw.degrees_,
                          destinations ? graph.store().inDegrees(relation) : graph.store().outDegrees(relation));
  double sum = 0;
  for (uint64_t id = 0; id < draw.degrees_.size(); ++id) {
    sum += weightOf(draw.degrees_[id]);
    if (id % kBlockNodes == kBlockNodes - 1 || id + 1 == draw.degrees_.size()) draw.sums_.push_back(sum);
  }
  if (sum > 0) return draw;
  return absl::InvalidArgumentError(absl::StrCat("relation ", graph.schema().relationText(relation),
                                                 " has no edges, so negatives cannot be drawn by degree"));
}

uint64_t NegativeNodeDraw::gid(uint64_t u) const {
  if (sums_.empty()) return gidOf_[static_cast<uint64_t>((static_cast<Uint128>(u) * gidOf_.size()) >> 64)];
  const double at = static_cast<double>(u >> 11) * 0x1.0p-53 * sums_.back();
  const size_t block = std::min<size_t>(static_cast<size_t>(std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin()),
                                        sums_.size() - 1);
  double sum = block == 0 ? 0 : sums_[block - 1];
  const uint64_t last = std::min<uint64_t>((block + 1) * kBlockNodes, degrees_.size());
  uint64_t id = block * kBlockNodes;
  // The block's weights are added up as they were, so that its last sum is above `at`.
  for (; id + 1 < last; ++id) {
    sum += weightOf(degrees_[id]);
    if (sum > at) break;
  }
  return gidOf_[id];
}

}  // namespace farhop::sampler
