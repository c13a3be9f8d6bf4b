// How a process finds its group's rendezvous store, and opens its two connections to it: one for its own requests,
// one for its watch (store_watch.h).
//
// The waits run on threads of their own that are left behind when a failure ends the meeting: a resolver knows no
// deadline, and the master's socket may be open long before its process serves it; a connection given up in that
// time would look like a lost client. They touch only what they share with the meeting, and end at the deadline.
#pragma once

#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"
#include "rpc/rendezvous.h"
#include "runtime/failure_monitor.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

struct StoreMeeting {
  HostPort master;  // the one of the candidates that answered
  std::unique_ptr<rpc::StoreClient> client;
  std::unique_ptr<rpc::StoreClient> watching;
};

// Where group contract.proc may meet: masterPortCandidates() as addresses.
std::vector<HostPort> masterCandidates(const LaunchContract& contract);

// Tries all `masters` at once until the job's own store answers on one. With a single one, whatever else answers
// there is an error at once; with several it is taken for a stranger that came first, and the others count.
// A recorded failure ends it with that failure. NotFound when the master does not resolve; Unavailable when a store
// that was met has ended; DeadlineExceeded says what each candidate did.
absl::StatusOr<StoreMeeting> meetAtStore(const LaunchContract& contract, const std::vector<HostPort>& masters,
                                         FailureMonitor* monitor, Deadline deadline);

}  // namespace farhop::runtime
