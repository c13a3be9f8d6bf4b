// Values that are costly to make, made when somebody first asks for them.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "base/status.h"

namespace farhop::sampler {

// Kept until this is destroyed, failures too, since they are the store's; but not want of memory, after which the next
// caller tries again. Thread-safe.
template <typename Key, typename Value>
class MadeOnce {
 public:
  using Made = Value;
  using Result = absl::StatusOr<std::shared_ptr<const Value>>;

  // The first caller for a key makes its value, with no lock held; others for that key wait.
  template <typename Make>
  Result get(const Key& key, const Make& make) const {
    std::shared_future<Result> known;
    {
      std::lock_guard lock(mutex_);
      const auto at = made_.find(key);
      if (at != made_.end()) known = at->second;
    }
    if (known.valid()) return known.get();
    // Not before: a promise allocates, and every draw by weight asks here.
    std::promise<Result> promise;
    {
      std::lock_guard lock(mutex_);
      const auto [at, isNew] = made_.try_emplace(key);
      if (isNew) {
        at->second = promise.get_future().share();
      } else {
        known = at->second;
      }
    }
    if (known.valid()) return known.get();
    Result result = absl::ResourceExhaustedError("out of memory");
    try {
      result = make();
    } catch (const std::bad_alloc&) {  // the others must not wait for ever
    }
    if (absl::IsResourceExhausted(result.status())) {
      std::lock_guard lock(mutex_);
      made_.erase(key);
    }
    promise.set_value(result);  // to those who wait
    return result;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_future<Result>> made_;  // guarded by mutex_
};

}  // namespace farhop::sampler
