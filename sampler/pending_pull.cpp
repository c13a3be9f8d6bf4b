#include "sampler/pending_pull.h"

#include <utility>

namespace farhop::sampler {

void PendingPull::finish(absl::Status status) {
  std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  changed_.notify_all();
}

bool PendingPull::waitFor(std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return done_; });
}

bool PendingPull::failed() const {
  std::lock_guard lock(mutex_);
  return done_ && !status_.ok();
}

absl::Status PendingPull::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace farhop::sampler
