#include "sampler/bulk_puller.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/executor.h"
#include "base/log.h"
#include "rpc/bulk_buffers.h"
#include "rpc/timer.h"
#include "sampler/bulk_chunk.h"
#include "sampler/bulk_wire.h"

namespace farhop::sampler {
namespace {

using std::chrono::milliseconds;

// A chunk whose rows land must have ended at its deadline: its owner begins no write in the last part of it.
constexpr milliseconds kMaxMargin{500};
// A destination that a given-up owner might still touch holds its pull up for this long; then it is kept, and left.
constexpr milliseconds kUntouchedTimeout{2'000};

struct Fetch {
  Fetch(RowChunk wanted, RowTransport::Done whenDone, rpc::BulkTransport* transport)
      : machine(wanted.machine), deadline(wanted.deadline), chunk(std::move(wanted)), done(std::move(whenDone)),
        memory(transport) {}

  const int machine;
  const Deadline deadline;
  RowChunk chunk;
  uint32_t slot = 0;

  // In line, or being started: nobody else looks at a chunk that is kStarting.
  enum class State { kInLine, kStarting, kUnderWay, kGivenUp, kSettled };
  // Guarded by the puller's mutex.
  State state = State::kInLine;
  RowTransport::Done done;  // empty once taken
  absl::Status status;      // how its owner ended it, or why it was given up
  std::multimap<Clock::time_point, std::shared_ptr<Fetch>>::iterator place;  // in watched_
  bool watched = false;

  BulkChunkMemory memory;
};

class Puller : public std::enable_shared_from_this<Puller> {
 public:
  using State = Fetch::State;
  using Done = RowTransport::Done;

  Puller(rpc::Agent* agent, BulkPullerOptions options)
      : agent_(agent),
        options_(std::move(options)),
        fallback_(agentRowTransport(agent)),
        staging_(options_.transport.get(), rpc::BulkAccess::kRemoteWrite, options_.stagingBytes,
                 static_cast<size_t>(options_.chunksPerPeer) * std::max<size_t>(1, options_.peers.size())),
        peers_(options_.peers.size()),
        executor_("farhop-bulkpull", 1),
        timer_("farhop-bulktime") {}

  void fetch(RowChunk chunk, Done done);
  void stop();
  const BulkPullerOptions& options() const { return options_; }

 private:
  struct Peer {
    bool lost = false;  // to the bulk transport
    int underWay = 0;
    std::deque<std::shared_ptr<Fetch>> inLine;
  };
  // Gives a staging buffer and the chunk's turn back.
  struct Loan {
    const std::shared_ptr<Puller> puller;
    std::shared_ptr<rpc::BulkRegion> buffer;
    const int machine;
    Loan(std::shared_ptr<Puller> from, std::shared_ptr<rpc::BulkRegion> lent, int owner)
        : puller(std::move(from)), buffer(std::move(lent)), machine(owner) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
      puller->staging_.give(std::move(buffer));
      puller->releaseTurn(machine);
    }
  };
  // Owned by the destinations' registrations: ends when nothing touches them any more.
  struct Untouched {
    const std::shared_ptr<Puller> puller;
    const std::shared_ptr<Fetch> fetch;
    Untouched(std::shared_ptr<Puller> whose, std::shared_ptr<Fetch> what) : puller(std::move(whose)), fetch(std::move(what)) {}
    Untouched(const Untouched&) = delete;
    Untouched& operator=(const Untouched&) = delete;
    ~Untouched() { puller->answerGivenUp(fetch); }
  };

  void start(const std::shared_ptr<Fetch>& fetch);
  absl::StatusOr<BulkPullRequest> prepare(const std::shared_ptr<Fetch>& fetch);
  void replied(const std::shared_ptr<Fetch>& fetch, const absl::Status& status, const rpc::BytesSink& sink);
  void arrived(const std::shared_ptr<Fetch>& fetch);
  void refuse(const std::shared_ptr<Fetch>& fetch, const absl::Status& status);
  void giveUp(const std::shared_ptr<Fetch>& fetch, const absl::Status& reason);
  void answerGivenUp(const std::shared_ptr<Fetch>& fetch);
  void releaseTurn(int machine);
  void fallBack(const std::shared_ptr<Fetch>& fetch);
  absl::Status named(const absl::Status& status, int machine) const;

  void tick();
  void expire(const std::shared_ptr<Fetch>& fetch);
  void schedule();
  // Under the mutex.
  void watch(const std::shared_ptr<Fetch>& fetch, Clock::time_point until);
  void unwatch(Fetch* fetch);
  static Done take(Fetch* fetch);

  rpc::Agent* const agent_;
  const BulkPullerOptions options_;
  const std::unique_ptr<RowTransport> fallback_;
  rpc::BulkBuffers staging_;

  std::mutex mutex_;
  std::vector<Peer> peers_;                                         // guarded by mutex_
  std::multimap<Clock::time_point, std::shared_ptr<Fetch>> watched_;  // guarded by mutex_; by when to look at it
  Clock::time_point nextTick_ = Clock::time_point::max();           // guarded by mutex_
  bool stopped_ = false;                                            // guarded by mutex_

  Executor executor_;  // starts what has waited
  rpc::Timer timer_;
};

void Puller::watch(const std::shared_ptr<Fetch>& fetch, Clock::time_point until) {
  unwatch(fetch.get());
  fetch->place = watched_.emplace(until, fetch);
  fetch->watched = true;
}

void Puller::unwatch(Fetch* fetch) {
  if (!std::exchange(fetch->watched, false)) return;
  watched_.erase(fetch->place);
}

// Who answers lets go of the pull first: its last holder may end the whole graph, which is not for a transport's thread.
Puller::Done Puller::take(Fetch* fetch) {
  fetch->chunk.keepAlive.reset();
  return std::exchange(fetch->done, nullptr);
}

absl::Status Puller::named(const absl::Status& status, int machine) const {
  if (status.ok() || peerOf(status)) return status;
  return withPeer(status, options_.peers[static_cast<size_t>(machine)]);
}

void Puller::fetch(RowChunk chunk, Done done) {
  auto fetch = std::make_shared<Fetch>(std::move(chunk), std::move(done), options_.transport.get());
  bool toAgent = false, starts = false;
  {
    std::lock_guard lock(mutex_);
    Peer& peer = peers_[static_cast<size_t>(fetch->machine)];
    toAgent = peer.lost || stopped_;
    if (!toAgent) {
      starts = peer.underWay < options_.chunksPerPeer;
      if (starts) {
        ++peer.underWay;
        fetch->state = State::kStarting;
      } else {
        peer.inLine.push_back(fetch);
        watch(fetch, fetch->deadline.at());
      }
    }
  }
  if (toAgent) {
    fallBack(fetch);
  } else if (starts) {
    start(fetch);
  } else {
    schedule();
  }
}

void Puller::fallBack(const std::shared_ptr<Fetch>& fetch) {
  Done done;
  {
    std::lock_guard lock(mutex_);
    fetch->state = State::kSettled;
    unwatch(fetch.get());
    done = take(fetch.get());
  }
  if (done) fallback_->fetch(std::move(fetch->chunk), std::move(done));
}

absl::StatusOr<BulkPullRequest> Puller::prepare(const std::shared_ptr<Fetch>& fetch) {
  if (fetch->deadline.expired()) return absl::DeadlineExceededError("no time is left to ask for rows");
  if (milliseconds(fetch->deadline.remainingMs()) < options_.minLandingTime) fetch->chunk.destinations.clear();
  FARHOP_RETURN_IF_ERROR(fetch->memory.prepare(fetch->chunk, options_.landingRunBytes, &staging_,
                                               std::make_shared<Untouched>(shared_from_this(), fetch)));
  FARHOP_ASSIGN_OR_RETURN(fetch->slot, options_.slots->open([self = shared_from_this(), fetch] { self->arrived(fetch); }));
  BulkPullRequest request;
  request.slot = fetch->slot;
  request.targets = fetch->memory.targets();
  request.rows = std::move(fetch->chunk.request);
  auto left = milliseconds(fetch->deadline.remainingMs());
  if (fetch->memory.lands()) {
    left -= std::min(kMaxMargin, left / 4);
    request.slots.assign(fetch->chunk.slots.begin(), fetch->chunk.slots.end());
  }
  request.workMs = static_cast<uint32_t>(left.count());
  return request;
}

void Puller::start(const std::shared_ptr<Fetch>& fetch) {
  absl::StatusOr<BulkPullRequest> request = prepare(fetch);
  if (!request.ok()) {
    refuse(fetch, request.status());
    return;
  }
  {
    std::lock_guard lock(mutex_);
    fetch->state = State::kUnderWay;
    watch(fetch, fetch->deadline.at());
  }
  schedule();
  auto sink = std::make_shared<rpc::BytesSink>();
  agent_->call(fetch->machine, kBulkPullMethod, {encodeBulkPull(*request)}, Deadline(fetch->deadline.at() + options_.grace),
               sink, [self = shared_from_this(), fetch, sink](const absl::Status& status) {
                 self->replied(fetch, status, *sink);
               });
}

// Before its owner knows of it.
void Puller::refuse(const std::shared_ptr<Fetch>& fetch, const absl::Status& status) {
  Done done;
  {
    std::lock_guard lock(mutex_);
    fetch->state = State::kSettled;
    unwatch(fetch.get());
    done = take(fetch.get());
  }
  staging_.give(fetch->memory.reclaim(fetch->machine));
  releaseTurn(fetch->machine);
  if (done) done(named(status, fetch->machine));
}

void Puller::replied(const std::shared_ptr<Fetch>& fetch, const absl::Status& status, const rpc::BytesSink& sink) {
  if (!status.ok()) {
    giveUp(fetch, status);
    return;
  }
  absl::StatusOr<BulkPullEnd> end = decodeBulkPullReply(sink.arrays);
  if (!end.ok() || end->counts.uncertain > 0) {
    giveUp(fetch, end.ok() ? end->status : end.status());
    return;
  }
  {
    std::lock_guard lock(mutex_);
    fetch->status = end->status;
  }
  options_.slots->expect(fetch->slot, end->counts.writes);
}

// All that the owner has written is here.
void Puller::arrived(const std::shared_ptr<Fetch>& fetch) {
  Done done;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    if (fetch->state != State::kUnderWay) return;
    fetch->state = State::kSettled;
    unwatch(fetch.get());
    status = fetch->status;
    done = take(fetch.get());
  }
  auto loan = std::make_shared<Loan>(shared_from_this(), fetch->memory.reclaim(fetch->machine), fetch->machine);
  if (!done) return;
  if (!status.ok()) {
    loan.reset();
    done(named(status, fetch->machine));
    return;
  }
  done(FetchedRows{fetch->memory.arrays(), std::move(loan)});
}

// Its owner may write on: the transport closes the connection, and keeps the memory until then.
void Puller::giveUp(const std::shared_ptr<Fetch>& fetch, const absl::Status& reason) {
  const absl::Status status = named(reason, fetch->machine);
  std::deque<std::shared_ptr<Fetch>> inLine;
  Done done;
  bool isNews = false;
  {
    std::lock_guard lock(mutex_);
    if (fetch->state != State::kUnderWay) return;
    fetch->state = State::kGivenUp;
    fetch->status = status;
    if (fetch->memory.lands()) {
      watch(fetch, Clock::now() + kUntouchedTimeout);
    } else {
      unwatch(fetch.get());
      done = take(fetch.get());
    }
    Peer& peer = peers_[static_cast<size_t>(fetch->machine)];
    isNews = !std::exchange(peer.lost, true);
    inLine.swap(peer.inLine);
  }
  schedule();
  if (isNews) {
    FARHOP_LOG(WARNING) << "no rows come from machine " << fetch->machine << " by " << options_.transport->provider()
                        << " any more, but by requests of the agent: " << status;
  }
  options_.slots->retire(fetch->slot);
  options_.transport->failPeer(fetch->machine, status);
  fetch->memory.leaveToTransport();
  releaseTurn(fetch->machine);
  for (std::shared_ptr<Fetch>& one : inLine) {
    executor_.post([self = shared_from_this(), one = std::move(one)] { self->fallBack(one); });
  }
  if (done) done(status);
}

void Puller::answerGivenUp(const std::shared_ptr<Fetch>& fetch) {
  Done done;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    if (fetch->state != State::kGivenUp) return;
    unwatch(fetch.get());
    status = fetch->status;
    done = take(fetch.get());
  }
  if (done) done(status);
}

