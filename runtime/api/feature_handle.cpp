#include <future>
#include <utility>

#include "farhop/batch.h"
#include "runtime/api/batch_core.h"
#include "runtime/api/status_error.h"

namespace farhop {
namespace {

absl::Status refuseAfterLeave(const GraphCore& core) {
  if (!*core.left) return absl::OkStatus();
  return absl::FailedPreconditionError("the runtime has left the job; pull features before Runtime::leave()");
}

// libtorch's own error for "no memory" is none of ours.
torch::Tensor emptyTensor(const std::vector<int64_t>& shape, torch::ScalarType dtype) {
  try {
    return torch::empty(shape, torch::TensorOptions().dtype(dtype));
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kResourceExhausted, absl::StrCat("no memory for a feature of the batch: ", error.what_without_backtrace()));
  }
}

// Rows into `destination`, which `keepAlive` holds.
void startPull(const FeatureState& state, std::byte* destination, std::shared_ptr<const void> keepAlive,
               std::function<void(absl::Status)> done) {
  const Deadline deadline = Deadline::after(state.timeout);
  if (state.edges) {
    sampler::EdgePullRequest request;
    request.range = *state.edges;
    request.targets = {{state.feature, destination}};
    request.keepAlive = std::move(keepAlive);
    request.deadline = deadline;
    state.core->edgePuller->pull(std::move(request), std::move(done));
    return;
  }
  sampler::PullRequest request;
  request.nodeType = state.nodeType;
  request.gids = state.gids();
  request.targets = {{state.feature, destination}};
  request.cache = state.cache;
  request.keepAlive = std::move(keepAlive);
  request.deadline = deadline;
  state.core->puller->pull(std::move(request), std::move(done));
}

}  // namespace

void FeatureState::start() {
  std::byte* destination = nullptr;
  {
    std::lock_guard lock(mutex);
    if (progress != Progress::kIdle) return;
    status = refuseAfterLeave(*core);
    if (!status.ok()) {
      progress = Progress::kDone;
      return;
    }
    tensor = emptyTensor(shape, dtype);
    progress = Progress::kUnderWay;
    destination = static_cast<std::byte*>(tensor.data_ptr());
  }
  startPull(*this, destination, shared_from_this(), [self = shared_from_this()](absl::Status result) {
    absl::Status explained = self->core->explained(result);
    std::lock_guard lock(self->mutex);
    self->status = std::move(explained);
    self->progress = Progress::kDone;
    self->changed.notify_all();
  });
}

bool FeatureState::waitUntilDone(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, limit, [this] { return progress == Progress::kDone; });
}

torch::Tensor FeatureState::result() {
  // The pull ends by its own deadline; the margin is for its completion to run.
  if (!waitUntilDone(timeout + std::chrono::seconds(10))) {
    throw Error(ErrorCode::kDeadlineExceeded, absl::StrCat("feature '", name, "' did not arrive in time"));
  }
  std::lock_guard lock(mutex);
  api::okOrThrow(status);
  return tensor;
}

bool FeatureFuture::waitFor(std::chrono::milliseconds timeout) const { return state_->waitUntilDone(timeout); }
torch::Tensor FeatureFuture::get() const { return state_->result(); }

const std::string& FeatureHandle::name() const { return state_->name; }
std::vector<int64_t> FeatureHandle::shape() const { return state_->shape; }
torch::ScalarType FeatureHandle::dtype() const { return state_->dtype; }

torch::Tensor FeatureHandle::pull() const {
  state_->start();
  return state_->result();
}

FeatureFuture FeatureHandle::pullAsync() const {
  state_->start();
  return FeatureFuture(state_);
}

void FeatureHandle::pullInto(torch::Tensor destination) const {
  if (!destination.defined() || !destination.device().is_cpu() || !destination.is_contiguous() ||
      destination.scalar_type() != state_->dtype || destination.sizes() != torch::IntArrayRef(state_->shape)) {
    std::ostringstream wanted;
    wanted << "pullInto: feature '" << state_->name << "' needs a contiguous CPU tensor of shape "
           << torch::IntArrayRef(state_->shape) << " and dtype " << state_->dtype;
    if (destination.defined()) {
      wanted << ", not " << destination.sizes() << " " << destination.scalar_type()
             << (destination.is_contiguous() ? "" : " (not contiguous)");
    }
    throw Error(ErrorCode::kInvalidArgument, wanted.str());
  }
  api::okOrThrow(refuseAfterLeave(*state_->core));
  struct Held {
    std::shared_ptr<FeatureState> state;
    torch::Tensor tensor;
    std::promise<absl::Status> done;
  };
  auto held = std::make_shared<Held>(Held{state_, std::move(destination), {}});
  std::future<absl::Status> done = held->done.get_future();
  startPull(*state_, static_cast<std::byte*>(held->tensor.data_ptr()), held,
            [held](absl::Status status) { held->done.set_value(std::move(status)); });
  if (done.wait_for(state_->timeout + std::chrono::seconds(10)) != std::future_status::ready) {
    throw Error(ErrorCode::kDeadlineExceeded, absl::StrCat("feature '", state_->name, "' did not arrive in time"));
  }
  api::okOrThrow(state_->core->explained(done.get()));
}

}  // namespace farhop
