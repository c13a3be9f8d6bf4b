#include <torch/cuda.h>

#include <sstream>
#include <utility>

#include "farhop/batch.h"
#include "runtime/api/batch_core.h"
#include "runtime/api/status_error.h"

namespace farhop {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

void checkRange(const FeatureState& state, const char* what, int64_t begin, int64_t end, int64_t count) {
  if (begin >= 0 && begin <= end && end <= count) return;
  refuse(absl::StrCat(what, " ", begin, " to ", end, " of feature '", state.name, "' do not exist: it has ", count));
}

// What a destination must be and what the given one is.
void checkDestination(const FeatureState& state, const torch::Tensor& destination) {
  if (destination.defined() && destination.device().is_cpu() && destination.layout() == torch::kStrided &&
      destination.is_contiguous() && destination.scalar_type() == state.dtype &&
      destination.sizes() == torch::IntArrayRef(state.shape)) {
    return;
  }
  std::ostringstream text;
  text << "pullInto: feature '" << state.name << "' needs a contiguous CPU tensor of shape "
       << torch::IntArrayRef(state.shape) << " and dtype " << state.dtype << ", not ";
  if (!destination.defined()) {
    text << "an undefined one";
  } else {
    text << destination.sizes() << " " << destination.scalar_type() << " on " << destination.device();
    if (destination.layout() != torch::kStrided) {
      text << ", " << destination.layout();
    } else if (!destination.is_contiguous()) {
      text << ", not contiguous";
    }
  }
  refuse(text.str());
}

}  // namespace

bool FeatureFuture::waitFor(std::chrono::milliseconds timeout) const {
  return pull_->started.hold->pull().waitFor(timeout);
}

torch::Tensor FeatureFuture::get() const { return get(pull_->claim->state->longestWait()); }

torch::Tensor FeatureFuture::get(std::chrono::milliseconds timeout) const {
  const PullWait wait(*pull_->claim->state->core);
  return pull_->claim->state->result(pull_->started, timeout);
}

const std::string& FeatureHandle::name() const { return claim_->state->name; }
std::vector<int64_t> FeatureHandle::shape() const { return claim_->state->shape; }
torch::ScalarType FeatureHandle::dtype() const { return claim_->state->dtype; }
torch::Device FeatureHandle::device() const { return torch::kCPU; }

FeatureHandle FeatureHandle::rows(int64_t begin, int64_t end) const {
  FeatureState& state = *claim_->state;
  checkRange(state, "rows", begin, end, state.shape[0]);
  std::shared_ptr<FeatureState> part = state.makePart();
  part->firstRow += begin;
  part->shape[0] = end - begin;
  if (part->edges) {
    part->edges->firstEdge = static_cast<uint64_t>(part->firstRow);
    part->edges->maxEdges = static_cast<uint64_t>(part->shape[0]);
  }
  return FeatureHandle(FeatureClaim::of(part));
}

FeatureHandle FeatureHandle::columns(int64_t begin, int64_t end) const {
  FeatureState& state = *claim_->state;
  if (state.shape.size() < 2) refuse(absl::StrCat("feature '", state.name, "' has no columns: its rows are one number each"));
  checkRange(state, "columns", begin, end, state.shape[1]);
  std::shared_ptr<FeatureState> part = state.makePart();
  part->firstColumn += begin;
  part->shape[1] = end - begin;
  return FeatureHandle(FeatureClaim::of(part));
}

FeatureHandle FeatureHandle::as(torch::ScalarType dtype) const {
  FeatureState& state = *claim_->state;
  const std::optional<DType> to = storedType(dtype);
  if (dtype != torchType(state.spec.dtype) && (!to || !sampler::canWiden(state.spec.dtype, *to))) {
    refuse(absl::StrCat("feature '", state.name, "' is stored as ", dtypeName(state.spec.dtype), ", of which ",
                        torch::toString(dtype), " does not hold every value; convert the pulled tensor"));
  }
  std::shared_ptr<FeatureState> part = state.makePart();
  part->dtype = dtype;
  return FeatureHandle(FeatureClaim::of(part));
}

torch::Tensor FeatureHandle::pull() const {
  const PullWait wait(*claim_->state->core);
  return claim_->state->result(claim_->state->start(), claim_->state->longestWait());
}

torch::Tensor FeatureHandle::pull(torch::Device device) const {
  if (device.is_cpu()) return pull();
  const int64_t devices = torch::cuda::is_available() ? static_cast<int64_t>(torch::cuda::device_count()) : 0;
  if (!device.is_cuda() || device.index() >= devices || devices == 0) {
    refuse(absl::StrCat("feature '", name(), "' cannot be pulled to ", device.str(), ": libtorch sees ", devices,
                        " GPUs here; pull() brings it to the CPU"));
  }
  return pull().to(device, /*non_blocking=*/true);
}

FeatureFuture FeatureHandle::pullAsync() const {
  return FeatureFuture(std::make_shared<const FuturePull>(FuturePull{claim_, claim_->state->start()}));
}

void FeatureHandle::pullInto(torch::Tensor destination) const {
  FeatureState& state = *claim_->state;
  checkDestination(state, destination);
  api::okOrThrow(refusePullAfterLeave(*state.core));
  const PullWait wait(*state.core);
  if (state.current() || (state.base != nullptr && state.base->current())) {
    destination.copy_(state.result(state.start(), state.longestWait()));
    return;
  }
  state.pullInto(std::move(destination));
}

}  // namespace farhop