void Puller::releaseTurn(int machine) {
  std::shared_ptr<Fetch> next;
  {
    std::lock_guard lock(mutex_);
    Peer& peer = peers_[static_cast<size_t>(machine)];
    if (peer.inLine.empty()) {
      --peer.underWay;
      return;
    }
    next = std::move(peer.inLine.front());
    peer.inLine.pop_front();
    unwatch(next.get());
    next->state = State::kStarting;
  }
  executor_.post([self = shared_from_this(), next] { self->start(next); });
}

void Puller::schedule() {
  Clock::time_point at;
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || watched_.empty() || watched_.begin()->first >= nextTick_) return;
    at = nextTick_ = watched_.begin()->first;
  }
  timer_.at(at, [weak = weak_from_this()] {
    if (const std::shared_ptr<Puller> self = weak.lock()) self->tick();
  });
}

void Puller::tick() {
  std::vector<std::shared_ptr<Fetch>> late;
  {
    std::lock_guard lock(mutex_);
    nextTick_ = Clock::time_point::max();
    const auto now = Clock::now();
    for (auto& [at, fetch] : watched_) {
      if (at > now) break;
      late.push_back(fetch);
    }
  }
  for (const std::shared_ptr<Fetch>& fetch : late) expire(fetch);
  schedule();
}

