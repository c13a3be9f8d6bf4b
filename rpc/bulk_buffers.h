// Registered buffers of one size, used again and again: registering memory and touching it for the first time cost more
// than filling it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "rpc/bulk_transport.h"

namespace farhop::rpc {

// Thread-safe. The transport must outlive it.
class BulkBuffers {
 public:
  // Keeps up to `maxIdle` buffers that nobody uses. How many are in use is up to who takes them.
  BulkBuffers(BulkTransport* transport, BulkAccess access, size_t bytes, size_t maxIdle)
      : transport_(transport), access_(access), bytes_(bytes), maxIdle_(maxIdle) {}

  size_t bytes() const { return bytes_; }

  // A buffer of bytes(), or of more when `atLeast` is more; uninitialised. The region owns its memory. Errors as of
  // registerMemory().
  absl::StatusOr<std::shared_ptr<BulkRegion>> take(size_t atLeast = 0);
  // For a buffer that nothing touches any more. One that is not given back is let go when nothing touches it.
  void give(std::shared_ptr<BulkRegion> buffer);

 private:
  BulkTransport* const transport_;
  const BulkAccess access_;
  const size_t bytes_;
  const size_t maxIdle_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<BulkRegion>> idle_;  // guarded by mutex_
};

}  // namespace farhop::rpc
