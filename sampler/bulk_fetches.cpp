#include "sampler/bulk_fetches.h"

#include "base/log.h"

namespace farhop::sampler {
namespace {

using std::chrono::milliseconds;

// A chunk whose rows land must have ended at its deadline: its owner begins no write in the last part of it.
constexpr milliseconds kMaxMargin{500};

}  // namespace

void BulkFetches::watch(const std::shared_ptr<BulkFetch>& fetch, Clock::time_point until) {
  unwatch(fetch.get());
  fetch->place = watched_.emplace(until, fetch);
  fetch->watched = true;
}

void BulkFetches::unwatch(BulkFetch* fetch) {
  if (!std::exchange(fetch->watched, false)) return;
  watched_.erase(fetch->place);
}

// Who answers lets go of the pull first: its last holder may end the whole graph, which is not for a transport's thread.
BulkFetches::Done BulkFetches::take(BulkFetch* fetch) {
  fetch->chunk.keepAlive.reset();
  return std::exchange(fetch->done, nullptr);
}

absl::Status BulkFetches::named(const absl::Status& status, int machine) const {
  if (status.ok() || peerOf(status)) return status;
  return withPeer(status, options_.peers[static_cast<size_t>(machine)]);
}

void BulkFetches::fetch(RowChunk chunk, Done done) {
  auto fetch = std::make_shared<BulkFetch>(std::move(chunk), std::move(done), options_.transport.get());
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

void BulkFetches::fallBack(const std::shared_ptr<BulkFetch>& fetch) {
  Done done;
  {
    std::lock_guard lock(mutex_);
    fetch->state = State::kSettled;
    unwatch(fetch.get());
    done = take(fetch.get());
  }
  if (done) fallback_->fetch(std::move(fetch->chunk), std::move(done));
}

absl::Status BulkFetches::prepareMemory(const std::shared_ptr<BulkFetch>& fetch, BulkChunkMemory::Use use) {
  if (fetch->deadline.expired()) return absl::DeadlineExceededError("no time is left to ask for rows");
  if (milliseconds(fetch->deadline.remainingMs()) < options_.minLandingTime) fetch->chunk.destinations.clear();
  return fetch->memory.prepare(fetch->chunk, {use, options_.landingRunBytes, &staging_},
                               std::make_shared<Untouched>(shared_from_this(), fetch));
}

absl::StatusOr<BulkPullRequest> BulkFetches::prepare(const std::shared_ptr<BulkFetch>& fetch) {
  FARHOP_RETURN_IF_ERROR(prepareMemory(fetch, BulkChunkMemory::Use::kPeersWrites));
  FARHOP_ASSIGN_OR_RETURN(fetch->slot, options_.slots->open([self = shared_from_this(), fetch] { self->arrived(fetch); }));
  BulkPullRequest request;
  request.slot = *fetch->slot;
  request.targets = fetch->memory.targets();
  request.rows = fetch->chunk.request;
  auto left = milliseconds(fetch->deadline.remainingMs());
  if (fetch->memory.lands()) {
    left -= std::min(kMaxMargin, left / 4);
    request.slots.assign(fetch->chunk.slots.begin(), fetch->chunk.slots.end());
  }
  request.workMs = static_cast<uint32_t>(left.count());
  return request;
}

void BulkFetches::startGather(const std::shared_ptr<BulkFetch>& fetch) {
  const absl::StatusOr<BulkPullRequest> request = prepare(fetch);
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
void BulkFetches::refuse(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& status) {
  staging_.give(fetch->memory.reclaim(fetch->machine));
  releaseTurn(fetch->machine);
  Done done;
  bool lost = false;
  {
    std::lock_guard lock(mutex_);
    lost = peers_[static_cast<size_t>(fetch->machine)].lost;
    if (!lost) {
      fetch->state = State::kSettled;
      done = take(fetch.get());
    }
  }
  if (lost) {
    executor_.post([self = shared_from_this(), fetch] { self->fallBack(fetch); });
  } else if (done) {
    done(named(status, fetch->machine));
  }
}

void BulkFetches::replied(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& status, const rpc::BytesSink& sink) {
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
  options_.slots->expect(*fetch->slot, end->counts.writes);
}

// All that the owner has written is here.
void BulkFetches::arrived(const std::shared_ptr<BulkFetch>& fetch) {
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
void BulkFetches::giveUp(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& reason) {
  const absl::Status status = named(reason, fetch->machine);
  std::deque<std::shared_ptr<BulkFetch>> inLine;
  Done done;
  bool isNews = false;
  {
    std::lock_guard lock(mutex_);
    if (fetch->state != State::kUnderWay) return;
    fetch->state = State::kGivenUp;
    fetch->status = status;
    Peer& peer = peers_[static_cast<size_t>(fetch->machine)];
    isNews = !std::exchange(peer.lost, true);
    inLine.swap(peer.inLine);
    // A connection that was closed for another chunk's sake is no fault of this one.
    fetch->fallsBack = !isNews && fetch->done && !fetch->deadline.expired();
    if (fetch->memory.lands()) {
      watch(fetch, Clock::now() + kUntouchedTimeout);
    } else {
      unwatch(fetch.get());
      if (fetch->fallsBack) {
        inLine.push_back(fetch);
      } else {
        done = take(fetch.get());
      }
    }
  }
  schedule();
  if (isNews) {
    FARHOP_LOG(WARNING) << "no rows come from machine " << fetch->machine << " by " << options_.transport->provider()
                        << " any more, but by requests of the agent: " << status;
  }
  if (fetch->slot) options_.slots->retire(*fetch->slot);
  options_.transport->failPeer(fetch->machine, status);
  fetch->memory.leaveToTransport();
  releaseTurn(fetch->machine);
  for (std::shared_ptr<BulkFetch>& one : inLine) {
    executor_.post([self = shared_from_this(), one = std::move(one)] { self->fallBack(one); });
  }
  if (done) done(status);
}

void BulkFetches::answerGivenUp(const std::shared_ptr<BulkFetch>& fetch) {
  Done done;
  absl::Status status;
  bool fallsBack = false;
  {
    std::lock_guard lock(mutex_);
    if (fetch->state != State::kGivenUp) return;
    unwatch(fetch.get());
    status = fetch->status;
    fallsBack = fetch->fallsBack;
    if (!fallsBack) done = take(fetch.get());
  }
  if (fallsBack) executor_.post([self = shared_from_this(), fetch] { self->fallBack(fetch); });
  if (done) done(status);
}

void BulkFetches::releaseTurn(int machine) {
  std::shared_ptr<BulkFetch> next;
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

}  // namespace farhop::sampler
