#include <algorithm>
#include <cstring>
#include <utility>

#include "farhop/link_loader.h"
#include "runtime/api/link_batch_core.h"
#include "sampler/link_sampler.h"

namespace farhop {
namespace {

using sampler::LinkSeeds;
using sampler::SampledBatch;

template <typename T>
torch::Tensor copyOf(const T* values, uint64_t count) {
  torch::Tensor copy = torch::empty({static_cast<int64_t>(count)}, torch::kInt64);
  std::copy(values, values + count, copy.data_ptr<int64_t>());
  return copy;
}

const SampledBatch& sampledOf(const LinkBatchCore& core) { return *core.batch->sampled; }

// Numbers of the ends of seed edges [0, edges) and, behind them, of the negatives.
torch::Tensor pairIndex(const LinkBatchCore& core, uint64_t negatives) {
  const SampledBatch& batch = sampledOf(core);
  const uint64_t edges = batch.link.edges, count = edges + negatives;
  torch::Tensor index = torch::empty({2, static_cast<int64_t>(count)}, torch::kInt64);
  int64_t* const sources = index.data_ptr<int64_t>();
  std::copy_n(batch.otherIndex.begin(), count, sources + count);
  for (uint64_t i = 0; i < count; ++i) {
    const bool own = i < edges || core.traits->drawsSources;
    sources[i] = batch.seedIndex[own ? i : sampler::edgeOfNegative(i - edges, edges, negatives)];
  }
  return index;
}

void requireTriplets(const LinkBatchCore& core, bool wanted) {
  if ((core.traits->negatives == Negatives::kTriplet) == wanted) return;
  throw Error(ErrorCode::kFailedPrecondition,
              wanted ? "the loader makes no triplets; use edgeLabelIndex(), or Negatives::kTriplet"
                     : "the loader makes triplets; use srcIndex(), dstPosIndex() and dstNegIndex()");
}

// Labels of the seed edges.
torch::Tensor seedLabels(const LinkBatchCore& core) {
  const LinkTraits& traits = *core.traits;
  const std::vector<uint64_t>& positions = sampledOf(core).link.positions;
  if (traits.labels.defined()) return traits.labels.index_select(0, copyOf(positions.data(), positions.size()));
  const int64_t count = static_cast<int64_t>(positions.size());
  if (traits.splitLabels.data == nullptr) return torch::ones({count}, torch::kFloat32);
  std::vector<int64_t> shape = {count};
  shape.insert(shape.end(), traits.splitLabels.spec.rowShape.begin(), traits.splitLabels.spec.rowShape.end());
  torch::Tensor labels = torch::empty(shape, torch::TensorOptions().dtype(torchType(traits.splitLabels.spec.dtype)));
  const size_t rowBytes = traits.splitLabels.spec.rowBytes();
  std::byte* row = static_cast<std::byte*>(labels.data_ptr());
  for (uint64_t position : positions) {
    std::memcpy(row, traits.splitLabels.row(position), rowBytes);
    row += rowBytes;
  }
  return labels;
}

}  // namespace

LinkBatch::LinkBatch(std::shared_ptr<LinkBatchCore> core) : Batch(core->batch), link_(std::move(core)) {}

int64_t LinkBatch::numSeedEdges() const { return static_cast<int64_t>(sampledOf(*link_).link.edges); }
int64_t LinkBatch::numNegatives() const { return static_cast<int64_t>(sampledOf(*link_).link.negatives); }
const std::string& LinkBatch::relation() const { return link_->traits->relation; }

torch::Tensor LinkBatch::seedEdges() const { return pairIndex(*link_, 0); }

torch::Tensor LinkBatch::seedPositions() const {
  if (!link_->traits->ofPairs) {
    throw Error(ErrorCode::kFailedPrecondition, "only seeds of Graph::edgePairs() have positions");
  }
  const std::vector<uint64_t>& positions = sampledOf(*link_).link.positions;
  return copyOf(positions.data(), positions.size());
}

torch::Tensor LinkBatch::edgeLabelIndex() const {
  requireTriplets(*link_, false);
  return pairIndex(*link_, sampledOf(*link_).link.negatives);
}

torch::Tensor LinkBatch::edgeLabel() const {
  requireTriplets(*link_, false);
  const torch::Tensor labels = seedLabels(*link_);
  if (numNegatives() == 0) return labels;
  std::vector<int64_t> shape = labels.sizes().vec();
  shape[0] = numNegatives();
  return torch::cat({labels, torch::zeros(shape, labels.options())});
}

torch::Tensor LinkBatch::srcIndex() const {
  requireTriplets(*link_, true);
  return copyOf(sampledOf(*link_).seedIndex.data(), sampledOf(*link_).link.edges);
}

torch::Tensor LinkBatch::dstPosIndex() const {
  requireTriplets(*link_, true);
  return copyOf(sampledOf(*link_).otherIndex.data(), sampledOf(*link_).link.edges);
}

torch::Tensor LinkBatch::dstNegIndex() const {
  requireTriplets(*link_, true);
  const LinkSeeds& link = sampledOf(*link_).link;
  return copyOf(sampledOf(*link_).otherIndex.data() + link.edges, link.negatives).view({numSeedEdges(), -1});
}

torch::Tensor LinkBatch::unresolvedNegatives() const {
  const std::vector<uint32_t>& unresolved = sampledOf(*link_).link.unresolved;
  return copyOf(unresolved.data(), unresolved.size());
}

}  // namespace farhop
