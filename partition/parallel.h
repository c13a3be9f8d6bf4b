// Long steps of making a store, on several threads. What they compute never depends on the number of threads.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"

namespace farhop::partition {

// One call of `work(item, thread)` for every item below `items`, at most `threads` at a time, in about this order;
// `thread` is below `threads` and never runs twice at once. Returns when all have ended: the error of the lowest item
// that failed, after which no further ones are begun. Running out of memory is ResourceExhausted. With one thread, or
// one item, all runs on the calling one.
absl::Status runInParallel(int threads, uint64_t items,
                           const std::function<absl::Status(uint64_t item, int thread)>& work);

// As runInParallel(), and after an item's `prepare` has ended its `finish` runs on the same thread, in order of the
// items and never two at once. So at most `threads` items are prepared and not finished.
struct OrderedWork {
  std::function<absl::Status(uint64_t item, int thread)> prepare;
  std::function<absl::Status(uint64_t item, int thread)> finish;
};
absl::Status runInOrder(int threads, uint64_t items, const OrderedWork& work);

}  // namespace farhop::partition
