#include "rpc/agent.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "rpc/agent_core.h"
#include "rpc/handshake.h"
#include "rpc/peer_link.h"
#include "rpc/stages.h"
#include "rpc/transport.h"

namespace farhop::rpc {

Responder::Responder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Responder::Responder(Responder&&) noexcept = default;
Responder& Responder::operator=(Responder&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}
Responder::~Responder() {
  if (impl_ == nullptr) return;
  impl_->answer(std::uncaught_exceptions() > 0
                    ? absl::ResourceExhaustedError("the request's handler failed, most likely for want of memory; the log "
                                                   "of its process says why")
                    : absl::InternalError("the request's handler gave no answer"));
}
void Responder::reply(std::vector<OutArray> arrays) { impl_->answer(std::move(arrays)); }
void Responder::fail(absl::Status status) {
  impl_->answer(status.ok() ? absl::InternalError("the request's handler failed without saying why") : std::move(status));
}

absl::StatusOr<std::vector<void*>> BytesSink::allocate(std::span<const size_t> sizes) {
  std::vector<void*> addresses;
  for (size_t bytes : sizes) {
    arrays.push_back(Bytes::allocate(bytes));
    addresses.push_back(arrays.back().data());
  }
  return addresses;
}

namespace {

absl::Status checkOptions(const AgentOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " of ", options.size, " is no rank"));
  }
  if (options.peers.size() != static_cast<size_t>(options.size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.peers.size(), " peer names for a group of ", options.size));
  }
  if (options.maxMessageBytes == 0 || options.maxArraysPerMessage == 0 || options.maxQueuedCallsPerPeer == 0 ||
      options.maxConnectsUnderWay < 1 || options.peerTimeout < kMinPeerTimeout) {
    return absl::InvalidArgumentError("a limit of the agent is 0, or peerTimeout is under 20 ms");
  }
  return absl::OkStatus();
}

// "uv://10.0.0.1:4321" -> "10.0.0.1:4321"; other schemes as they are.
std::string displayAddress(const std::string& address) {
  return address.rfind("uv://", 0) == 0 ? address.substr(5) : address;
}

class AgentImpl : public Agent {
 public:
  AgentImpl(AgentOptions options, std::unique_ptr<Transport> transport, std::string address)
      : core_(std::make_shared<AgentCore>(std::move(options))),
        transport_(std::move(transport)),
        address_(std::move(address)),
        heartbeat_([this] { beat(); }) {}
  ~AgentImpl() override { close(absl::CancelledError("the agent is destroyed")); }

  void handle(uint16_t method, Handler handler) override {
    auto shared = std::make_shared<const Handler>(std::move(handler));
    std::lock_guard lock(core_->mutex);
    core_->handlers[method].swap(shared);
  }

  void onPeerLost(PeerLost callback) override {
    std::lock_guard lock(core_->mutex);
    core_->peerLost.swap(callback);
  }

  std::string address() const override { return address_; }

  absl::Status connect(const std::vector<std::string>& addresses, Deadline deadline) override;
  void call(int peer, uint16_t method, std::vector<OutArray> arrays, Deadline deadline,
            std::shared_ptr<ReplySink> sink, Completion completion) override;
  absl::Status farewell(Deadline deadline) override;
  void close(absl::Status reason) override;
  PeerTraffic traffic() const override;

 private:
  using Links = std::vector<std::shared_ptr<PeerLink>>;

  Links links() const {
    std::lock_guard lock(core_->mutex);
    return links_;
  }
  absl::Status establish(const std::vector<std::string>& addresses, Deadline deadline);
  static void failAll(const Links& links, const absl::Status& reason);
  void beat();

  const std::shared_ptr<AgentCore> core_;
  const std::unique_ptr<Transport> transport_;
  const std::string address_;

  // Guarded by core_->mutex.
  Links links_;  // by rank; null for the own; empty before connect()
  std::shared_ptr<Handshakes> handshakes_;
  bool connectCalled_ = false, connecting_ = false;
  bool closing_ = false, closed_ = false;
  absl::Status closeReason_;

  std::thread heartbeat_;  // last: it uses the members above
};

absl::Status AgentImpl::connect(const std::vector<std::string>& addresses, Deadline deadline) {
  {
    std::lock_guard lock(core_->mutex);
    if (closing_) return closeReason_;
    if (std::exchange(connectCalled_, true)) return absl::FailedPreconditionError("connect() was called before");
    if (addresses.size() != static_cast<size_t>(core_->options.size)) {
      return absl::InvalidArgumentError(
          absl::StrCat(addresses.size(), " addresses for a group of ", core_->options.size));
    }
    connecting_ = true;
  }
  absl::Status status = establish(addresses, deadline);
  {
    std::lock_guard lock(core_->mutex);
    connecting_ = false;
    if (closing_) status = closeReason_;
  }
  core_->notifyProgress();
  return status;
}

