#include "partition/relation_edges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "partition/bucket_spill.h"
#include "partition/parallel.h"

namespace farhop::partition {
namespace {

constexpr uint64_t kChunkEdges = 1 << 14;
constexpr uint64_t kSmall = std::numeric_limits<uint32_t>::max();

// Sorted by source, then edge. The edge comes first, so that a narrow one read as a number has the source on top.
template <typename Id>
struct PlainEntry {
  using IdType = Id;
  Id edge;
  Id source;

  bool operator<(const PlainEntry& other) const {
    if constexpr (sizeof(Id) == 4) {
      return std::bit_cast<uint64_t>(*this) < std::bit_cast<uint64_t>(other);
    } else {
      return source != other.source ? source < other.source : edge < other.edge;
    }
  }
};
static_assert(std::endian::native == std::endian::little);

template <typename Id>
struct TimedEntry {
  using IdType = Id;
  int64_t time;
  Id edge;
  Id source;

  bool operator<(const TimedEntry& other) const {
    if (time != other.time) return time < other.time;
    return source != other.source ? source < other.source : edge < other.edge;
  }
};

template <typename Entry>
constexpr bool kIsTimed = std::is_same_v<Entry, TimedEntry<typename Entry::IdType>>;

// As it lies in temporary space.
template <typename Entry>
struct __attribute__((packed)) Record {
  uint32_t row;  // in its bucket
  Entry entry;
};

template <typename Entry>
class Sorter {
 public:
  using Id = typename Entry::IdType;

  Sorter(const RelationEdges& edges, std::span<const uint64_t> indptr, const RowBuckets& buckets,
         const WriterResources& resources, const EdgeSortOptions& options)
      : edges_(edges), indptr_(indptr), buckets_(buckets), resources_(resources), options_(options) {}

  absl::Status run(const std::function<absl::Status(const SortedEdges&)>& consume) {
    FARHOP_RETURN_IF_ERROR(deal());
    // A row with many edges makes a large bucket: fewer at a time then.
    const uint64_t largest = buckets_.largest() * sizeof(Entry);
    const auto threads = static_cast<int>(std::clamp<uint64_t>(
        resources_.workingBytes / std::max<uint64_t>(1, largest), 1, static_cast<uint64_t>(resources_.threads)));
    prepared_.resize(static_cast<size_t>(threads));
    resources_.begin(options_.step + ": sorting", "edges", indptr_.back());
    return runInOrder(threads, buckets_.size(),
                      {[this](uint64_t b, int thread) { return prepare(b, thread); },
                       [&, this](uint64_t b, int thread) { return finish(b, thread, consume); }});
  }

 private:
  struct Prepared {
    std::vector<Entry> entries;
    uint64_t remote = 0;
  };

  absl::Status deal() {
    std::vector<uint64_t> bytes;
    for (size_t b = 0; b < buckets_.size(); ++b) bytes.push_back(buckets_[b].items() * sizeof(Record<Entry>));
    FARHOP_ASSIGN_OR_RETURN(spill_, BucketSpill::create(resources_.scratchDirectory, bytes, resources_.spillBytes()));
    const uint64_t count = edges_.source.size();
    resources_.begin(options_.step + ": dealing", "edges", count);
    std::vector<BucketBuffers> buffers;
    for (int t = 0; t < resources_.threads; ++t) {
      buffers.emplace_back(&*spill_, buckets_.size(), static_cast<size_t>(resources_.bufferBytes(buckets_.size())));
    }
    FARHOP_RETURN_IF_ERROR(
        runInParallel(resources_.threads, (count + kChunkEdges - 1) / kChunkEdges, [&](uint64_t chunk, int thread) {
          const uint64_t first = chunk * kChunkEdges;
          return dealChunk(first, std::min(kChunkEdges, count - first), &buffers[static_cast<size_t>(thread)]);
        }));
    for (BucketBuffers& own : buffers) FARHOP_RETURN_IF_ERROR(own.flushAll());
    return absl::OkStatus();
  }

  absl::Status dealChunk(uint64_t first, uint64_t count, BucketBuffers* buffers) {
    std::vector<uint64_t> sources(count), rows(count);
    edges_.source.copy(first, count, sources.data());
    edges_.destination.copy(first, count, rows.data());
    for (uint64_t& row : rows) row = edges_.destinationGids[row];
    for (uint64_t i = 0; i < count; ++i) {
      if (edges_.kept != nullptr && !(*edges_.kept)[first + i]) continue;
      const size_t bucket = buckets_.bucketOf(rows[i]);
      Record<Entry> record;
      record.row = static_cast<uint32_t>(rows[i] - buckets_[bucket].firstRow);
      record.entry.edge = static_cast<Id>(first + i);
      record.entry.source = static_cast<Id>(sources[i]);
      if constexpr (kIsTimed<Entry>) record.entry.time = (*edges_.times)(first + i);
      FARHOP_RETURN_IF_ERROR(buffers->append(bucket, &record, sizeof(record)));
    }
    resources_.advance(count);
    return absl::OkStatus();
  }

