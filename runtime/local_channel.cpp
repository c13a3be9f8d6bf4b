#include "runtime/local_channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/executor.h"
#include "rpc/stages.h"

namespace farhop::runtime {
namespace {

using Type = LocalMessage::Type;

constexpr size_t kMaxOutputBytes = size_t{4} << 20;
// What a process that ends still has to say reaches the socket's buffer within this time, or never.
constexpr std::chrono::milliseconds kFlushTimeout{500};
// How long a process whose wait is over in vain listens to those who may know better why.
constexpr std::chrono::milliseconds kOthersTimeout{500};

}  // namespace

std::string placeOfPeer(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {};
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0) return absl::StrCat("pid ", credentials.pid);
  return absl::StrCat("pid ", credentials.pid, " on ", host);
}

std::string LocalChannel::socketName(const LaunchContract& contract) {
  if (contract.procsPerMachine == 1) return {};
  // A long job id would not fit into a socket's name; its end is the part that differs between jobs.
  std::string job = contract.jobId;
  if (job.size() > 60) job = job.substr(job.size() - 60);
  return absl::StrCat("farhop-", ::geteuid(), "-", job, "-m", contract.machine);
}

LocalChannel::LocalChannel(const LaunchContract& contract, FailureMonitor* monitor)
    : contract_(contract),
      monitor_(monitor),
      refusals_(absl::StrCat("the local channel of machine ", contract.machine)),
      members_(static_cast<size_t>(contract.procsPerMachine)) {}

absl::StatusOr<std::unique_ptr<LocalChannel>> LocalChannel::open(const LaunchContract& contract,
                                                                 FailureMonitor* monitor, Deadline deadline) {
  std::unique_ptr<LocalChannel> channel(new LocalChannel(contract, monitor));
  LocalChannel* const raw = channel.get();
  channel->listenerId_ = monitor->addListener([raw](const absl::Status&) {
    // The lock orders this after a waiter's look at the monitor, so that no wake-up is lost.
    { std::lock_guard lock(raw->mutex_); }
    raw->changed_.notify_all();
  });
  if (contract.procsPerMachine == 1) return channel;

  channel->wakeup_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!channel->wakeup_.valid()) return errnoStatus("eventfd", errno);
  FARHOP_RETURN_IF_ERROR(channel->isHub() ? channel->listen() : channel->connect(deadline));
  channel->thread_ = std::thread([raw] { raw->run(); });
  return channel;
}

LocalChannel::~LocalChannel() {
  monitor_->removeListener(listenerId_);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    wake();
    thread_.join();
  }
}

void LocalChannel::wake() const {
  const uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
}

void LocalChannel::run() {
  setThreadName("farhop/local");
  std::vector<absl::Status> failures;
  {
    // Frames that came along with the welcome are here already: no poll would announce them.
    std::lock_guard lock(mutex_);
    for (auto& connection : connections_) readFrom(*connection, failures);
  }
  for (bool goOn = true; goOn;) {
    changed_.notify_all();
    for (const absl::Status& failure : failures) monitor_->record(failure);
    failures.clear();
    goOn = step(failures);
  }
  changed_.notify_all();
}

// One round: what has arrived, then poll. Returns false when it is time to end.
bool LocalChannel::step(std::vector<absl::Status>& failures) {
  std::vector<pollfd> entries;
  int timeoutMs = 3'600'000;
  bool accepting = false;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      const Deadline last = Deadline::after(kFlushTimeout);
      for (auto& connection : connections_) {
        while (!connection->output.empty() && !connection->broken && !last.expired()) {
          pollfd entry{connection->fd.get(), POLLOUT, 0};
          (void)::poll(&entry, 1, last.remainingMs());
          flush(*connection);
        }
      }
      connections_.clear();
      listener_.reset();
      return false;
    }
    for (auto& connection : connections_) {
      const short events = static_cast<short>(POLLIN | (connection->output.empty() ? 0 : POLLOUT));
      entries.push_back({connection->fd.get(), events, 0});
      if (connection->proc < 0) timeoutMs = std::min(timeoutMs, connection->hello.remainingMs());
      if (connection->broken) timeoutMs = 0;
    }
    entries.push_back({wakeup_.get(), POLLIN, 0});
    if (listener_.valid()) {
      accepting = acceptAgain_.expired();
      // Last. Without descriptors it would be readable all the time.
      if (accepting) entries.push_back({listener_.get(), POLLIN, 0});
      if (!accepting) timeoutMs = std::min(timeoutMs, acceptAgain_.remainingMs());
    }
  }
  (void)::poll(entries.data(), entries.size(), timeoutMs);
  uint64_t count = 0;
  (void)!::read(wakeup_.get(), &count, sizeof(count));

  std::lock_guard lock(mutex_);
  // connections_ grows only below, so entries and connections match by index.
  const size_t known = entries.size() - 1 - (accepting ? 1 : 0);
  for (size_t i = 0; i < known; ++i) {
    Connection& connection = *connections_[i];
    if (entries[i].revents & POLLOUT) flush(connection);
    readFrom(connection, failures);
    if (connection.proc < 0 && connection.hello.expired()) connection.broken = true;
  }
  if (accepting) acceptAll();
  for (auto& connection : connections_) {
    if (connection->broken) connectionEnded(*connection, failures);
  }
  std::erase_if(connections_, [](const auto& connection) { return connection->broken; });
  return true;
}

