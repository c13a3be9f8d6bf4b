#include "partition/row_shuffle.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "partition/bucket_spill.h"
#include "partition/parallel.h"

namespace farhop::partition {
namespace {

constexpr uint64_t kChunkRows = 4096;
constexpr size_t kChunkBytes = size_t{1} << 20;

class Shuffle {
 public:
  Shuffle(const ShuffledRows& rows, const RowBuckets& buckets, const WriterResources& resources, ArraySink* sink)
      : rows_(rows), buckets_(buckets), resources_(resources), sink_(*sink), rowBytes_(rows.spec.rowBytes()) {}

  absl::Status run() {
    if (rowBytes_ > 0) {
      FARHOP_RETURN_IF_ERROR(spill());
    }
    prepared_.resize(static_cast<size_t>(resources_.threads));
    return runInOrder(resources_.threads, buckets_.size(),
                      {[this](uint64_t b, int thread) { return prepare(b, thread); },
                       [this](uint64_t b, int thread) { return finish(b, thread); }});
  }

 private:
  absl::Status spill() {
    std::vector<uint64_t> bytes;
    for (size_t b = 0; b < buckets_.size(); ++b) bytes.push_back(buckets_[b].items() * rowBytes_);
    FARHOP_ASSIGN_OR_RETURN(spill_, BucketSpill::create(resources_.scratchDirectory, bytes, resources_.spillBytes()));
    const uint64_t shares = static_cast<uint64_t>(resources_.threads);
    // The rows of a bucket come in order of their numbers, since one thread reads all and picks them.
    return runInParallel(resources_.threads, shares, [&](uint64_t share, int) {
      const size_t begin = buckets_.size() * share / shares, end = buckets_.size() * (share + 1) / shares;
      return begin == end ? absl::OkStatus() : spillShare(begin, end);
    });
  }

  absl::Status spillShare(size_t firstBucket, size_t endBucket) {
    BucketBuffers buffers(&*spill_, endBucket, static_cast<size_t>(resources_.bufferBytes(endBucket - firstBucket)));
    const uint64_t chunkRows = std::clamp<uint64_t>(kChunkBytes / rowBytes_, 1, kChunkRows);
    std::vector<uint32_t> bucket(chunkRows);
    std::vector<std::byte> data(chunkRows * rowBytes_);
    for (uint64_t first = 0; first < rows_.count; first += chunkRows) {
      const uint64_t n = std::min(chunkRows, rows_.count - first);
      rows_.bucketsOf(first, std::span<uint32_t>(bucket).first(n));
      const auto wanted = [&](uint32_t b) { return b >= firstBucket && b < endBucket; };
      if (std::none_of(bucket.begin(), bucket.begin() + static_cast<ptrdiff_t>(n), wanted)) continue;
      rows_.rows(first, n, data.data());
      for (uint64_t i = 0; i < n; ++i) {
        if (wanted(bucket[i])) FARHOP_RETURN_IF_ERROR(buffers.append(bucket[i], data.data() + i * rowBytes_, rowBytes_));
      }
      if (firstBucket == 0) resources_.advance(n);
    }
    return buffers.flushAll();
  }

  // The bucket's rows in order of their output.
  absl::Status prepare(uint64_t b, int thread) {
    const RowBucket& bucket = buckets_[b];
    std::vector<std::byte>& out = prepared_[static_cast<size_t>(thread)];
    out.clear();
    if (rowBytes_ == 0 || bucket.items() == 0) return absl::OkStatus();
    // Positions in order of the rows' numbers: the order in which they come out of the temporary space.
    std::vector<uint32_t> positions(bucket.items());
    {
      FARHOP_ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, rows_.idsOf(bucket));
      for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<uint32_t>(i);
      std::sort(positions.begin(), positions.end(), [&](uint32_t a, uint32_t c) { return ids[a] < ids[c]; });
    }
    out.resize(bucket.items() * rowBytes_);
    size_t next = 0;
    FARHOP_RETURN_IF_ERROR(spill_->read(b, rowBytes_, [&](std::span<const std::byte> piece) {
      for (size_t at = 0; at < piece.size(); at += rowBytes_) {
        std::memcpy(out.data() + positions[next++] * rowBytes_, piece.data() + at, rowBytes_);
      }
      return absl::OkStatus();
    }));
    spill_->release(b);
    return absl::OkStatus();
  }

  absl::Status finish(uint64_t b, int thread) {
    const RowBucket& bucket = buckets_[b];
    if (b == 0 || buckets_[b - 1].partition != bucket.partition) {
      std::vector<uint64_t> shape = {rows_.rowsOf(bucket.partition)};
      shape.insert(shape.end(), rows_.spec.rowShape.begin(), rows_.spec.rowShape.end());
      FARHOP_ASSIGN_OR_RETURN(array_, sink_.create(rows_.path(bucket.partition), rows_.spec.dtype, std::move(shape)));
    }
    const std::vector<std::byte>& out = prepared_[static_cast<size_t>(thread)];
    FARHOP_RETURN_IF_ERROR(array_->write(out.data(), out.size()));
    if (b + 1 < buckets_.size() && buckets_[b + 1].partition == bucket.partition) return absl::OkStatus();
    return sink_.commit(std::exchange(array_, std::nullopt));
  }

  const ShuffledRows& rows_;
  const RowBuckets& buckets_;
  const WriterResources& resources_;
  ArraySink& sink_;
  const size_t rowBytes_;
  std::optional<BucketSpill> spill_;
  std::vector<std::vector<std::byte>> prepared_;  // by thread
  std::optional<SinkArray> array_;                // of the partition whose turn it is
};

}  // namespace

absl::Status shuffleRows(const ShuffledRows& rows, const RowBuckets& buckets, const WriterResources& resources,
                         ArraySink* sink) {
  return Shuffle(rows, buckets, resources, sink).run();
}

}  // namespace farhop::partition
