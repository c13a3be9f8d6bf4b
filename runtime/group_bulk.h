// A worker group's bulk transport: made before the group's agents are connected, used by pulls of features.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "rpc/bulk_slots.h"
#include "rpc/bulk_transport.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

// Whether FARHOP_FABRIC's value asks for a bulk transport: empty and "none" do not.
bool wantsBulk(const std::string& fabric);

// The transport is closed after the group's agent, by whoever owns this, and may be held by others until then.
class GroupBulk {
 public:
  // Opens the endpoint on the group's interface. `peers` by machine. Errors as of rpc::makeFabricTransport().
  static absl::StatusOr<std::unique_ptr<GroupBulk>> open(const LaunchContract& contract, const std::string& fabric,
                                                         const std::string& bindAddress, std::vector<PeerName> peers);

  // How the group's processes tell each other their addresses.
  using Publish = std::function<absl::Status(const std::string& key, const std::string& value)>;
  using LookUp = std::function<absl::StatusOr<std::string>(const std::string& key)>;
  absl::Status connect(const Publish& publish, const LookUp& lookUp);

  const std::shared_ptr<rpc::BulkTransport>& transport() const { return transport_; }
  // Counts the transport's arrivals.
  const std::shared_ptr<rpc::BulkSlots>& slots() const { return slots_; }
  const std::vector<PeerName>& peers() const { return peers_; }

 private:
  GroupBulk(int machine, std::shared_ptr<rpc::BulkTransport> transport, std::vector<PeerName> peers);

  const int machine_;
  const std::shared_ptr<rpc::BulkTransport> transport_;
  const std::shared_ptr<rpc::BulkSlots> slots_ = std::make_shared<rpc::BulkSlots>();
  const std::vector<PeerName> peers_;
};

}  // namespace farhop::runtime
