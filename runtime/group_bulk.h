// A worker group's bulk transport: made before the group's agents are connected, used by pulls of features.
//
// The group agrees on it: each process says by the group's store what it has opened, or why it could not, and whether it
// has met the others. Unless a transport was asked for by name, one process that cannot take part is enough for all to
// leave features to the agent. Once all have met the endpoints' ports are closed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "rpc/bulk_meeting.h"
#include "rpc/bulk_slots.h"
#include "rpc/bulk_transport.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

// What FARHOP_FABRIC's value asks for: "none" for no bulk transport; empty or "auto" for the best that works, if any
// does; anything else for that one, or an error.
bool wantsBulk(const std::string& fabric);
bool insistsOnBulk(const std::string& fabric);

struct GroupBulkOptions {
  int machine = 0;
  std::string fabric;
  std::string bindAddress;      // of the group's interface
  std::vector<PeerName> peers;  // by machine
  Deadline deadline;
  // How the group's processes tell each other their addresses; the key is waited for.
  std::function<absl::Status(const std::string& key, const std::string& value)> publish;
  std::function<absl::StatusOr<std::string>(const std::string& key)> lookUp;
  // Not OK when the group cannot meet any more.
  std::function<absl::Status()> failure;
};

// The transport is closed after the group's agent, by whoever owns this, and may be held by others until then.
class GroupBulk {
 public:
  // Opens the endpoint and meets the group. Null, with a line in the log that says why, when the group does without.
  // Errors, where one was asked for: as of rpc::makeFabricTransport(), or what a peer says of its own. Others: of
  // publish, lookUp and failure.
  static absl::StatusOr<std::unique_ptr<GroupBulk>> meet(const GroupBulkOptions& options);
  // For a process that wants none: so that others that do not know of it need not wait.
  static absl::Status decline(const GroupBulkOptions& options);
  ~GroupBulk();

  const std::shared_ptr<rpc::BulkTransport>& transport() const { return transport_; }
  // Counts the transport's arrivals.
  const std::shared_ptr<rpc::BulkSlots>& slots() const { return slots_; }
  const std::vector<PeerName>& peers() const { return peers_; }

 private:
  explicit GroupBulk(std::vector<PeerName> peers) : peers_(std::move(peers)) {}
  absl::Status open(const GroupBulkOptions& options, const std::string& choice);
  absl::Status connect(const GroupBulkOptions& options, const std::vector<std::string>& addresses);

  std::shared_ptr<rpc::BulkTransport> transport_;
  const std::shared_ptr<rpc::BulkSlots> slots_ = std::make_shared<rpc::BulkSlots>();
  std::unique_ptr<rpc::BulkMeeting> meeting_;  // while the group meets
  const std::vector<PeerName> peers_;
};

}  // namespace farhop::runtime
