// Starts pulls of named features as soon as a batch is sampled, so that they travel while the trainer is still busy
// with earlier batches.
//
// What has been asked for or has come, and is not in the trainer's hands yet, never exceeds a number of bytes: batches
// for which there is no room wait in line, in the order in which they will be handed out, and what has not begun by then
// is left to the trainer's own pull. A prefetch that fails is no error either: the trainer's pull says why.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "sampler/feature_puller.h"
#include "sampler/pending_pull.h"
#include "sampler/sampled_batch.h"

namespace farhop::sampler {

struct PrefetchFeature {
  int nodeType = 0;
  uint32_t feature = 0;   // as FeatureTarget has it
  bool ofSeeds = false;   // rows for the seeds, repeats included, in place of all nodes of the type
};

struct PrefetchOptions {
  std::vector<PrefetchFeature> features;
  size_t maxBytes = 0;  // a batch's features that need more than this are never prefetched
  std::chrono::milliseconds timeout{60'000};
  bool cache = true;  // as PullRequest::cache
  // Memory for `rows` rows of features[index]; an error leaves them to the trainer's pull.
  std::function<absl::StatusOr<PullMemory>(size_t index, size_t rows)> allocate;
  std::shared_ptr<const void> keepAlive;  // holds the puller until no pull is under way
  // What to say in place of a failed pull's status; empty: that.
  std::function<absl::Status(const absl::Status&)> explain = {};
};

// A feature's rows, under way or there.
struct Prefetched {
  size_t index = 0;                // into PrefetchOptions::features
  std::shared_ptr<PullHold> hold;  // shared by features that travel together
  size_t part = 0;                 // which memory of the pull's is this feature's
};

// Thread-safe. The puller must outlive it, and what of it is under way (PrefetchOptions::keepAlive).
class Prefetcher {
 public:
  Prefetcher(FeaturePuller* puller, std::shared_ptr<const PartitionedGraph> graph, PrefetchOptions options);
  // Cancels what is under way; does not wait for it.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  const PrefetchFeature& feature(size_t index) const { return options_.features[index]; }

  // A batch has been sampled; it is only read during the call.
  void add(const SampledBatch& batch);
  // A batch is handed out: what was begun for it, whose bytes count no longer.
  std::vector<Prefetched> take(uint64_t epoch, uint64_t step);
  // Gives up all that is not handed out.
  void clear();

  // Under way or there, and not handed out (nor freed, when given up); and the most that this ever was.
  size_t bytes() const;
  size_t peakBytes() const;

 private:
  // Features with the same rows: one pull.
  struct Group {
    int nodeType = 0;
    bool ofSeeds = false;
    std::vector<size_t> indices;
    size_t rowBytes = 0;
  };
  // Outlives the prefetcher where a cancelled pull does.
  struct Budget {
    mutable std::mutex mutex;
    size_t bytes = 0, peakBytes = 0;  // guarded by mutex
  };
  // An entry's part in the budget: until it is handed out, or else until its pulls are over.
  class Lease {
   public:
    Lease(std::shared_ptr<Budget> budget, size_t bytes) : budget_(std::move(budget)), bytes_(bytes) {}
    ~Lease() { release(); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    void release();

   private:
    const std::shared_ptr<Budget> budget_;
    std::atomic<size_t> bytes_;
  };
  using Key = std::pair<uint64_t, uint64_t>;  // epoch, step
  struct Entry {
    std::vector<std::vector<uint64_t>> gids;  // per group, until the pulls begin
    size_t bytes = 0;
    bool starting = false;                    // its pulls are being started right now
    std::shared_ptr<Lease> lease;             // once begun
    std::vector<Prefetched> pulls;
  };

  std::shared_ptr<Lease> lease(size_t bytes) const;  // null where there is no room
  void startWaiting();
  std::vector<Prefetched> start(const std::vector<std::vector<uint64_t>>& gids, const std::shared_ptr<Lease>& lease);

  FeaturePuller* const puller_;
  const std::shared_ptr<const PartitionedGraph> graph_;
  const PrefetchOptions options_;
  std::vector<Group> groups_;
  const std::shared_ptr<Budget> budget_ = std::make_shared<Budget>();

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<Key, Entry> entries_;  // by the order in which they are handed out

  Executor executor_;  // last: its thread uses the rest
};

}  // namespace farhop::sampler
