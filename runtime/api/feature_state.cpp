// What happens to a feature of a batch between its handle and the pullers.
#include <torch/cuda.h>
#include <torch/types.h>

#include <utility>

#include "farhop/batch.h"
#include "runtime/api/batch_core.h"
#include "runtime/api/status_error.h"

namespace farhop {
namespace {

torch::Tensor& tensorOf(const StartedPull& pull) {
  return *static_cast<torch::Tensor*>(pull.hold->pull().memory()[pull.part].owner.get());
}

// Starts a pull of `states`, all of them nodes' features with the same rows, into the memory of `pending`.
void startNodePull(const std::vector<std::shared_ptr<FeatureState>>& states,
                   const std::shared_ptr<sampler::PendingPull>& pending) {
  const FeatureState& first = *states.front();
  sampler::PullRequest request;
  request.nodeType = first.nodeType;
  request.gids = first.gids();
  for (size_t i = 0; i < states.size(); ++i) {
    request.targets.push_back({states[i]->feature, pending->memory()[i].data, states[i]->format()});
  }
  request.cache = first.cache;
  request.keepAlive = pending;
  request.deadline = Deadline::after(first.timeout);
  request.cancelled = pending->cancelled();
  // The core holds the puller, which must outlive a reply that comes late.
  first.core->puller->pull(std::move(request), [pending, core = first.core](absl::Status status) {
    pending->finish(core->explained(status));
  });
}

void startEdgePull(const FeatureState& state, const std::shared_ptr<sampler::PendingPull>& pending) {
  sampler::EdgePullRequest request;
  request.range = *state.edges;
  request.targets = {{state.feature, pending->memory()[0].data, state.format()}};
  request.keepAlive = pending;
  request.deadline = Deadline::after(state.timeout);
  request.cancelled = pending->cancelled();
  state.core->edgePuller->pull(std::move(request), [pending, core = state.core](absl::Status status) {
    pending->finish(core->explained(status));
  });
}

void startPulls(const std::vector<std::shared_ptr<FeatureState>>& states, const std::shared_ptr<sampler::PendingPull>& pending) {
  try {
    if (states.front()->edges) {
      startEdgePull(*states.front(), pending);
    } else {
      startNodePull(states, pending);
    }
  } catch (const std::bad_alloc&) {
    pending->finish(absl::ResourceExhaustedError(absl::StrCat("out of memory for pulling feature '", states.front()->name, "'")));
  }
}

}  // namespace

absl::StatusOr<sampler::PullMemory> makePullMemory(const std::vector<int64_t>& shape, torch::ScalarType dtype) {
  static const bool pinned = torch::cuda::is_available();
  try {
    auto tensor = std::make_shared<torch::Tensor>(
        torch::empty(shape, torch::TensorOptions().dtype(dtype).pinned_memory(pinned)));
    auto* data = static_cast<std::byte*>(tensor->data_ptr());
    return sampler::PullMemory{data, std::move(tensor)};
  } catch (const c10::Error& error) {  // libtorch's own
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a feature of the batch: ", error.what_without_backtrace()));
  }
}

absl::Status refusePullAfterLeave(const GraphCore& core) {
  if (!*core.left) return absl::OkStatus();
  return absl::FailedPreconditionError("the runtime has left the job; pull features before Runtime::leave()");
}

std::shared_ptr<FeatureClaim> FeatureClaim::of(const std::shared_ptr<FeatureState>& state) {
  std::lock_guard lock(state->mutex);
  std::shared_ptr<FeatureClaim> claim = state->claim.lock();
  if (claim == nullptr) {
    claim = std::make_shared<FeatureClaim>(state);
    state->claim = claim;
  }
  return claim;
}

void FeatureState::describe(const partition::FeatureSpec& stored, size_t rows) {
  spec = stored;
  dtype = torchType(stored.dtype);
  shape.assign(1, static_cast<int64_t>(rows));
  shape.insert(shape.end(), stored.rowShape.begin(), stored.rowShape.end());
}

std::span<const uint64_t> FeatureState::gids() const {
  const std::span<const uint64_t> all = ofSeeds ? std::span<const uint64_t>(batch->seeds)
                                                : std::span<const uint64_t>(batch->nodes[static_cast<size_t>(nodeType)]);
  return all.subspan(static_cast<size_t>(firstRow), static_cast<size_t>(shape[0]));
}

sampler::RowFormat FeatureState::format() const {
  sampler::RowFormat format;
  if (dtype != torchType(spec.dtype)) format.as = storedType(dtype);
  if (shape.size() > 1 && static_cast<uint64_t>(shape[1]) != spec.rowShape[0]) {
    const size_t columnBytes = spec.rowBytes() / std::max<uint64_t>(1, spec.rowShape[0]);
    format.part = sampler::RowPart{static_cast<uint64_t>(firstColumn) * columnBytes, static_cast<uint64_t>(shape[1]) * columnBytes};
  }
  return format;
}

std::shared_ptr<FeatureState> FeatureState::makePart() {
  auto part = std::make_shared<FeatureState>();
  part->core = core;
  part->batch = batch;
  part->name = name;
  part->nodeType = nodeType;
  part->feature = feature;
  part->ofSeeds = ofSeeds;
  part->cache = cache;
  part->edges = edges;
  part->spec = spec;
  part->dtype = dtype;
  part->shape = shape;
  part->timeout = timeout;
  part->base = base != nullptr ? base : shared_from_this();
  part->firstRow = firstRow;
  part->firstColumn = firstColumn;
  return part;
}

std::optional<StartedPull> FeatureState::current() {
  std::lock_guard lock(mutex);
  if (started && started->hold->pull().failed()) started.reset();
  return started;
}

StartedPull FeatureState::start() {
  if (const auto running = current()) return *running;
  api::okOrThrow(refusePullAfterLeave(*core));
  if (base != nullptr) {
    if (auto whole = base->current()) {
      whole->ofBase = true;
      adopt(*whole);
      return *whole;
    }
  }
  std::vector<sampler::PullMemory> memory = {api::valueOrThrow(makePullMemory(shape, dtype))};
  auto pending = std::make_shared<sampler::PendingPull>(std::move(memory));
  const StartedPull pull{std::make_shared<sampler::PullHold>(pending), 0, false};
  {
    std::lock_guard lock(mutex);
    if (started) return *started;  // by another thread, just now
    started = pull;
  }
  startPulls({shared_from_this()}, pending);
  return pull;
}

void FeatureState::pullInto(torch::Tensor destination) {
  auto tensor = std::make_shared<torch::Tensor>(std::move(destination));
  auto* data = static_cast<std::byte*>(tensor->data_ptr());
  auto pending = std::make_shared<sampler::PendingPull>(std::vector<sampler::PullMemory>{{data, std::move(tensor)}});
  const StartedPull pull{std::make_shared<sampler::PullHold>(pending), 0, false};
  startPulls({shared_from_this()}, pending);
  result(pull, longestWait());
}

void FeatureState::adopt(const StartedPull& pull) {
  std::lock_guard lock(mutex);
  if (!started) started = pull;
}

torch::Tensor FeatureState::result(const StartedPull& pull, std::chrono::milliseconds limit) {
  sampler::PendingPull& pending = pull.hold->pull();
  if (!pending.waitFor(limit)) {
    throw Error(ErrorCode::kDeadlineExceeded, absl::StrCat("feature '", name, "' did not arrive within ", limit.count(), " ms"));
  }
  api::okOrThrow(pending.status());
  torch::Tensor tensor = tensorOf(pull);
  if (!pull.ofBase) return tensor;
  std::lock_guard lock(mutex);
  if (!ofBase.defined()) {
    tensor = tensor.narrow(0, firstRow, shape[0]);
    if (shape.size() > 1) tensor = tensor.narrow(1, firstColumn, shape[1]);
    ofBase = tensor.to(dtype).contiguous();
  }
  return ofBase;
}

void FeatureState::abandon() {
  std::optional<StartedPull> dropped;  // let go of after the lock
  std::lock_guard lock(mutex);
  if (!claim.expired() || !started || started->hold->pull().done()) return;
  dropped = std::exchange(started, std::nullopt);
}

std::vector<torch::Tensor> Batch::pull(const std::vector<std::string>& names, const std::string& nodeType) const {
  const int type = core_->graph->nodeType(nodeType);
  const PullWait wait(*core_->graph);
  std::vector<std::shared_ptr<FeatureClaim>> claims;
  for (const std::string& name : names) claims.push_back(FeatureClaim::of(core_->featureState(type, name, false)));
  std::vector<StartedPull> pulls(names.size());
  std::vector<std::shared_ptr<FeatureState>> missing;
  std::vector<size_t> missingAt;
  std::vector<sampler::PullMemory> memory;
  for (size_t i = 0; i < claims.size(); ++i) {
    const std::shared_ptr<FeatureState>& state = claims[i]->state;
    if (const auto running = state->current()) {
      pulls[i] = *running;
      continue;
    }
    api::okOrThrow(refusePullAfterLeave(*core_->graph));
    memory.push_back(api::valueOrThrow(makePullMemory(state->shape, state->dtype)));
    missing.push_back(state);
    missingAt.push_back(i);
  }
  if (!missing.empty()) {
    auto pending = std::make_shared<sampler::PendingPull>(std::move(memory));
    auto hold = std::make_shared<sampler::PullHold>(pending);
    for (size_t part = 0; part < missing.size(); ++part) {
      pulls[missingAt[part]] = {hold, part, false};
      missing[part]->adopt(pulls[missingAt[part]]);
    }
    startPulls(missing, pending);
  }
  std::vector<torch::Tensor> tensors;
  for (size_t i = 0; i < claims.size(); ++i) tensors.push_back(claims[i]->state->result(pulls[i], claims[i]->state->longestWait()));
  return tensors;
}

}  // namespace farhop
