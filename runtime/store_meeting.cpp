#include "runtime/store_meeting.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/executor.h"
#include "rpc/stages.h"
#include "runtime/store_watch.h"

namespace farhop::runtime {
namespace {

// How long after the deadline a look-up of the master's name may still take.
constexpr std::chrono::milliseconds kResolverGrace{1'000};
// With several candidates: how long one may leave a hello unanswered (a store answers within milliseconds, and
// itself waits five seconds for a hello), and the pause before a stranger's port is tried again.
constexpr std::chrono::milliseconds kSilence{15'000};
constexpr std::chrono::milliseconds kStrangerPause{500};

// What the store's other clients have to hear of is told within this time, or not at all.
constexpr std::chrono::milliseconds kTellOthersTimeout{400};

struct Attempt {
  explicit Attempt(const LaunchContract& ofJob) : contract(ofJob) {}

  const LaunchContract contract;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<StoreMeeting> met;      // guarded by mutex
  absl::Status failure;                 // guarded by mutex: what no other candidate can mend
  std::vector<absl::Status> candidates; // guarded by mutex: what each did last
  size_t ended = 0;                     // guarded by mutex: how many candidates are tried no more
  bool givenUp = false;                 // guarded by mutex: nobody waits any more
  // Guarded by mutex: the first connection to the job's own store, while the second is being made.
  std::unique_ptr<rpc::StoreClient> half;
  absl::Status reason;                  // guarded by mutex: the recorded failure, where that is why

  bool isGivenUp() {
    std::lock_guard lock(mutex);
    return givenUp;
  }
};

// For a process that has met the store but has to end for another's death: the others are to hear of that one, and
// are not to take this one for the culprit because its connections end.
void leaveFor(const absl::Status& reason, StoreMeeting& meeting, const LaunchContract& contract) {
  if (reason.ok()) return;
  if (meeting.client) {
    tellWatches(*meeting.client, contract, reason, Deadline::after(kTellOthersTimeout));
    meeting.client->farewell();
  }
  if (meeting.watching) meeting.watching->farewell();
}

// Returns false when there is no point in trying again.
bool tryOnce(Attempt& attempt, size_t index, rpc::StoreClientOptions options, Deadline deadline) {
  const bool alone = attempt.candidates.size() == 1;
  StoreMeeting meeting;
  meeting.master = options.master;
  absl::StatusOr<std::unique_ptr<rpc::StoreClient>> client = rpc::StoreClient::connect(
      options, alone ? deadline : Deadline::earliest(deadline, Deadline::after(kSilence)));
  const bool isOurs = client.ok();
  if (isOurs) {
    {
      std::lock_guard lock(attempt.mutex);
      attempt.half = *std::move(client);
    }
    rpc::reachStage("watch/connecting");
    options.wasUp = true;
    client = rpc::StoreClient::connect(options, deadline);
  }
  if (client.ok()) meeting.watching = *std::move(client);
  std::unique_lock lock(attempt.mutex);
  if (isOurs) meeting.client = std::move(attempt.half);  // none where it was taken to say farewell
  if (isOurs && attempt.givenUp) {
    const absl::Status reason = attempt.reason;
    lock.unlock();
    leaveFor(reason, meeting, attempt.contract);
    return false;
  }
  if (meeting.watching) {
    attempt.met = std::move(meeting);
    return false;
  }
  attempt.candidates[index] = client.status();
  if (!alone && !isOurs && !absl::IsNotFound(client.status()) && !deadline.expired()) return true;
  if (alone || isOurs || absl::IsNotFound(client.status())) attempt.failure = client.status();
  return false;
}

void pursue(const std::shared_ptr<Attempt>& attempt, size_t index, const rpc::StoreClientOptions& options,
            Deadline deadline) {
  setThreadName("farhop/meet");
  while (tryOnce(*attempt, index, options, deadline)) {
    std::unique_lock lock(attempt->mutex);
    const Deadline pause = Deadline::earliest(deadline, Deadline::after(kStrangerPause));
    if (attempt->changed.wait_until(lock, pause.at(), [&] { return attempt->givenUp; })) return;
  }
  {
    std::lock_guard lock(attempt->mutex);
    ++attempt->ended;
  }
  attempt->changed.notify_all();
}

absl::Status nobodyAnswered(const Attempt& attempt, const std::vector<HostPort>& masters) {
  bool silent = true;
  std::string each;
  for (size_t i = 0; i < masters.size(); ++i) {
    silent = silent && attempt.candidates[i].ok();
    absl::StrAppend(&each, each.empty() ? "" : "; ", masters[i].text(), ": ",
                    attempt.candidates[i].ok() ? "no answer" : std::string(attempt.candidates[i].message()));
  }
  if (silent && masters.size() == 1) {
    return absl::DeadlineExceededError(absl::StrCat("looking up '", masters[0].host, "' does not end; check the "
                                                    "resolver or give a numeric address"));
  }
  return absl::DeadlineExceededError(absl::StrCat("the job's store answered on none of its ports (", each, ")"));
}

}  // namespace

std::vector<HostPort> masterCandidates(const LaunchContract& contract) {
  std::vector<HostPort> masters;
  for (const uint16_t base : masterPortCandidates(contract)) {
    masters.push_back({contract.masterAddr, static_cast<uint16_t>(base + contract.proc)});
  }
  return masters;
}

absl::StatusOr<StoreMeeting> meetAtStore(const LaunchContract& contract, const std::vector<HostPort>& masters,
                                         FailureMonitor* monitor, Deadline deadline) {
  auto attempt = std::make_shared<Attempt>(contract);
  attempt->candidates.resize(masters.size());
  for (size_t i = 0; i < masters.size(); ++i) {
    rpc::StoreClientOptions options{masters[i], contract.jobId, contract.token, {contract.machine, contract.proc, ""}};
    options.givenUp = [attempt] { return attempt->isGivenUp(); };
    std::thread([attempt, i, options = std::move(options), deadline] { pursue(attempt, i, options, deadline); }).detach();
  }
  const int listener = monitor->addListener([attempt](const absl::Status& reason) {
    {
      std::lock_guard lock(attempt->mutex);
      attempt->givenUp = true;
      attempt->reason = reason;
    }
    attempt->changed.notify_all();
  });
  std::optional<StoreMeeting> met;
  absl::Status failure;
  {
    std::unique_lock lock(attempt->mutex);
    attempt->changed.wait_until(lock, deadline.at() + kResolverGrace, [&] {
      return attempt->met.has_value() || !attempt->failure.ok() || attempt->givenUp || attempt->ended == masters.size();
    });
    attempt->givenUp = true;
    met = std::move(attempt->met);
    failure = attempt->failure.ok() ? nobodyAnswered(*attempt, masters) : attempt->failure;
  }
  attempt->changed.notify_all();
  monitor->removeListener(listener);
  if (const absl::Status reason = monitor->status(); !reason.ok()) {
    if (!met) {
      // The second connection may take longer than this process is to live.
      std::lock_guard lock(attempt->mutex);
      attempt->reason = reason;
      met.emplace().client = std::move(attempt->half);
    }
    leaveFor(reason, *met, contract);
    return reason;
  }
  if (met) return *std::move(met);
  return annotate(failure, absl::StrCat("group ", contract.proc, " could not meet at its master (machine 0 process ",
                                        contract.proc, ")"));
}

}  // namespace farhop::runtime