void LocalChannel::readFrom(Connection& connection, std::vector<absl::Status>& failures) {
  bool ended = connection.broken;
  for (;;) {
    while (!connection.input.empty()) {
      absl::StatusOr<std::optional<LocalMessage>> message = takeLocalMessage(connection.input);
      if (!message.ok()) {
        connection.broken = true;
        return;
      }
      if (!message->has_value()) break;
      isHub() ? handleAsHub(connection, **message, failures) : apply(**message, failures);
      if (connection.broken) return;
    }
    if (ended) break;
    char buffer[16'384];
    const ssize_t n = ::recv(connection.fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n > 0) {
      connection.input.append(buffer, static_cast<size_t>(n));
      bytesReceived_ += static_cast<size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else {
      ended = true;
    }
  }
  connection.broken = true;
}

void LocalChannel::apply(const LocalMessage& message, std::vector<absl::Status>& failures) {
  const bool known = message.proc >= 0 && message.proc < contract_.procsPerMachine;
  switch (message.type) {
    case Type::kAddress:
      if (known) members_[static_cast<size_t>(message.proc)].address = message.text;
      return;
    case Type::kReady:
      if (known) members_[static_cast<size_t>(message.proc)].ready = true;
      return;
    case Type::kLeave:
      if (known) members_[static_cast<size_t>(message.proc)].left = true;
      return;
    case Type::kDead:
      if (!known) return;
      members_[static_cast<size_t>(message.proc)].dead = true;
      if (!message.text.empty()) members_[static_cast<size_t>(message.proc)].address = message.text;
      failures.push_back(deathOf(message.proc));
      return;
    case Type::kLost: {
      if (losses_.empty()) losses_.push_back(message);
      failures.push_back(failureOf(message));
      return;
    }
    case Type::kSet:  // the answer to this process's question, or a client's to the hub
      (void)keep(message.key, message.value);
      return;
    case Type::kGet:
    case Type::kHello:
    case Type::kWelcome:
    case Type::kRefused:
      return;
  }
}

void LocalChannel::connectionEnded(Connection& connection, std::vector<absl::Status>& failures) {
  if (connection.proc < 0) return;
  Member& member = members_[static_cast<size_t>(connection.proc)];
  if (!isHub() && member.left) {
    // The hub stays until everyone has left or its deadline passed: nobody is left to wait for.
    for (Member& other : members_) other.left = true;
  }
  if (member.left || member.dead) return;
  member.dead = true;
  failures.push_back(deathOf(connection.proc));
  if (!isHub()) return;
  LocalMessage message;
  message.type = Type::kDead;
  message.machine = contract_.machine;
  message.proc = connection.proc;
  message.text = member.address;
  publish(message, &connection);
}

absl::Status LocalChannel::deathOf(int proc) const {
  const PeerName peer{contract_.machine, proc, members_[static_cast<size_t>(proc)].address};
  return withPeer(absl::UnavailableError(absl::StrCat("lost ", describePeer(peer), ": the process ended")), peer);
}

void LocalChannel::publish(const LocalMessage& message, const Connection* except) {
  const std::string frame = encodeLocalMessage(message);
  for (auto& connection : connections_) {
    if (connection.get() != except && connection->proc >= 0) send(*connection, frame);
  }
}

// Straight into the socket where it fits: what a process says in its last moments must not wait for a thread.
void LocalChannel::send(Connection& connection, const std::string& frame) {
  if (connection.broken) return;
  if (connection.output.size() + frame.size() > kMaxOutputBytes) {
    connection.broken = true;
    wake();
    return;
  }
  const bool wasEmpty = connection.output.empty();
  connection.output += frame;
  if (wasEmpty) flush(connection);
  if (!connection.output.empty()) wake();
}

void LocalChannel::flush(Connection& connection) {
  while (!connection.output.empty()) {
    const ssize_t n =
        ::send(connection.fd.get(), connection.output.data(), connection.output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      connection.output.erase(0, static_cast<size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else {
      // The end shows on the reading side, after what the peer has still said.
      connection.output.clear();
      return;
    }
  }
}

void LocalChannel::announceAddress(const std::string& address) {
  LocalMessage message;
  message.type = Type::kAddress;
  message.machine = contract_.machine;
  message.proc = contract_.proc;
  message.text = address;
  std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(contract_.proc)].address = address;
  publish(message, nullptr);
}

void LocalChannel::announceReady() {
  LocalMessage message;
  message.type = Type::kReady;
  message.machine = contract_.machine;
  message.proc = contract_.proc;
  {
    std::lock_guard lock(mutex_);
    members_[static_cast<size_t>(contract_.proc)].ready = true;
    publish(message, nullptr);
  }
  changed_.notify_all();
}

absl::Status LocalChannel::waitReady(int proc, Deadline deadline) const {
  if (proc < 0 || proc >= contract_.procsPerMachine) {
    return absl::InvalidArgumentError(absl::StrCat("there is no ", "process ", proc, " on this machine"));
  }
  std::unique_lock lock(mutex_);
  const Member& member = members_[static_cast<size_t>(proc)];
  changed_.wait_until(lock, deadline.at(),
                      [&] { return member.ready || member.dead || member.left || monitor_->failed(); });
  if (absl::Status failure = monitor_->status(); !failure.ok()) return failure;
  // Of one that died of another's loss, that loss is the news; the monitor may be about to hear of it.
  if (!losses_.empty()) return failureOf(losses_.front());
  if (member.dead) return deathOf(proc);
  if (member.ready) return absl::OkStatus();
  if (member.left) {
    return absl::UnavailableError(absl::StrCat("process ", proc, " of machine ", contract_.machine,
                                               " left before it was ready; its log says why"));
  }
  // The hub knows where everyone runs that has said hello.
  if (isHub() && member.address.empty() && proc != contract_.proc) {
    const PeerName peer{contract_.machine, proc, ""};
    return withPeer(absl::DeadlineExceededError(absl::StrCat(describePeer(peer), " never came to the machine's local "
                                                             "channel; ", kNeverCameAdvice)),
                    peer);
  }
  // It waits for somebody itself, and its deadline passes at about the same time: then it says for whom.
  lock.unlock();
  if (monitor_->waitFor(Deadline::after(kOthersTimeout))) return monitor_->status();
  return absl::DeadlineExceededError(absl::StrCat("process ", proc, " of machine ", contract_.machine,
                                                  " was not ready in time; its log says what it waits for"));
}

absl::Status LocalChannel::waitAllReady(Deadline deadline) const {
  for (int proc = 0; proc < contract_.procsPerMachine; ++proc) {
    FARHOP_RETURN_IF_ERROR(waitReady(proc, deadline));
  }
  return absl::OkStatus();
}

void LocalChannel::reportLost(const absl::Status& failure) {
  const LocalMessage message = lossMessage(failure);
  std::lock_guard lock(mutex_);
  if (!losses_.empty()) return;
  losses_.push_back(message);
  publish(message, nullptr);
}

bool LocalChannel::everyoneGone() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.left || member.dead; });
}

