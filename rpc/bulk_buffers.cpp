#include "rpc/bulk_buffers.h"

#include <algorithm>
#include <utility>

#include "rpc/bytes.h"

namespace farhop::rpc {

absl::StatusOr<std::shared_ptr<BulkRegion>> BulkBuffers::take(size_t atLeast) {
  if (atLeast <= bytes_) {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      // The last used: its memory is the likeliest to be in a cache.
      std::shared_ptr<BulkRegion> buffer = std::move(idle_.back());
      idle_.pop_back();
      return buffer;
    }
  }
  auto memory = std::make_shared<Bytes>(Bytes::allocate(std::max(bytes_, atLeast)));
  const std::span<std::byte> span(memory->data(), memory->size());
  return transport_->registerMemory(span, access_, std::move(memory));
}

void BulkBuffers::give(std::shared_ptr<BulkRegion> buffer) {
  if (buffer == nullptr || buffer->memory().size() != bytes_) return;
  std::lock_guard lock(mutex_);
  if (idle_.size() < maxIdle_) idle_.push_back(std::move(buffer));
}

}  // namespace farhop::rpc
