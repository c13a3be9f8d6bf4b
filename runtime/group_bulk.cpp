#include "runtime/group_bulk.h"

#include <utility>

namespace farhop::runtime {
namespace {

std::string bulkKey(size_t machine) { return absl::StrCat("bulk/", machine); }

}  // namespace

bool wantsBulk(const std::string& fabric) { return !fabric.empty() && fabric != "none"; }

GroupBulk::GroupBulk(int machine, std::shared_ptr<rpc::BulkTransport> transport, std::vector<PeerName> peers)
    : machine_(machine), transport_(std::move(transport)), peers_(std::move(peers)) {
  transport_->onArrival([slots = slots_](uint32_t data) { slots->arrived(data); });
}

absl::StatusOr<std::unique_ptr<GroupBulk>> GroupBulk::open(const LaunchContract& contract, const std::string& fabric,
                                                           const std::string& bindAddress, std::vector<PeerName> peers) {
  rpc::BulkOptions options;
  options.rank = contract.machine;
  options.size = contract.numMachines;
  options.peers = peers;
  rpc::FabricOptions choice;
  choice.bindAddress = bindAddress;
  choice.choice = fabric;
  absl::StatusOr<std::unique_ptr<rpc::BulkTransport>> transport = rpc::makeFabricTransport(std::move(options), choice);
  if (!transport.ok()) return annotate(transport.status(), absl::StrCat("FARHOP_FABRIC=", fabric));
  return std::unique_ptr<GroupBulk>(new GroupBulk(contract.machine, *std::move(transport), std::move(peers)));
}

absl::Status GroupBulk::connect(const Publish& publish, const LookUp& lookUp) {
  FARHOP_RETURN_IF_ERROR(publish(bulkKey(static_cast<size_t>(machine_)), transport_->address()));
  std::vector<std::string> addresses;
  for (size_t machine = 0; machine < peers_.size(); ++machine) {
    absl::StatusOr<std::string> address = lookUp(bulkKey(machine));
    if (!address.ok()) return annotate(address.status(), "FARHOP_FABRIC has to be the same for all processes of a job");
    addresses.push_back(*std::move(address));
  }
  return transport_->connect(addresses);
}

}  // namespace farhop::runtime
