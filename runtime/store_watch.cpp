#include "runtime/store_watch.h"

#include <optional>
#include <utility>

#include "base/executor.h"
#include "runtime/local_message.h"

namespace farhop::runtime {
namespace {

// A wait is cut into pieces of this length, so that stop() does not hang on a store that has gone silent.
constexpr std::chrono::milliseconds kSlice{1'000};
constexpr std::chrono::milliseconds kDoubtTimeout{200};
constexpr std::chrono::milliseconds kStopTimeout{5'000};

std::string keyOf(int machine) { return absl::StrCat("watch/", machine); }

}  // namespace

void tellWatches(rpc::StoreClient& client, const LaunchContract& contract, const absl::Status& failure,
                 Deadline deadline) {
  const std::string frame = encodeLocalMessage(lossMessage(failure));
  for (int machine = 0; machine < contract.numMachines; ++machine) {
    if (machine == contract.machine) continue;
    if (!client.set(keyOf(machine), frame, deadline).ok()) return;
  }
}

StoreWatch::StoreWatch(const LaunchContract& contract, HostPort master, rpc::StoreClient* client,
                       FailureMonitor* monitor)
    : master_(std::move(master)),
      contract_(contract),
      client_(client),
      monitor_(monitor) {}

void StoreWatch::start(std::unique_ptr<rpc::StoreClient> watching, Deadline deadline) {
  watching_ = std::move(watching);
  thread_ = std::thread([this, deadline] { run(deadline); });
}

void StoreWatch::run(Deadline deadline) {
  setThreadName("farhop/watch");
  while (!deadline.expired()) {
    absl::StatusOr<std::string> said =
        watching_->get(keyOf(contract_.machine), Deadline::earliest(deadline, Deadline::after(kSlice)));
    if (said.ok()) {
      const absl::StatusOr<std::optional<LocalMessage>> message = takeLocalMessage(*said);
      if (message.ok() && message->has_value()) monitor_->record(failureOf(**message));
      return;
    }
    // With a peer it is the store that is lost, not the key that is missing.
    if (absl::IsDeadlineExceeded(said.status()) && !peerOf(said.status())) continue;
    // The store names who vanished; that may have been the victim of another, whose name is on its way.
    if (!monitor_->waitFor(Deadline::after(kDoubtTimeout))) monitor_->record(said.status());
    return;
  }
}

void StoreWatch::tell(const absl::Status& failure) const {
  const Deadline deadline = Deadline::after(kTellTimeout);
  absl::StatusOr<std::unique_ptr<rpc::StoreClient>> client = rpc::StoreClient::connect(
      {master_, contract_.jobId, contract_.token, {contract_.machine, contract_.proc, ""}}, deadline);
  if (!client.ok()) return;
  tellWatches(**client, contract_, failure, deadline);
  (*client)->farewell();
}

void StoreWatch::stop() {
  if (!thread_.joinable()) return;
  // When that fails the store has failed, or does not answer.
  if (!client_->set(keyOf(contract_.machine), "", Deadline::after(kStopTimeout)).ok()) watching_->interrupt();
  thread_.join();
  watching_->farewell();
}

}  // namespace farhop::runtime
