#include "runtime/group_bulk.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/log.h"

namespace farhop::runtime {
namespace {

// Connections within a group take milliseconds; a path that does not answer is not worth a job's whole start.
constexpr std::chrono::milliseconds kMeetingTimeout{20'000};
constexpr char kYes = '+', kNo = '-';
constexpr char kFieldEnd = '\n';

bool isAutomatic(const std::string& fabric) { return fabric.empty() || fabric == "auto"; }

// What every process of the group says under a name, in machine order.
struct Ballot {
  std::vector<std::string> values;      // without their sign
  std::optional<absl::Status> refusal;  // of the first that says no
};

absl::StatusOr<Ballot> vote(const GroupBulkOptions& options, const std::string& name, const absl::StatusOr<std::string>& own) {
  FARHOP_RETURN_IF_ERROR(options.publish(absl::StrCat(name, "/", options.machine),
                                         own.ok() ? absl::StrCat(std::string(1, kYes), *own)
                                                  : absl::StrCat(std::string(1, kNo), own.status().message())));
  Ballot ballot;
  for (size_t machine = 0; machine < options.peers.size(); ++machine) {
    const absl::StatusOr<std::string> answer = options.lookUp(absl::StrCat(name, "/", machine));
    if (!answer.ok()) return answer.status();
    const absl::string_view said = *answer;
    if ((said.empty() || said[0] != kYes) && !ballot.refusal) {
      const std::string reason(said.empty() ? "" : said.substr(1));
      const bool isOwn = static_cast<int>(machine) == options.machine;
      ballot.refusal = isOwn && !own.ok() ? own.status()
                                          : absl::UnavailableError(absl::StrCat(describePeer(options.peers[machine]), ": ", reason));
    }
    ballot.values.emplace_back(said.empty() ? "" : said.substr(1));
  }
  return ballot;
}

// What a process has opened: what FARHOP_FABRIC says there, the provider, the address.
struct Opened {
  std::string fabric, provider, address;
};

std::string encode(const Opened& opened) {
  const std::string end(1, kFieldEnd);
  return absl::StrCat(opened.fabric, end, opened.provider, end, opened.address);
}

// An address may hold any bytes.
absl::StatusOr<std::vector<Opened>> decode(const std::vector<std::string>& values) {
  std::vector<Opened> all;
  for (const std::string& value : values) {
    const std::vector<std::string> fields = absl::StrSplit(value, absl::MaxSplits(kFieldEnd, 2));
    if (fields.size() != 3) return absl::InvalidArgumentError("not the bulk endpoint of a process of this version");
    all.push_back({fields[0], fields[1], fields[2]});
  }
  return all;
}

absl::Status checkSameChoice(const std::vector<Opened>& all, const GroupBulkOptions& options) {
  for (size_t machine = 0; machine < all.size(); ++machine) {
    if (all[machine].fabric == all[0].fabric) continue;
    return absl::FailedPreconditionError(absl::StrCat("FARHOP_FABRIC has to be the same for all processes of a job: it is \"",
                                                      all[0].fabric, "\" at ", describePeer(options.peers[0]), ", \"",
                                                      all[machine].fabric, "\" at ", describePeer(options.peers[machine])));
  }
  return absl::OkStatus();
}

bool sameProvider(const std::vector<Opened>& all) {
  return std::all_of(all.begin(), all.end(), [&](const Opened& one) { return one.provider == all[0].provider; });
}

}  // namespace

bool wantsBulk(const std::string& fabric) { return fabric != "none"; }

bool insistsOnBulk(const std::string& fabric) { return wantsBulk(fabric) && !isAutomatic(fabric); }

GroupBulk::~GroupBulk() {
  if (transport_ != nullptr && meeting_ != nullptr) transport_->close(absl::CancelledError("the group does without"));
}

absl::Status GroupBulk::open(const GroupBulkOptions& options, const std::string& choice) {
  rpc::BulkOptions bulk;
  bulk.rank = options.machine;
  bulk.size = static_cast<int>(options.peers.size());
  bulk.peers = options.peers;
  rpc::FabricOptions fabric;
  fabric.bindAddress = options.bindAddress;
  fabric.choice = choice;
  absl::StatusOr<std::unique_ptr<rpc::BulkTransport>> transport = rpc::makeFabricTransport(std::move(bulk), fabric);
  FARHOP_RETURN_IF_ERROR(transport.status());
  transport_ = *std::move(transport);
  transport_->onArrival([slots = slots_](uint32_t data) { slots->arrived(data); });
  FARHOP_ASSIGN_OR_RETURN(meeting_, rpc::BulkMeeting::make(transport_.get(), slots_.get(), options.machine,
                                                           static_cast<int>(options.peers.size())));
  return absl::OkStatus();
}

absl::Status GroupBulk::connect(const GroupBulkOptions& options, const std::vector<std::string>& addresses) {
  return meeting_->meet(addresses, Deadline::earliest(options.deadline, Deadline::after(kMeetingTimeout)), options.failure);
}

absl::Status GroupBulk::decline(const GroupBulkOptions& options) {
  return options.publish(absl::StrCat("bulk0/", options.machine), absl::StrCat(std::string(1, kNo), "FARHOP_FABRIC=none there"));
}

absl::StatusOr<std::unique_ptr<GroupBulk>> GroupBulk::meet(const GroupBulkOptions& options) {
  const bool isAuto = isAutomatic(options.fabric);
  // Machines with unlike networks have TCP in common.
  const std::vector<std::string> choices = isAuto ? std::vector<std::string>{"", "tcp"} : std::vector<std::string>{options.fabric};
  const auto without = [&](const absl::Status& reason) -> absl::StatusOr<std::unique_ptr<GroupBulk>> {
    if (!isAuto) return annotate(reason, absl::StrCat("FARHOP_FABRIC=", options.fabric));
    FARHOP_LOG(INFO) << "features travel over TensorPipe, since libfabric cannot be used: " << reason.message();
    return nullptr;
  };
  for (size_t round = 0; round < choices.size(); ++round) {
    std::unique_ptr<GroupBulk> bulk(new GroupBulk(options.peers));
    const absl::Status opened = bulk->open(options, choices[round]);
    absl::StatusOr<std::string> own = "";
    if (!opened.ok()) own = opened;
    if (opened.ok()) own = encode({isAuto ? "" : options.fabric, bulk->transport_->provider(), bulk->meeting_->address()});
    FARHOP_ASSIGN_OR_RETURN(Ballot ballot, vote(options, absl::StrCat("bulk", round), own));
    if (ballot.refusal) return without(*ballot.refusal);
    FARHOP_ASSIGN_OR_RETURN(const std::vector<Opened> all, decode(ballot.values));
    if (const absl::Status same = checkSameChoice(all, options); !same.ok()) return without(same);
    if (isAuto && round + 1 < choices.size() && !sameProvider(all)) continue;
    std::vector<std::string> addresses;
    for (const Opened& one : all) addresses.push_back(one.address);
    const absl::Status met = bulk->connect(options, addresses);
    FARHOP_RETURN_IF_ERROR(options.failure());
    FARHOP_ASSIGN_OR_RETURN(ballot, vote(options, absl::StrCat("bulkmet", round), met.ok() ? absl::StatusOr<std::string>("") : met));
    if (ballot.refusal) return without(*ballot.refusal);
    bulk->meeting_.reset();
    auto closed = std::make_shared<std::promise<absl::Status>>();
    std::future<absl::Status> closing = closed->get_future();
    bulk->transport_->stopListening([closed](absl::Status status) { closed->set_value(std::move(status)); });
    if (const absl::Status status = closing.get(); !status.ok()) {
      FARHOP_LOG(WARNING) << "the port of " << bulk->transport_->provider() << " stays open while the job runs: " << status.message();
    }
    return bulk;
  }
  return absl::InternalError("no bulk transport was tried");
}

}  // namespace farhop::runtime