size_t LocalChannel::bytesReceived() const {
  std::lock_guard lock(mutex_);
  return bytesReceived_;
}

absl::Status LocalChannel::leave(Deadline deadline) {
  LocalMessage message;
  message.type = Type::kLeave;
  message.machine = contract_.machine;
  message.proc = contract_.proc;
  std::unique_lock lock(mutex_);
  members_[static_cast<size_t>(contract_.proc)].left = true;
  publish(message, nullptr);
  lock.unlock();
  rpc::reachStage("leave/machine");
  lock.lock();
  changed_.wait_until(lock, deadline.at(), [&] { return everyoneGone() || monitor_->failed(); });
  absl::Status result = monitor_->status();
  // What the thread has applied but the monitor is only about to hear of.
  if (result.ok() && !losses_.empty()) result = failureOf(losses_.front());
  for (size_t proc = 0; result.ok() && proc < members_.size(); ++proc) {
    if (members_[proc].dead) result = deathOf(static_cast<int>(proc));
  }
  if (result.ok() && !everyoneGone()) {
    std::string missing;
    for (size_t proc = 0; proc < members_.size(); ++proc) {
      if (!members_[proc].left && !members_[proc].dead) {
        absl::StrAppend(&missing, missing.empty() ? "" : ", ", "process ", proc);
      }
    }
    result = absl::DeadlineExceededError(
        absl::StrCat("left machine ", contract_.machine, " without the farewell of ", missing));
  }
  stopping_ = true;
  lock.unlock();
  if (wakeup_.valid()) wake();
  return result;
}

}  // namespace farhop::runtime