void Puller::expire(const std::shared_ptr<Fetch>& fetch) {
  const absl::Status status = named(
      absl::DeadlineExceededError(absl::StrCat("machine ", fetch->machine, " had not sent all rows at the deadline")),
      fetch->machine);
  Done done;
  absl::Status reason = status;
  bool hopeless = false;
  {
    std::lock_guard lock(mutex_);
    if (!fetch->watched) return;
    if (fetch->state == State::kInLine) {
      std::erase(peers_[static_cast<size_t>(fetch->machine)].inLine, fetch);
      fetch->state = State::kSettled;
      unwatch(fetch.get());
      done = take(fetch.get());
    } else if (fetch->state == State::kUnderWay) {
      hopeless = fetch->memory.lands() || !fetch->done;
      if (!hopeless) {
        // Nobody waits for the staging buffer; it is used again when its owner has ended the chunk.
        done = take(fetch.get());
        watch(fetch, Clock::now() + options_.grace + kUntouchedTimeout);
      }
    } else {
      // The provider cannot tell: the transport keeps the destination, as does this.
      unwatch(fetch.get());
      reason = fetch->status;
      done = std::exchange(fetch->done, nullptr);
    }
  }
  if (hopeless) giveUp(fetch, status);
  if (done) done(reason);
}