  absl::Status prepare(uint64_t b, int thread) {
    const RowBucket& bucket = buckets_[b];
    Prepared& prepared = prepared_[static_cast<size_t>(thread)];
    std::vector<Entry>& entries = prepared.entries;
    entries.resize(bucket.items());
    {
      std::vector<uint64_t> next(bucket.rows());
      for (uint64_t row = 0; row < next.size(); ++row) next[row] = indptr_[bucket.firstRow + row] - bucket.firstItem;
      FARHOP_RETURN_IF_ERROR(spill_->read(b, sizeof(Record<Entry>), [&](std::span<const std::byte> piece) {
        for (size_t at = 0; at < piece.size(); at += sizeof(Record<Entry>)) {
          Record<Entry> record;
          std::memcpy(&record, piece.data() + at, sizeof(record));
          const uint64_t place = next[record.row]++;
          if (place >= entries.size()) return absl::FailedPreconditionError("the data set changed while it was read");
          entries[place] = record.entry;
        }
        return absl::OkStatus();
      }));
      for (uint64_t row = 0; row < next.size(); ++row) {
        if (next[row] == indptr_[bucket.firstRow + row + 1] - bucket.firstItem) continue;
        return absl::FailedPreconditionError("the data set changed while it was read; run it again");
      }
    }
    spill_->release(b);
    for (uint64_t row = bucket.firstRow; row < bucket.endRow; ++row) {
      std::sort(entries.begin() + static_cast<ptrdiff_t>(indptr_[row] - bucket.firstItem),
                entries.begin() + static_cast<ptrdiff_t>(indptr_[row + 1] - bucket.firstItem));
    }
    prepared.remote = 0;
    if (options_.keepOriginalSources) return absl::OkStatus();
    const auto [ownBegin, ownEnd] = options_.ownSources(bucket.partition);
    for (Entry& entry : entries) {
      const uint64_t gid = edges_.sourceGids[entry.source];
      prepared.remote += gid < ownBegin || gid >= ownEnd;
      entry.source = static_cast<Id>(gid);
    }
    return absl::OkStatus();
  }

  absl::Status finish(uint64_t b, int thread, const std::function<absl::Status(const SortedEdges&)>& consume) {
    const Prepared& prepared = prepared_[static_cast<size_t>(thread)];
    const auto copy = [&](uint64_t first, uint64_t count, uint64_t* sources, uint64_t* edgeIds, int64_t* times) {
      for (uint64_t i = 0; i < count; ++i) {
        const Entry& entry = prepared.entries[first + i];
        sources[i] = entry.source;
        edgeIds[i] = entry.edge;
        if constexpr (kIsTimed<Entry>) times[i] = entry.time;
      }
    };
    FARHOP_RETURN_IF_ERROR(consume({buckets_[b], prepared.entries.size(), copy, prepared.remote}));
    resources_.advance(prepared.entries.size());
    return absl::OkStatus();
  }

  const RelationEdges& edges_;
  std::span<const uint64_t> indptr_;
  const RowBuckets& buckets_;
  const WriterResources& resources_;
  const EdgeSortOptions& options_;
  std::optional<BucketSpill> spill_;
  std::vector<Prepared> prepared_;  // by thread
};

bool isNarrow(const RelationEdges& edges) { return edges.sources <= kSmall && edges.source.size() <= kSmall; }

}  // namespace

absl::Status sortEdges(const RelationEdges& edges, std::span<const uint64_t> indptr, const RowBuckets& buckets,
                       const WriterResources& resources, const EdgeSortOptions& options,
                       const std::function<absl::Status(const SortedEdges&)>& consume) {
  if (buckets.largest() * sortedEdgeBytes(edges) > resources.workingBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a node has up to ", buckets.largest(), " in-edges of one relation; sorting them needs ",
                     buckets.largest() * sortedEdgeBytes(edges), " bytes at a time: give more with --memory"));
  }
  if (edges.times == nullptr) {
    return isNarrow(edges) ? Sorter<PlainEntry<uint32_t>>(edges, indptr, buckets, resources, options).run(consume)
                           : Sorter<PlainEntry<uint64_t>>(edges, indptr, buckets, resources, options).run(consume);
  }
  return isNarrow(edges) ? Sorter<TimedEntry<uint32_t>>(edges, indptr, buckets, resources, options).run(consume)
                         : Sorter<TimedEntry<uint64_t>>(edges, indptr, buckets, resources, options).run(consume);
}

uint64_t sortedEdgeBytes(const RelationEdges& edges) {
  const uint64_t ids = isNarrow(edges) ? sizeof(PlainEntry<uint32_t>) : sizeof(PlainEntry<uint64_t>);
  return ids + (edges.times == nullptr ? 0 : sizeof(int64_t));
}

}  // namespace farhop::partition
