#include "sampler/feature_puller.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "base/log.h"

namespace farhop::sampler {
namespace {

constexpr int kChunksUnderWay = 2;

// Takes one array per feature, of exactly the size that the chunk's rows have.
class ChunkSink : public rpc::ReplySink {
 public:
  explicit ChunkSink(std::vector<size_t> expected) : expected_(std::move(expected)) {}

  absl::StatusOr<std::vector<void*>> allocate(std::span<const size_t> sizes) override {
    if (!std::equal(sizes.begin(), sizes.end(), expected_.begin(), expected_.end())) {
      return absl::InternalError("malformed feature reply: not the rows that were asked for");
    }
    std::vector<void*> addresses;
    for (size_t size : sizes) {
      arrays.push_back(rpc::Bytes::allocate(size));
      addresses.push_back(arrays.back().data());
    }
    return addresses;
  }

  std::vector<rpc::Bytes> arrays;

 private:
  std::vector<size_t> expected_;
};

}  // namespace

// One pull and the rows it still wants of each machine.
struct FeaturePuller::Pull {
  struct Stream {
    int machine = 0;
    std::vector<FeatureRun> runs;
    std::vector<uint32_t> rows;   // local indices, in run order
    std::vector<uint32_t> slots;  // where each row goes
    size_t next = 0;              // first row not yet asked for
  };

  PullRequest request;
  std::function<void(absl::Status)> done;
  std::vector<size_t> rowBytes;  // per target
  size_t chunkRows = 1;
  std::vector<Stream> streams;

  std::mutex mutex;
  absl::Status status;  // guarded by mutex, as are streams[].next and
  int underWay = 0;     // shares

  // Drops one share; runs `done` with the last.
  void release(const absl::Status& result) {
    {
      std::lock_guard lock(mutex);
      if (status.ok()) status = result;
      if (--underWay > 0) return;
    }
    try {
      done(status);
    } catch (const std::exception& error) {
      FARHOP_LOG(ERROR) << "what was to follow a pull of features failed: " << error.what();
    }
  }
};

// A chunk's part in its pull, or pull()'s own: it ends with the last who holds it, whatever made that one give up, so
// that a pull always ends.
struct FeaturePuller::Share {
  std::shared_ptr<Pull> pull;
  absl::Status status = absl::ResourceExhaustedError("pulling features: given up, most likely for want of memory");