void Puller::stop() {
  std::vector<std::shared_ptr<Fetch>> left;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    for (auto& [at, fetch] : watched_) left.push_back(fetch);
  }
  for (const std::shared_ptr<Fetch>& fetch : left) {
    Done done;
    bool isOpen = false;
    {
      std::lock_guard lock(mutex_);
      isOpen = fetch->state == State::kUnderWay;
      fetch->state = State::kSettled;
      unwatch(fetch.get());
      done = take(fetch.get());
    }
    if (isOpen) {
      options_.slots->retire(fetch->slot);
      fetch->memory.leaveToTransport();
    }
    if (done) done(absl::CancelledError("nobody pulls features any more"));
  }
  timer_.stop();
  executor_.shutdown();
}

class BulkRowTransport : public RowTransport {
 public:
  BulkRowTransport(rpc::Agent* agent, BulkPullerOptions options)
      : puller_(std::make_shared<Puller>(agent, std::move(options))) {}
  ~BulkRowTransport() override { puller_->stop(); }

  void fetch(RowChunk chunk, Done done) override { puller_->fetch(std::move(chunk), std::move(done)); }

  RowCut cut(std::span<const size_t> rowBytes, const std::vector<bool>& mayLand, size_t) const override {
    const BulkPullerOptions& options = puller_->options();
    size_t staged = 0, landed = 0;
    for (size_t i = 0; i < rowBytes.size(); ++i) {
      (mayLand[i] && rowBytes[i] >= options.landingRunBytes ? landed : staged) += rowBytes[i];
    }
    size_t rows = SIZE_MAX;
    if (staged > 0) {
      // Arrays are aligned in their buffer.
      const size_t slack = 64 * rowBytes.size();
      rows = std::min(rows, (options.stagingBytes - std::min(slack, options.stagingBytes)) / staged);
    }
    if (landed > 0) rows = std::min(rows, options.landingChunkBytes / landed);
    if (staged + landed == 0) return {.chunkBytes = options.stagingBytes, .underWay = options.chunksPerPeer};
    return {.chunkBytes = std::max<size_t>(1, rows) * (staged + landed), .underWay = options.chunksPerPeer};
  }

 private:
  const std::shared_ptr<Puller> puller_;
};

}  // namespace

std::unique_ptr<RowTransport> bulkRowTransport(rpc::Agent* agent, BulkPullerOptions options) {
  return std::make_unique<BulkRowTransport>(agent, std::move(options));
}

}  // namespace farhop::sampler
