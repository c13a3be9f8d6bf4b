#include "runtime/worker_group.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "rpc/stages.h"
#include "runtime/local_message.h"

namespace farhop::runtime {
namespace {

// A wait for a key is cut into pieces of this length, between which a failure that somebody else noticed is
// looked for.
constexpr std::chrono::milliseconds kStoreSlice{1'000};
// How long a broken meeting waits for whoever knows which process is to blame: when the error names nobody,
// and when it does but might name a victim.
constexpr std::chrono::milliseconds kCulpritTimeout{1'000};
constexpr std::chrono::milliseconds kLossDoubtTimeout{200};
// A last message to a peer that does not answer is given up after this.
constexpr std::chrono::milliseconds kFarewellTellTimeout{2'000};

std::string addressKey(int machine) { return absl::StrCat("agent/", machine); }

// "uv://10.0.0.1:4321" -> "10.0.0.1:4321": what people read.
std::string withoutScheme(const std::string& address) {
  const size_t at = address.find("://");
  return at == std::string::npos ? address : address.substr(at + 3);
}

}  // namespace

WorkerGroup::WorkerGroup(const LaunchContract& contract, const WorkerGroupOptions& options, FailureMonitor* monitor,
                         LocalChannel* channel, Collectives* collectives)
    : contract_(contract), options_(options), monitor_(monitor), channel_(channel), collectives_(collectives),
      masters_(masterCandidates(contract)) {
  for (int machine = 0; machine < contract.numMachines; ++machine) peers_.push_back({machine, contract.proc, ""});
}

WorkerGroup::~WorkerGroup() {
  close(absl::CancelledError("the worker group is closed"));
  // It has to outlast what is still to be told.
  losses_.shutdown();
  leaveStore();
  stopWatching();
}

absl::Status WorkerGroup::meet(Deadline deadline) {
  if (contract_.numMachines == 1) return absl::OkStatus();
  if (contract_.machine == 0) FARHOP_RETURN_IF_ERROR(serveStore());
  rpc::reachStage("group/store");
  absl::StatusOr<StoreMeeting> meeting = meetAtStore(contract_, masters_, monitor_, deadline);
  if (!meeting.ok()) return culpritOr(meeting.status());
  {
    std::lock_guard lock(mutex_);
    client_ = std::move(meeting->client);
  }
  auto watch = std::make_shared<StoreWatch>(contract_, meeting->master, client_.get(), monitor_);
  watch->start(std::move(meeting->watching), deadline);
  rpc::reachStage("group/watching");
  {
    std::lock_guard lock(mutex_);
    watch_ = std::move(watch);
  }
  // One that was recorded before there was anything to tell it with.
  if (const absl::Status failure = monitor_->status(); !failure.ok()) tellPeers(failure);
  rpc::reachStage("group/met");
  return absl::OkStatus();
}

absl::Status WorkerGroup::join(Deadline deadline) {
  if (contract_.numMachines == 1) return absl::OkStatus();
  FARHOP_RETURN_IF_ERROR(makeAgent());
  channel_->announceAddress(withoutScheme(agent_->address()));
  rpc::reachStage("group/listening");
  absl::StatusOr<std::vector<std::string>> addresses = exchangeAddresses(deadline);
  if (!addresses.ok()) return culpritOr(addresses.status());
  FARHOP_RETURN_IF_ERROR(culpritOr(makeBulk(deadline)));
  FARHOP_RETURN_IF_ERROR(culpritOr(agent_->connect(*addresses, deadline)));
  rpc::reachStage("group/connected");

  const MeshStore store{
      [this](const std::string& key, const std::string& value, Deadline until) { return client_->set(key, value, until); },
      [this](const std::string& key, Deadline until) { return lookUp(key, until); }};
  FARHOP_RETURN_IF_ERROR(collectives_->connectGroup(store, client_->localAddress(), peers_, deadline));
  // Before the barrier: whoever is behind it may end the store. The agent sees for itself now who dies.
  stopWatching();
  FARHOP_RETURN_IF_ERROR(collectives_->barrierGroup(deadline));
  client_->farewell();
  {
    std::lock_guard lock(mutex_);
    client_.reset();
  }
  server_.reset();
  return absl::OkStatus();
}

void WorkerGroup::stopWatching() {
  std::shared_ptr<StoreWatch> watch;
  {
    std::lock_guard lock(mutex_);
    watch.swap(watch_);
  }
  if (watch != nullptr) watch->stop();
}

// On the first of the group's addresses that is free; that is then the only one.
absl::StatusOr<FileDescriptor> WorkerGroup::listenAsMaster() {
  std::string taken;
  for (const HostPort& address : masters_) {
    absl::StatusOr<FileDescriptor> listener = listenTcp(address, 1'024);
    if (listener.ok()) {
      masters_ = {address};
      return listener;
    }
    if (!absl::IsAlreadyExists(listener.status()) || masters_.size() == 1) {
      return annotate(listener.status(), absl::StrCat("the meeting point of group ", contract_.proc));
    }
    absl::StrAppend(&taken, taken.empty() ? "" : ", ", address.port);
  }
  return absl::AlreadyExistsError(absl::StrCat("the meeting point of group ", contract_.proc, ": the ports ", taken,
                                               " of ", contract_.masterAddr, " are all in use; submit the job again, or "
                                               "set the FARHOP_* variables with a port of your own"));
}

void WorkerGroup::leaveStore() {
  std::shared_ptr<rpc::StoreClient> client;
  {
    std::lock_guard lock(mutex_);
    client = client_;
  }
  if (client != nullptr) client->interrupt();
}

absl::Status WorkerGroup::serveStore() {
  FileDescriptor listener;
  if (contract_.masterFd >= 0) {
    if (!isListening(contract_.masterFd)) {
      return absl::InvalidArgumentError(absl::StrCat(kEnvMasterFd, "=", contract_.masterFd,
                                                     " is no listening socket; unset it to listen on ", masters_[0].text()));
    }
    listener = FileDescriptor(contract_.masterFd);
    FARHOP_RETURN_IF_ERROR(setNonBlocking(listener.get()));
    FARHOP_RETURN_IF_ERROR(setCloseOnExec(listener.get(), true));
    masters_.resize(1);
  } else {
    FARHOP_ASSIGN_OR_RETURN(listener, listenAsMaster());
  }
  rpc::StoreServerOptions options;
  options.jobId = contract_.jobId;
  options.token = contract_.token;
  options.proc = contract_.proc;
  options.maxConnections = std::max<size_t>(4'096, 3 * static_cast<size_t>(contract_.numMachines));
  FARHOP_ASSIGN_OR_RETURN(server_, rpc::StoreServer::start(std::move(listener), options));
  return absl::OkStatus();
}

absl::Status WorkerGroup::makeAgent() {
  rpc::AgentOptions options;
  options.transport = rpc::TransportKind::kUv;
  options.bindAddress = client_->localAddress();
  options.rank = contract_.machine;
  options.size = contract_.numMachines;
  options.peers = peers_;
  options.jobId = contract_.jobId;
  options.token = contract_.token;
  options.servingThreads = options_.servingThreads;
  options.peerTimeout = options_.peerTimeout;
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Agent> agent, rpc::Agent::create(std::move(options)));
  agent->onPeerLost([this](int peer, absl::Status status) {
    // What it might still write to is let go.
    if (bulk_ != nullptr) bulk_->transport()->failPeer(peer, status);
    losses_.post([this, status = std::move(status)] { monitor_->record(status); });
  });
  agent->handle(kFailureMethod, [this](rpc::Request request, rpc::Responder responder) {
    std::string frame;
    if (!request.arrays.empty()) {
      const std::span<const char> bytes = request.arrays[0].as<char>();
      frame.assign(bytes.begin(), bytes.end());
    }
    responder.reply({});
    const absl::StatusOr<std::optional<LocalMessage>> message = takeLocalMessage(frame);
    if (!message.ok() || !message->has_value() || (*message)->type != LocalMessage::Type::kLost) return;
    losses_.post([this, failure = failureOf(**message)] { monitor_->record(failure); });
  });
  std::lock_guard lock(mutex_);
  if (closed_) return absl::CancelledError("the worker group is closed");
  agent_ = std::move(agent);
  return absl::OkStatus();
}

absl::Status WorkerGroup::makeBulk(Deadline deadline) {
  GroupBulkOptions options;
  options.machine = contract_.machine;
  options.fabric = options_.fabric;
  options.bindAddress = client_->localAddress();
  options.peers = peers_;
  options.deadline = deadline;
  options.publish = [&](const std::string& key, const std::string& value) { return client_->set(key, value, deadline); };
  options.lookUp = [&](const std::string& key) { return lookUp(key, deadline); };
  options.failure = [this] { return monitor_->status(); };
  if (!wantsBulk(options_.fabric)) return GroupBulk::decline(options);
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<GroupBulk> bulk, GroupBulk::meet(options));
  rpc::reachStage("group/bulk");
  std::lock_guard lock(mutex_);
  if (closed_) return absl::CancelledError("the worker group is closed");
  bulk_ = std::move(bulk);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> WorkerGroup::exchangeAddresses(Deadline deadline) {
  FARHOP_RETURN_IF_ERROR(client_->set(addressKey(contract_.machine), agent_->address(), deadline));
  std::vector<std::string> addresses;
  for (int machine = 0; machine < contract_.numMachines; ++machine) {
    absl::StatusOr<std::string> found = lookUp(addressKey(machine), deadline);
    if (absl::IsDeadlineExceeded(found.status()) && !peerOf(found.status())) {
      const PeerName& peer = peers_[static_cast<size_t>(machine)];
      return withPeer(absl::DeadlineExceededError(absl::StrCat("group ", contract_.proc, " did not meet in time: ",
                                                               describePeer(peer), " has not come; ", kNeverCameAdvice)),
                      peer);
    }
    FARHOP_ASSIGN_OR_RETURN(std::string address, std::move(found));
    peers_[static_cast<size_t>(machine)].address = withoutScheme(address);
    addresses.push_back(std::move(address));
  }
  return addresses;
}

absl::StatusOr<std::string> WorkerGroup::lookUp(const std::string& key, Deadline deadline) const {
  for (;;) {
    absl::StatusOr<std::string> value = client_->get(key, Deadline::earliest(deadline, Deadline::after(kStoreSlice)));
    if (value.ok()) return value;
    FARHOP_RETURN_IF_ERROR(monitor_->status());
    // With a peer it is the store that does not answer, not the key that is missing.
    if (!absl::IsDeadlineExceeded(value.status()) || peerOf(value.status())) return value.status();
    if (deadline.expired()) {
      return annotate(value.status(), absl::StrCat("group ", contract_.proc, " did not meet in time: no '", key,
                                                   "' (the number is the machine's)"));
    }
  }
}

// A connection that broke while meeting: its other end may be a victim itself.
absl::Status WorkerGroup::culpritOr(const absl::Status& status) const {
  if (status.ok() || absl::IsPermissionDenied(status) || absl::IsNotFound(status)) return status;
  if (!absl::IsDeadlineExceeded(status)) {
    (void)monitor_->waitFor(Deadline::after(peerOf(status) ? kLossDoubtTimeout : kCulpritTimeout));
  }
  const absl::Status failure = monitor_->status();
  return failure.ok() ? status : failure;
}

rpc::Agent* WorkerGroup::agent() const {
  std::lock_guard lock(mutex_);
  return agent_.get();
}

void WorkerGroup::tellPeers(const absl::Status& failure) {
  rpc::Agent* agent = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    // Who is not connected yet hears of it through the store.
    if (watch_ != nullptr && !std::exchange(toldStore_, true)) {
      losses_.post([watch = watch_, failure] { watch->tell(failure); });
    }
    if (std::exchange(toldAgent_, agent_ != nullptr)) return;
    agent = agent_.get();
  }
  if (agent == nullptr) return;
  const std::string frame = encodeLocalMessage(lossMessage(failure));
  const std::optional<PeerName> lost = peerOf(failure);
  for (int machine = 0; machine < contract_.numMachines; ++machine) {
    if (machine == contract_.machine) continue;
    if (lost && lost->machine == machine && lost->proc == contract_.proc) continue;
    agent->call(machine, kFailureMethod, {rpc::OutArray::fromVector(std::vector<char>(frame.begin(), frame.end()))},
                Deadline::after(kFarewellTellTimeout), nullptr, [](absl::Status) {});
  }
}

absl::Status WorkerGroup::farewell(Deadline deadline) {
  rpc::Agent* const current = agent();
  return current == nullptr ? absl::OkStatus() : current->farewell(deadline);
}

void WorkerGroup::close(const absl::Status& reason) {
  rpc::Agent* agent = nullptr;
  GroupBulk* bulk = nullptr;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    agent = agent_.get();
    bulk = bulk_.get();
  }
  // Idempotent, and the second caller waits for the first.
  if (agent != nullptr) agent->close(reason);
  if (bulk != nullptr) bulk->transport()->close(reason);
}

}  // namespace farhop::runtime
