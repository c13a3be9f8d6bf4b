// Learns from the group's rendezvous store that a process of the group has died, while this process asks the store
// nothing itself.
//
// A second connection to the store, on which a thread waits for a key of its process. The store fails the wait
// when a member's connection ends without a farewell; a process that must end for another reason sets the key to
// that reason (tell()), so that the others hear of the culprit and not of its victim; and the process itself sets
// it to nothing when it has no more use for the watch. Failures are recorded in the monitor.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"
#include "rpc/rendezvous.h"
#include "runtime/failure_monitor.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

// Tells every other watch of the group of a failure.
void tellWatches(rpc::StoreClient& client, const LaunchContract& contract, const absl::Status& failure, Deadline deadline);

class StoreWatch {
 public:
  // `client` (the connection for this process's requests) and `monitor` outlive the watch.
  StoreWatch(const LaunchContract& contract, HostPort master, rpc::StoreClient* client, FailureMonitor* monitor);
  ~StoreWatch() { stop(); }
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

  // Over `watching`, a connection of its own, at most until the deadline of the start. Once.
  void start(std::unique_ptr<rpc::StoreClient> watching, Deadline deadline);
  // Tells every other watch of the group, over a connection of its own. Blocks, at most for kTellTimeout.
  void tell(const absl::Status& failure) const;
  // Must happen before the store may end. Idempotent.
  void stop();

 private:
  void run(Deadline deadline);

  const HostPort master_;
  static constexpr std::chrono::milliseconds kTellTimeout{400};

  const LaunchContract contract_;
  rpc::StoreClient* const client_;
  FailureMonitor* const monitor_;
  std::unique_ptr<rpc::StoreClient> watching_;
  std::thread thread_;
};

}  // namespace farhop::runtime
