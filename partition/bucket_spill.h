// Bytes sorted into buckets: what does not fit in memory is written out by bucket and read back one bucket after the
// other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"

namespace farhop::partition {

// Each bucket is a range of one of a few files, which have no name: nothing is left behind, however the process ends.
// append() and read() are thread-safe; a bucket is read when nothing more is appended to it.
class BucketSpill {
 public:
  // Buckets of exactly these sizes: in memory when all take at most `memoryBytes`, else in files of `directory`. The
  // space is reserved at once, so that a disk that is too full is told here: ResourceExhausted.
  static absl::StatusOr<BucketSpill> create(const std::string& directory, const std::vector<uint64_t>& bucketBytes,
                                            uint64_t memoryBytes);

  // FailedPrecondition when the bucket is full: the input has changed since it was counted.
  absl::Status append(size_t bucket, const void* data, size_t bytes);

  // Calls `piece` with what was appended, in the order in which it lies in the file, `recordBytes` times a whole number
  // at a time. FailedPrecondition when the bucket has not been filled.
  absl::Status read(size_t bucket, size_t recordBytes,
                    const std::function<absl::Status(std::span<const std::byte>)>& piece) const;

  // Gives the bucket's disk space back, where the file system can.
  void release(size_t bucket);

 private:
  struct Place {
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  std::string directory_;
  std::vector<FileDescriptor> files_;   // none where all is in memory
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Place> places_;                        // by bucket
  std::unique_ptr<std::atomic<uint64_t>[]> filled_;  // by bucket, bytes
};

// Collects small records into pieces worth a write, per bucket; for one thread.
class BucketBuffers {
 public:
  // Borrows the spill. `bufferBytes` per bucket, taken when the bucket gets its first record.
  BucketBuffers(BucketSpill* spill, size_t buckets, size_t bufferBytes)
      : spill_(*spill), bufferBytes_(bufferBytes), buffers_(buckets) {}

  absl::Status append(size_t bucket, const void* data, size_t bytes) {
    std::vector<std::byte>& buffer = buffers_[bucket];
    if (buffer.size() + bytes > bufferBytes_) {
      FARHOP_RETURN_IF_ERROR(flush(bucket));
      if (bytes >= bufferBytes_) return spill_.append(bucket, data, bytes);
    }
    if (buffer.capacity() == 0) buffer.reserve(bufferBytes_);
    const std::byte* from = static_cast<const std::byte*>(data);
    buffer.insert(buffer.end(), from, from + bytes);
    return absl::OkStatus();
  }
  // To be called at the end.
  absl::Status flushAll();

 private:
  absl::Status flush(size_t bucket);

  BucketSpill& spill_;
  size_t bufferBytes_;
  std::vector<std::vector<std::byte>> buffers_;
};

}  // namespace farhop::partition
