#include "sampler/feature_puller.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "base/log.h"

namespace farhop::sampler {

// One pull and the rows it still wants of each machine.
struct FeaturePuller::Pull {
  struct Stream {
    int machine = 0;
    std::vector<FeatureRun> runs;
    std::vector<uint32_t> rows;   // local indices, in run order
    std::vector<uint32_t> slots;  // where each row goes
    size_t next = 0;              // first row not yet asked for
  };
  struct OwnRows {
    int partition = 0;
    std::vector<uint32_t> rows, slots;
  };

  PullRequest request;
  std::function<void(absl::Status)> done;
  std::vector<RowCopy> copies;   // per target
  size_t totalRowBytes = 0;      // of all targets, as they travel
  bool wholeRows = true;         // of all targets
  size_t rows = 0;               // of the whole pull
  size_t chunkRows = 1;
  int chunksUnderWay = 1;        // per machine
  std::vector<OwnRows> own;
  std::vector<FeatureCache::Hits> cached;  // of others, as copies of the own partitions
  std::vector<Stream> streams;

  bool cancelled() const { return request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed); }

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
    : FeaturePuller(std::move(graph), agent == nullptr ? nullptr : agentRowTransport(agent), std::move(metrics),
                    maxReplyBytes) {}

FeaturePuller::FeaturePuller(std::shared_ptr<const PartitionedGraph> graph, std::unique_ptr<RowTransport> transport,
                             std::shared_ptr<SamplerMetrics> metrics, size_t maxReplyBytes)
    : graph_(std::move(graph)),
      transport_(std::move(transport)),
      metrics_(std::move(metrics)),
      maxReplyBytes_(maxReplyBytes),
      executor_("farhop-pull", 1) {}

FeaturePuller::~FeaturePuller() = default;

void FeaturePuller::pull(PullRequest request, std::function<void(absl::Status)> done) {
  auto pull = std::make_shared<Pull>();
  pull->request = std::move(request);
  pull->rows = pull->request.gids.size();
  pull->done = std::move(done);
  Share own;
  own.join(pull);
  for (const FeatureTarget& target : pull->request.targets) {
    auto copy = RowCopy::make(featureSpec(*graph_, pull->request.nodeType, target.feature), target.format);
    if (!copy.ok()) {
      own.status = copy.status();
      return;
    }
    pull->totalRowBytes += copy->sourceBytes();
    pull->wholeRows = pull->wholeRows && copy->isWholeRow();
    pull->copies.push_back(*copy);
  }
  plan(pull.get());
  if (!pull->streams.empty()) {
    const RowCut cut = cutOf(*pull);
    pull->chunkRows = std::max<size_t>(1, cut.chunkBytes / std::max<size_t>(1, pull->totalRowBytes));
    pull->chunksUnderWay = cut.underWay;
    if (cut.inAddressOrder) sortByAddress(pull.get());
  }
  // Remote rows first: they travel while the own ones are copied.
  for (size_t s = 0; s < pull->streams.size(); ++s) {
    for (int i = 0; i < pull->chunksUnderWay; ++i) startChunk(pull, s);
  }
  own.status = copyOwn(pull.get());
}

RowCut FeaturePuller::cutOf(const Pull& pull) const {
  std::vector<size_t> rowBytes;
  std::vector<bool> mayLand;
  for (const RowCopy& copy : pull.copies) {
    rowBytes.push_back(copy.sourceBytes());
    mayLand.push_back(!copy.widens() && pull.request.keepAlive != nullptr);
  }
  return transport_->cut(rowBytes, mayLand, maxReplyBytes_);
}

// Within each partition, whose rows lie in the order of their numbers.
void FeaturePuller::sortByAddress(Pull* pull) {
  std::vector<uint64_t> pairs;  // row, slot
  for (Pull::Stream& stream : pull->streams) {
    size_t at = 0;
    for (const FeatureRun& run : stream.runs) {
      pairs.resize(run.count);
      for (size_t i = 0; i < run.count; ++i) pairs[i] = uint64_t{stream.rows[at + i]} << 32 | stream.slots[at + i];
      std::sort(pairs.begin(), pairs.end());
      for (size_t i = 0; i < run.count; ++i) {
        stream.rows[at + i] = static_cast<uint32_t>(pairs[i] >> 32);
        stream.slots[at + i] = static_cast<uint32_t>(pairs[i]);
      }
      at += run.count;
    }
  }
}

// Buckets the rows by partition, then by owner.
void FeaturePuller::plan(Pull* pull) const {
  const partition::PartitionBook& book = graph_->book();
  const int type = pull->request.nodeType;
  std::vector<std::vector<uint32_t>> rows(static_cast<size_t>(book.numPartitions())), slots(rows.size());
  for (size_t i = 0; i < pull->request.gids.size(); ++i) {
    const uint64_t gid = pull->request.gids[i];
    const int k = book.partitionOf(type, gid);
    rows[static_cast<size_t>(k)].push_back(static_cast<uint32_t>(gid - book.begin(type, k)));
    slots[static_cast<size_t>(k)].push_back(static_cast<uint32_t>(i));
  }
  pull->cached = takeCached(pull->request, rows, slots);
  for (int machine = 0; machine < graph_->machines(); ++machine) {
    Pull::Stream stream;
    stream.machine = machine;
    for (int partition = 0; partition < book.numPartitions(); ++partition) {
      const size_t k = static_cast<size_t>(partition);
      if (graph_->owner(partition) != machine || rows[k].empty()) continue;
      if (machine == graph_->machine()) {
        pull->own.push_back({partition, std::move(rows[k]), std::move(slots[k])});
        continue;
      }
      stream.runs.push_back({static_cast<uint32_t>(k), static_cast<uint32_t>(rows[k].size())});
      stream.rows.insert(stream.rows.end(), rows[k].begin(), rows[k].end());
      stream.slots.insert(stream.slots.end(), slots[k].begin(), slots[k].end());
    }
    if (!stream.rows.empty()) pull->streams.push_back(std::move(stream));
  }
}

absl::Status FeaturePuller::copyOwn(Pull* pull) const {
  size_t ownRows = 0;
  for (const Pull::OwnRows& own : pull->own) {
    if (pull->cancelled()) return absl::CancelledError("nobody wants the pulled features any more");
    for (size_t t = 0; t < pull->copies.size(); ++t) {
      const FeatureTarget& target = pull->request.targets[t];
      FARHOP_ASSIGN_OR_RETURN(const OwnTable table, ownTable(*graph_, pull->request.nodeType, target.feature, own.partition));
      gatherRows(table, own.rows, own.slots, pull->copies[t], target.destination);
    }
    ownRows += own.rows.size();
  }
  copyCached(*pull);
  metrics_->ownRows.add(static_cast<double>(ownRows));
  metrics_->featureBytesRead.add(static_cast<double>(ownRows * pull->totalRowBytes));
  return absl::OkStatus();
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

void FeaturePuller::copyCached(const Pull& pull) const {
  size_t copied = 0;
  for (const FeatureCache::Hits& of : pull.cached) {
    copied += of.rows.size();
    for (size_t t = 0; t < pull.copies.size(); ++t) {
      const FeatureTarget& target = pull.request.targets[t];
      gatherRows(graph_->featureCache().table(pull.request.nodeType, target.feature, of.partition), of.rows, of.slots,
                 pull.copies[t], target.destination);
    }
  }
  metrics_->cachedRows.add(static_cast<double>(copied));
  metrics_->featureBytesRead.add(static_cast<double>(copied * pull.totalRowBytes));
}

void FeaturePuller::startChunk(const std::shared_ptr<Pull>& pull, size_t streamIndex) {
  Pull::Stream& stream = pull->streams[streamIndex];
  auto share = std::make_shared<Share>();
  size_t from, to;
  {
    std::lock_guard lock(pull->mutex);
    if (pull->cancelled() && pull->status.ok()) {
      pull->status = absl::CancelledError("nobody wants the pulled features any more");
    }
    if (!pull->status.ok() || stream.next == stream.rows.size()) return;
    from = stream.next;
    to = std::min(stream.rows.size(), from + pull->chunkRows);
    stream.next = to;
    share->join(pull);
  }
  RowChunk chunk;
  chunk.machine = stream.machine;
  chunk.deadline = pull->request.deadline;
  chunk.request.nodeType = static_cast<uint32_t>(pull->request.nodeType);
  for (size_t t = 0; t < pull->request.targets.size(); ++t) {
    chunk.request.features.push_back(pull->request.targets[t].feature);
    if (!pull->wholeRows) chunk.request.parts.push_back(pull->copies[t].part());
    chunk.arrayBytes.push_back(pull->copies[t].sourceBytes() * (to - from));
    const RowCopy& copy = pull->copies[t];
    chunk.destinations.emplace_back(
        pull->request.targets[t].destination,
        copy.widens() || pull->request.keepAlive == nullptr ? 0 : pull->rows * copy.destinationBytes());
  }
  chunk.request.rows.assign(stream.rows.begin() + static_cast<ptrdiff_t>(from), stream.rows.begin() + static_cast<ptrdiff_t>(to));
  chunk.slots = std::span(stream.slots).subspan(from, to - from);
  chunk.keepAlive = pull->request.keepAlive;
  size_t runStart = 0;
  for (const FeatureRun& run : stream.runs) {
    const size_t begin = std::max(from, runStart), end = std::min(to, runStart + run.count);
    if (begin < end) chunk.request.runs.push_back({run.partition, static_cast<uint32_t>(end - begin)});
    runStart += run.count;
  }
  metrics_->featureBytes.add(static_cast<double>(chunk.payloadBytes()));
  transport_->fetch(std::move(chunk), [this, share = std::move(share), streamIndex, from, to](
                                          absl::StatusOr<FetchedRows> rows) mutable {
    // Copying rows is no work for a transport thread, nor is what follows the pull: the share goes along.
    executor_.post([this, share = std::move(share), streamIndex, from, to, rows = std::move(rows)]() mutable {
      share->status = finishChunk(share->pull, streamIndex, from, to, std::move(rows));
    });
  });
}

absl::Status FeaturePuller::finishChunk(const std::shared_ptr<Pull>& pull, size_t streamIndex, size_t from, size_t to,
                                        absl::StatusOr<FetchedRows> rows) {
  const Pull::Stream& stream = pull->streams[streamIndex];
  if (!rows.ok()) {
    return annotate(rows.status(), absl::StrCat("pulling features from machine ", stream.machine));
  }
  if (!pull->cancelled()) {
    for (size_t t = 0; t < pull->request.targets.size(); ++t) {
      const RowCopy& copy = pull->copies[t];
      const std::byte* source = rows->arrays[t];
      if (source == nullptr) continue;  // landed, or nothing
      for (size_t i = from; i < to; ++i, source += copy.sourceBytes()) {
        copy.copy(source, pull->request.targets[t].destination + stream.slots[i] * copy.destinationBytes(), 1);
      }
    }
    metrics_->remoteRows.add(static_cast<double>(to - from));
  }
  rows->owner.reset();  // the transport may want it for the next chunk
  startChunk(pull, streamIndex);
  return absl::OkStatus();
}

}  // namespace farhop::sampler
