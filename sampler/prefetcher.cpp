#include "sampler/prefetcher.h"

#include <algorithm>
#include <utility>

namespace farhop::sampler {

Prefetcher::Prefetcher(FeaturePuller* puller, std::shared_ptr<const PartitionedGraph> graph, PrefetchOptions options)
    : puller_(puller), graph_(std::move(graph)), options_(std::move(options)), executor_("farhop-prefetch", 1) {
  for (size_t i = 0; i < options_.features.size(); ++i) {
    const PrefetchFeature& feature = options_.features[i];
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& other) {
      return other.nodeType == feature.nodeType && other.ofSeeds == feature.ofSeeds;
    });
    if (group == groups_.end()) group = groups_.insert(group, {feature.nodeType, feature.ofSeeds, {}, 0});
    group->indices.push_back(i);
    group->rowBytes += featureSpec(*graph_, feature.nodeType, feature.feature).rowBytes();
  }
}

Prefetcher::~Prefetcher() {
  clear();
  executor_.shutdown();
}

void Prefetcher::add(const SampledBatch& batch) {
  Entry entry;
  for (const Group& group : groups_) {
    entry.gids.emplace_back();
    if (group.ofSeeds) {
      entry.gids.back() = batch.seeds;
    } else {
      const PodVector<uint64_t>& nodes = batch.nodes[static_cast<size_t>(group.nodeType)];
      if (!nodes.empty()) entry.gids.back().assign(nodes.data(), nodes.data() + nodes.size());
    }
    entry.bytes += entry.gids.back().size() * group.rowBytes;
  }
  if (entry.bytes == 0 || entry.bytes > options_.maxBytes) return;
  {
    std::lock_guard lock(mutex_);
    entries_.try_emplace({batch.epoch, batch.step}, std::move(entry));
  }
  executor_.post([this] { startWaiting(); });
}

void Prefetcher::Lease::release() {
  const size_t bytes = bytes_.exchange(0);
  std::lock_guard lock(budget_->mutex);
  budget_->bytes -= bytes;
}

std::shared_ptr<Prefetcher::Lease> Prefetcher::lease(size_t bytes) const {
  {
    std::lock_guard lock(budget_->mutex);
    if (budget_->bytes + bytes > options_.maxBytes) return nullptr;
    budget_->bytes += bytes;
    budget_->peakBytes = std::max(budget_->peakBytes, budget_->bytes);
  }
  return std::make_shared<Lease>(budget_, bytes);
}

// On the executor's one thread.
void Prefetcher::startWaiting() {
  for (;;) {
    Key key;
    std::vector<std::vector<uint64_t>> gids;
    std::shared_ptr<Lease> lease;
    {
      std::lock_guard lock(mutex_);
      const auto next = std::find_if(entries_.begin(), entries_.end(), [](const auto& entry) { return !entry.second.lease; });
      if (next == entries_.end()) return;
      lease = this->lease(next->second.bytes);
      if (lease == nullptr) return;
      next->second.lease = lease;
      next->second.starting = true;
      key = next->first;
      gids = std::move(next->second.gids);
    }
    std::vector<Prefetched> pulls;
    try {
      pulls = start(gids, lease);
    } catch (const std::exception&) {
      // Most likely for want of memory: the trainer's own pull, or nothing, will say so.
    }
    std::lock_guard lock(mutex_);
    const auto entry = entries_.find(key);
    if (entry != entries_.end() && entry->second.lease == lease) {
      entry->second.pulls.swap(pulls);
      entry->second.starting = false;
    }
    changed_.notify_all();
  }
}

std::vector<Prefetched> Prefetcher::start(const std::vector<std::vector<uint64_t>>& gids,
                                           const std::shared_ptr<Lease>& lease) {
  std::vector<Prefetched> pulls;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (gids[g].empty()) continue;
    PullRequest request;
    request.cache = options_.cache;
    request.nodeType = group.nodeType;
    request.gids = gids[g];
    request.deadline = Deadline::after(options_.timeout);
    std::vector<PullMemory> memory;
    for (size_t index : group.indices) {
      auto allocated = options_.allocate(index, gids[g].size());
      if (!allocated.ok()) return pulls;
      request.targets.push_back({options_.features[index].feature, allocated->data});
      memory.push_back(*std::move(allocated));
    }
    auto pending = std::make_shared<PendingPull>(std::move(memory));
    auto hold = std::make_shared<PullHold>(pending);
    for (size_t part = 0; part < group.indices.size(); ++part) pulls.push_back({group.indices[part], hold, part});
    request.keepAlive = pending;
    request.cancelled = pending->cancelled();
    puller_->pull(std::move(request), [pending, lease, keepAlive = options_.keepAlive, explain = options_.explain](absl::Status status) {
      pending->finish(explain ? explain(status) : std::move(status));
    });
  }
  return pulls;
}

std::vector<Prefetched> Prefetcher::take(uint64_t epoch, uint64_t step) {
  std::vector<Prefetched> pulls;
  {
    std::unique_lock lock(mutex_);
    const Key key{epoch, step};
    // Own rows are being copied: what the trainer's pull would do now.
    changed_.wait_for(lock, options_.timeout, [&] {
      const auto entry = entries_.find(key);
      return entry == entries_.end() || !entry->second.starting;
    });
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) return pulls;
    if (entry->second.lease != nullptr) entry->second.lease->release();
    pulls = std::move(entry->second.pulls);
    entries_.erase(entry);
  }
  executor_.post([this] { startWaiting(); });
  // One that has failed already is left to the trainer's pull.
  std::erase_if(pulls, [](const Prefetched& prefetched) { return prefetched.hold->pull().failed(); });
  return pulls;
}

void Prefetcher::clear() {
  std::map<Key, Entry> dropped;  // let go of after the lock: that cancels
  std::lock_guard lock(mutex_);
  dropped = std::exchange(entries_, {});
}

size_t Prefetcher::bytes() const {
  std::lock_guard lock(budget_->mutex);
  return budget_->bytes;
}

size_t Prefetcher::peakBytes() const {
  std::lock_guard lock(budget_->mutex);
  return budget_->peakBytes;
}

}  // namespace farhop::sampler