absl::Status AgentImpl::establish(const std::vector<std::string>& addresses, Deadline deadline) {
  Links links(addresses.size());
  for (size_t rank = 0; rank < links.size(); ++rank) {
    if (static_cast<int>(rank) == core_->options.rank) continue;
    PeerName name = core_->options.peers[rank];
    name.address = displayAddress(addresses[rank]);
    links[rank] = std::make_shared<PeerLink>(core_, static_cast<int>(rank), std::move(name));
  }
  auto handshakes = std::make_shared<Handshakes>(core_, transport_.get(), links, addresses);
  {
    std::lock_guard lock(core_->mutex);
    if (closing_) return closeReason_;
    links_ = links;
    handshakes_ = handshakes;
  }
  absl::Status status = handshakes->run(deadline);
  // Closed in any case: TensorPipe's listener is not to be left to strangers.
  const absl::Status listener = transport_->closeListener(Deadline::after(std::chrono::seconds(5)));
  if (status.ok()) status = listener;
  if (!status.ok()) failAll(links, status);
  return status;
}

void AgentImpl::call(int peer, uint16_t method, std::vector<OutArray> arrays, Deadline deadline,
                     std::shared_ptr<ReplySink> sink, Completion completion) {
  absl::Status error;
  std::shared_ptr<PeerLink> link;
  {
    std::lock_guard lock(core_->mutex);
    if (peer < 0 || peer >= core_->options.size || peer == core_->options.rank) {
      error = absl::InvalidArgumentError(absl::StrCat("rank ", peer, " is no peer of rank ", core_->options.rank, " of ",
                                                      core_->options.size));
    } else if (closing_) {
      error = closeReason_;
    } else if (links_.empty()) {
      error = absl::FailedPreconditionError("call() before connect()");
    } else {
      link = links_[static_cast<size_t>(peer)];
    }
  }
  if (link != nullptr) {
    return link->call(method, std::move(arrays), deadline, std::move(sink), std::move(completion));
  }
  core_->timer.post([completion = std::move(completion), error] { completion(error); });
}

absl::Status AgentImpl::farewell(Deadline deadline) {
  const Links all = links();
  if (all.empty() && core_->options.size > 1) return absl::FailedPreconditionError("farewell() before connect()");
  for (const auto& link : all) {
    if (link != nullptr) link->beginFarewell();
  }
  reachStage("leave/said");
  std::unique_lock lock(core_->mutex);
  for (;;) {
    const uint64_t seen = core_->progress;
    lock.unlock();
    absl::Status waitingFor;
    for (const auto& link : all) {
      if (link == nullptr) continue;
      const std::optional<absl::Status> result = link->farewellResult();
      if (result && !result->ok()) return *result;
      if (!result && waitingFor.ok()) {
        waitingFor = withPeer(
            absl::DeadlineExceededError(absl::StrCat(describePeer(link->name()), " did not say farewell in time")),
            link->name());
      }
    }
    if (waitingFor.ok()) return absl::OkStatus();
    lock.lock();
    if (closing_) return closeReason_;
    if (deadline.expired()) return waitingFor;
    core_->changed.wait_until(lock, deadline.at(), [&] { return core_->progress != seen || closing_; });
  }
}

void AgentImpl::failAll(const Links& links, const absl::Status& reason) {
  for (const auto& link : links) {
    if (link != nullptr) link->fail(reason, false);
  }
}

void AgentImpl::close(absl::Status reason) {
  std::shared_ptr<Handshakes> handshakes;
  {
    std::unique_lock lock(core_->mutex);
    if (closing_) {
      core_->changed.wait(lock, [this] { return closed_; });
      return;
    }
    closing_ = true;
    closeReason_ = reason.ok() ? absl::CancelledError("the agent is closed") : std::move(reason);
    handshakes = handshakes_;
    core_->beat.notify_all();
  }
  core_->notifyProgress();
  if (handshakes != nullptr) handshakes->cancel(closeReason_);
  failAll(links(), closeReason_);
  {
    std::unique_lock lock(core_->mutex);
    core_->changed.wait(lock, [this] { return !connecting_; });
  }
  transport_->shutdown();
  heartbeat_.join();
  core_->timer.stop();
  core_->serving.shutdown();
  {
    std::lock_guard lock(core_->mutex);
    closed_ = true;
  }
  core_->notifyProgress();
}

PeerTraffic AgentImpl::traffic() const {
  PeerTraffic sum;
  for (const auto& link : links()) {
    if (link == nullptr) continue;
    const PeerTraffic one = link->traffic();
    sum.bytesSent += one.bytesSent;
    sum.bytesReceived += one.bytesReceived;
    sum.messagesSent += one.messagesSent;
    sum.callsSent += one.callsSent;
  }
  return sum;
}

void AgentImpl::beat() {
  setThreadName("fh-heartbeat");
  auto last = Clock::now();
  std::unique_lock lock(core_->mutex);
  while (!closing_) {
    std::chrono::milliseconds period = core_->beatPeriod;
    core_->beat.wait_until(lock, last + period, [&] { return closing_ || core_->beatPeriod < period; });
    if (closing_) return;
    if (Clock::now() < last + core_->beatPeriod) continue;
    const Links all = links_;
    lock.unlock();
    const auto now = Clock::now();
    // Stopped or starved for longer than a period, this process has not listened; that is not the peers' fault.
    const bool forgive = now - last > 2 * period;
    last = now;
    for (const auto& link : all) {
      if (link != nullptr) link->tick(now, forgive);
    }
    lock.lock();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::create(AgentOptions options) {
  FARHOP_RETURN_IF_ERROR(checkOptions(options));
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, makeTransport(options.transport));
  FARHOP_ASSIGN_OR_RETURN(std::string address, transport->listen(options.bindAddress));
  return std::make_unique<AgentImpl>(std::move(options), std::move(transport), std::move(address));
}

}  // namespace farhop::rpc