  ~Share() {
    if (pull != nullptr) pull->release(status);
  }
  // Under the pull's lock, or while nobody else has the pull.
  void join(const std::shared_ptr<Pull>& joined) {
    pull = joined;
    ++pull->underWay;
  }
};

FeaturePuller::FeaturePuller(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent,
                             std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes)
    : graph_(std::move(graph)),
      agent_(agent),
      metrics_(std::move(metrics)),
      maxReplyBytes_(maxReplyBytes),
      executor_("farhop-pull", 1) {}

FeaturePuller::~FeaturePuller() = default;

void FeaturePuller::pull(PullRequest request, std::function<void(absl::Status)> done) {
  auto pull = std::make_shared<Pull>();
  pull->request = std::move(request);
  pull->done = std::move(done);
  Share own;
  own.join(pull);
  const partition::PartitionBook& book = graph_->book();
  const int type = pull->request.nodeType;

  // Bucket by partition, then by owner.
  std::vector<std::vector<uint32_t>> rows(book.numPartitions()), slots(book.numPartitions());
  for (size_t i = 0; i < pull->request.gids.size(); ++i) {
    const uint64_t gid = pull->request.gids[i];
    const int k = book.partitionOf(type, gid);
    rows[k].push_back(static_cast<uint32_t>(gid - book.begin(type, k)));
    slots[k].push_back(static_cast<uint32_t>(i));
  }
  const std::vector<FeatureCache::Hits> cached = takeCached(pull->request, rows, slots);
  size_t totalRowBytes = 0;
  for (const FeatureTarget& target : pull->request.targets) {
    pull->rowBytes.push_back(featureSpec(*graph_, type, target.feature).rowBytes());
    totalRowBytes += pull->rowBytes.back();
  }
  pull->chunkRows = std::max<size_t>(1, maxReplyBytes_ / std::max<size_t>(1, totalRowBytes));

  for (int machine = 0; machine < graph_->machines(); ++machine) {
    if (machine == graph_->machine()) continue;
    Pull::Stream stream;
    stream.machine = machine;
    for (int k = 0; k < book.numPartitions(); ++k) {
      if (graph_->owner(k) != machine || rows[k].empty()) continue;
      stream.runs.push_back({static_cast<uint32_t>(k), static_cast<uint32_t>(rows[k].size())});
      stream.rows.insert(stream.rows.end(), rows[k].begin(), rows[k].end());
      stream.slots.insert(stream.slots.end(), slots[k].begin(), slots[k].end());
    }
    if (!stream.rows.empty()) pull->streams.push_back(std::move(stream));
  }
  // Remote rows first: they travel while the own ones are copied.
  for (size_t s = 0; s < pull->streams.size(); ++s) {
    for (int i = 0; i < kChunksUnderWay; ++i) startChunk(pull, s);
  }

  absl::Status status;
  size_t ownRows = 0;
  for (int k : graph_->ownPartitions()) {
    ownRows += rows[k].size();
    for (const FeatureTarget& target : pull->request.targets) {
      auto table = ownTable(*graph_, type, target.feature, k);
      if (!table.ok()) {
        status = table.status();
        continue;
      }
      gatherRows(*table, rows[k], slots[k], target.destination);
    }
  }
  copyCached(pull->request, cached, totalRowBytes);
  metrics_->ownRows.add(static_cast<double>(ownRows));
  metrics_->featureBytesRead.add(static_cast<double>(ownRows * totalRowBytes));
  own.status = std::move(status);
}

// Takes out of the other machines' buckets, which are by partition, what this machine keeps copies of.
std::vector<FeatureCache::Hits> FeaturePuller::takeCached(const PullRequest& request,
                                                          std::span<std::vector<uint32_t>> rows,
                                                          std::span<std::vector<uint32_t>> slots) const {
  const FeatureCache& cache = graph_->featureCache();
  const bool covers = std::all_of(request.targets.begin(), request.targets.end(), [&](const FeatureTarget& target) {
    return cache.has(request.nodeType, target.feature);
  });
  if (!request.cache || !covers || request.targets.empty()) return {};
  std::vector<FeatureCache::Hits> hits = cache.noHits(request.nodeType);
  for (size_t k = 0; k < rows.size(); ++k) {
    if (graph_->isOwn(static_cast<int>(k)) || rows[k].empty()) continue;
    cache.take(request.nodeType, {graph_->book().begin(request.nodeType, static_cast<int>(k)), &rows[k], &slots[k]}, &hits);
  }
  return hits;
}

void FeaturePuller::copyCached(const PullRequest& request, std::span<const FeatureCache::Hits> hits,
                               size_t rowBytes) const {
  size_t copied = 0;
  for (const FeatureCache::Hits& of : hits) {
    copied += of.rows.size();
    for (const FeatureTarget& target : request.targets) {
      gatherRows(graph_->featureCache().table(request.nodeType, target.feature, of.partition), of.rows, of.slots,
                 target.destination);
    }
  }
  metrics_->cachedRows.add(static_cast<double>(copied));
  metrics_->featureBytesRead.add(static_cast<double>(copied * rowBytes));
}

void FeaturePuller::startChunk(const std::shared_ptr<Pull>& pull, size_t streamIndex) {
  Pull::Stream& stream = pull->streams[streamIndex];
  auto share = std::make_shared<Share>();
  size_t from, to;
  {
    std::lock_guard lock(pull->mutex);
    if (!pull->status.ok() || stream.next == stream.rows.size()) return;
    from = stream.next;
    to = std::min(stream.rows.size(), from + pull->chunkRows);
    stream.next = to;
    share->join(pull);
  }
  FeatureRequest request;
  request.nodeType = static_cast<uint32_t>(pull->request.nodeType);
  std::vector<size_t> sizes;
  for (size_t t = 0; t < pull->request.targets.size(); ++t) {
    request.features.push_back(pull->request.targets[t].feature);
    sizes.push_back(pull->rowBytes[t] * (to - from));
  }
  request.rows.assign(stream.rows.begin() + static_cast<ptrdiff_t>(from), stream.rows.begin() + static_cast<ptrdiff_t>(to));
  size_t runStart = 0;
  for (const FeatureRun& run : stream.runs) {
    const size_t begin = std::max(from, runStart), end = std::min(to, runStart + run.count);
    if (begin < end) request.runs.push_back({run.partition, static_cast<uint32_t>(end - begin)});
    runStart += run.count;
  }
  std::vector<rpc::OutArray> arrays = encodeFeatureRequest(std::move(request));
  size_t bytes = 0;
  for (const rpc::OutArray& array : arrays) bytes += array.bytes;
  for (size_t size : sizes) bytes += size;
  metrics_->featureBytes.add(static_cast<double>(bytes));
  auto sink = std::make_shared<ChunkSink>(std::move(sizes));
  agent_->call(stream.machine, kFeatureMethod, std::move(arrays), pull->request.deadline, sink,
               [this, share = std::move(share), streamIndex, from, to, sink](absl::Status status) mutable {
                 // Copying rows is no work for a transport thread, nor is what follows the pull: the share goes along.
                 executor_.post([this, share = std::move(share), streamIndex, from, to, sink, status = std::move(status)] {
                   share->status = finishChunk(share->pull, streamIndex, from, to, *sink, status);
                 });
               });
}

absl::Status FeaturePuller::finishChunk(const std::shared_ptr<Pull>& pull, size_t streamIndex, size_t from, size_t to,
                                        const rpc::ReplySink& sink, const absl::Status& status) {
  const Pull::Stream& stream = pull->streams[streamIndex];
  if (status.ok()) {
    const std::vector<rpc::Bytes>& arrays = static_cast<const ChunkSink&>(sink).arrays;
    for (size_t t = 0; t < pull->request.targets.size(); ++t) {
      const size_t rowBytes = pull->rowBytes[t];
      const std::byte* source = arrays[t].data();
      for (size_t i = from; i < to; ++i, source += rowBytes) {
        std::memcpy(pull->request.targets[t].destination + stream.slots[i] * rowBytes, source, rowBytes);
      }
    }
    metrics_->remoteRows.add(static_cast<double>(to - from));
    startChunk(pull, streamIndex);
  }
  return status.ok() ? status : annotate(status, absl::StrCat("pulling features from machine ", stream.machine));
}

}  // namespace farhop::sampler
