// The chunks that a process fetches by the bulk transport: who is asked, what has come, who is given up. See bulk_puller.h.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "rpc/bulk_buffers.h"
#include "rpc/timer.h"
#include "sampler/bulk_chunk.h"
#include "sampler/bulk_puller.h"
#include "sampler/bulk_wire.h"
#include "sampler/remote_tables.h"

namespace farhop::sampler {

// One chunk, from the request for it until nothing of it is under way any more.
struct BulkFetch {
  BulkFetch(RowChunk wanted, RowTransport::Done whenDone, rpc::BulkTransport* transport)
      : machine(wanted.machine), deadline(wanted.deadline), chunk(std::move(wanted)), done(std::move(whenDone)),
        memory(transport) {}

  const int machine;
  const Deadline deadline;
  RowChunk chunk;
  std::optional<uint32_t> slot;  // of chunks that their owner writes

  // In line, or being started: nobody else looks at a chunk that is kStarting.
  enum class State { kInLine, kStarting, kUnderWay, kGivenUp, kSettled };
  // Guarded by the puller's mutex.
  State state = State::kInLine;
  RowTransport::Done done;  // empty once taken
  absl::Status status;      // how its owner ended it, or why it was given up
  size_t readsLeft = 0;     // of a chunk that is read
  absl::Status readStatus;  // the first that failed
  bool fallsBack = false;   // given up for the sake of another chunk
  std::multimap<Clock::time_point, std::shared_ptr<BulkFetch>>::iterator place;  // in watched_
  bool watched = false;

  BulkChunkMemory memory;
};

// All chunks of a process. Thread-safe.
class BulkFetches : public std::enable_shared_from_this<BulkFetches> {
 public:
  // A destination that a given-up owner might still touch holds its pull up for this long; then it is kept, and left.
  static constexpr std::chrono::milliseconds kUntouchedTimeout{2'000};

  using State = BulkFetch::State;
  using Done = RowTransport::Done;

  BulkFetches(rpc::Agent* agent, BulkPullerOptions options)
      : agent_(agent),
        options_(std::move(options)),
        fallback_(agentRowTransport(agent)),
        tables_(options_.graph == nullptr || options_.reads == BulkReads::kNever
                    ? nullptr
                    : std::make_shared<RemoteTables>(agent, options_.graph)),
        staging_(options_.transport.get(), rpc::BulkAccess::kRemoteWrite | rpc::BulkAccess::kTarget, options_.stagingBytes,
                 static_cast<size_t>(options_.chunksPerPeer) * std::max<size_t>(1, options_.peers.size())),
        peers_(options_.peers.size()),
        executor_("farhop-bulkpull", 1),
        timer_("farhop-bulktime") {}

  void fetch(RowChunk chunk, Done done);
  void stop();
  const BulkPullerOptions& options() const { return options_; }
  // Whether rows of these lengths are read from their owner's mapping, rather than gathered and written by it.
  bool reads(std::span<const size_t> rowBytes) const;

 private:
  struct Peer {
    bool lost = false;  // to the bulk transport
    int underWay = 0;
    std::deque<std::shared_ptr<BulkFetch>> inLine;
  };
  // Gives a staging buffer and the chunk's turn back.
  struct Loan {
    const std::shared_ptr<BulkFetches> puller;
    std::shared_ptr<rpc::BulkRegion> buffer;
    const int machine;
    Loan(std::shared_ptr<BulkFetches> from, std::shared_ptr<rpc::BulkRegion> lent, int owner)
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
    const std::shared_ptr<BulkFetches> puller;
    const std::shared_ptr<BulkFetch> fetch;
    Untouched(std::shared_ptr<BulkFetches> whose, std::shared_ptr<BulkFetch> what) : puller(std::move(whose)), fetch(std::move(what)) {}
    Untouched(const Untouched&) = delete;
    Untouched& operator=(const Untouched&) = delete;
    ~Untouched() { puller->answerGivenUp(fetch); }
  };

  void start(const std::shared_ptr<BulkFetch>& fetch);
  bool reads(const RowChunk& chunk) const;
  void startGather(const std::shared_ptr<BulkFetch>& fetch);
  void startReads(const std::shared_ptr<BulkFetch>& fetch, const RemoteTables::Regions& regions);
  absl::Status prepareMemory(const std::shared_ptr<BulkFetch>& fetch, BulkChunkMemory::Use use);
  absl::StatusOr<std::vector<rpc::BulkTransfer>> prepareReads(const std::shared_ptr<BulkFetch>& fetch,
                                                              const RemoteTables::Regions& regions);
  void readEnded(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& status);
  absl::StatusOr<BulkPullRequest> prepare(const std::shared_ptr<BulkFetch>& fetch);
  void replied(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& status, const rpc::BytesSink& sink);
  void arrived(const std::shared_ptr<BulkFetch>& fetch);
  void refuse(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& status);
  void giveUp(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& reason);
  void answerGivenUp(const std::shared_ptr<BulkFetch>& fetch);
  void releaseTurn(int machine);
  void fallBack(const std::shared_ptr<BulkFetch>& fetch);
  absl::Status named(const absl::Status& status, int machine) const;

  void tick();
  void expire(const std::shared_ptr<BulkFetch>& fetch);
  void schedule();
  // Under the mutex.
  void watch(const std::shared_ptr<BulkFetch>& fetch, Clock::time_point until);
  void unwatch(BulkFetch* fetch);
  static Done take(BulkFetch* fetch);

  rpc::Agent* const agent_;
  const BulkPullerOptions options_;
  const std::unique_ptr<RowTransport> fallback_;
  const std::shared_ptr<RemoteTables> tables_;  // null where nothing is ever read
  rpc::BulkBuffers staging_;

  std::mutex mutex_;
  std::vector<Peer> peers_;                                         // guarded by mutex_
  std::multimap<Clock::time_point, std::shared_ptr<BulkFetch>> watched_;  // guarded by mutex_; by when to look at it
  Clock::time_point nextTick_ = Clock::time_point::max();           // guarded by mutex_
  bool stopped_ = false;                                            // guarded by mutex_

  Executor executor_;  // starts what has waited
  rpc::Timer timer_;
};

}  // namespace farhop::sampler
