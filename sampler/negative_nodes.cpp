#include "sampler/negative_nodes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

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
                                                        NegativeNodes nodes, std::shared_ptr<const NodeTimes> times) {
  const partition::Relation& edges = graph.schema().relations[relation];
  const int type = destinations ? edges.destination : edges.source;
  NegativeNodeDraw draw;
  FARHOP_ASSIGN_OR_RETURN(draw.gidOf_, graph.store().gidsByOriginalId(type));
  draw.times_ = std::move(times);
  if (draw.times_ != nullptr && draw.times_->size() != draw.gidOf_.size()) {
    return absl::InternalError(absl::StrCat(draw.times_->size(), " times of ", draw.gidOf_.size(), " nodes"));
  }
  if (nodes == NegativeNodes::kUniform) {
    if (!draw.gidOf_.empty()) return draw;
    return absl::InvalidArgumentError(absl::StrCat("node type '", graph.schema().nodeTypes[type].name,
                                                   "' has no nodes to draw negatives from"));
  }
  FARHOP_ASSIGN_OR_RETURN(draw.degrees_,
                          destinations ? graph.store().inDegrees(relation) : graph.store().outDegrees(relation));
  double sum = 0;
  for (uint64_t place = 0; place < draw.degrees_.size(); ++place) {
    sum += draw.weightAt(place);
    if (place % kBlockNodes == kBlockNodes - 1 || place + 1 == draw.degrees_.size()) draw.sums_.push_back(sum);
  }
  if (sum > 0) return draw;
  return absl::InvalidArgumentError(absl::StrCat("relation ", graph.schema().relationText(relation),
                                                 " has no edges, so negatives cannot be drawn by degree"));
}

double NegativeNodeDraw::weightAt(uint64_t place) const { return weightOf(degrees_[originalIdAt(place)]); }

double NegativeNodeDraw::sumOf(uint64_t candidates) const {
  if (candidates == degrees_.size()) return sums_.back();
  const uint64_t block = candidates / kBlockNodes;
  double sum = block == 0 ? 0 : sums_[block - 1];
  for (uint64_t place = block * kBlockNodes; place < candidates; ++place) sum += weightAt(place);
  return sum;
}

uint64_t NegativeNodeDraw::gid(uint64_t u, uint64_t candidates) const {
  const double total = sums_.empty() ? 0 : sumOf(candidates);
  if (!(total > 0)) return gidOf_[originalIdAt(static_cast<uint64_t>((static_cast<Uint128>(u) * candidates) >> 64))];
  const double at = static_cast<double>(u >> 11) * 0x1.0p-53 * total;
  const size_t blocks = static_cast<size_t>((candidates + kBlockNodes - 1) / kBlockNodes);
  const auto end = sums_.begin() + static_cast<ptrdiff_t>(blocks);
  const size_t block = std::min<size_t>(static_cast<size_t>(std::upper_bound(sums_.begin(), end, at) - sums_.begin()), blocks - 1);
  double sum = block == 0 ? 0 : sums_[block - 1];
  const uint64_t last = std::min<uint64_t>((block + 1) * kBlockNodes, candidates);
  uint64_t place = block * kBlockNodes;
  // The block's weights are added up as they were, so that its last sum is above `at`.
  for (; place + 1 < last; ++place) {
    sum += weightAt(place);
    if (sum > at) break;
  }
  return gidOf_[originalIdAt(place)];
}

}  // namespace farhop::sampler
