// The store's server: one thread, epoll, a small state machine per connection.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <list>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "base/executor.h"
#include "rpc/byte_codec.h"
#include "rpc/rendezvous.h"
#include "rpc/rendezvous_protocol.h"

namespace farhop::rpc {
namespace {

using TimePoint = Clock::time_point;
constexpr std::chrono::milliseconds kAcceptPause{100};  // when the process has no descriptors left

struct Connection {
  uint64_t id = 0;
  FileDescriptor fd;
  PeerName peer;           // address from the socket; the rest from the hello
  bool welcome = false;    // said a good hello
  bool said = false;       // farewell
  bool closeWhenSent = false;
  bool writable = true;    // epoll waits for input (true) or output (false)
  std::string in, out;
  std::string waitingFor;  // the key of a parked get
  bool parked = false;
  TimePoint timer = TimePoint::max();  // hello timeout, or the parked get's deadline
};

std::string remoteAddress(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  return absl::StartsWith(host, "::ffff:") ? absl::StrCat(host + 7, ":", port)
                                           : HostPort{host, static_cast<uint16_t>(std::atoi(port))}.text();
}

class StoreServerImpl : public StoreServer {
 public:
  StoreServerImpl(FileDescriptor listener, FileDescriptor epoll, FileDescriptor wake, uint16_t port,
                  StoreServerOptions options)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        port_(port),
        maxStrangers_(std::max<size_t>(64, options_.maxConnections / 8)) {}

  ~StoreServerImpl() override {
    const uint64_t one = 1;
    // An eventfd write of 1 cannot fail.
    static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
    if (thread_.joinable()) thread_.join();
  }

  void run() {
    thread_ = std::thread([this] {
      setThreadName("fh-store");
      loop();
    });
  }
  uint16_t port() const override { return port_; }

 private:
  // The loop.
  void loop();
  void acceptAll();
  bool admit();
  void onReadable(Connection& connection);
  void process(uint64_t id);
  bool takeFrame(Connection& connection);
  void flush(Connection& connection);
  void watch(Connection& connection, bool forInput);
  void expire(TimePoint now);
  void setTimer(Connection& connection, TimePoint at);
  void close(uint64_t id);

  // The store.
  void onFrame(Connection& connection, StoreOperation operation, std::string_view body);
  void onHello(Connection& connection, const StorePrefix& prefix, std::string_view body);
  void onSet(Connection& connection, ByteReader in);
  void onGet(Connection& connection, ByteReader in);
  void onAdd(Connection& connection, ByteReader in);
  void reply(Connection& connection, const absl::Status& status, std::string_view value = {});
  absl::Status put(const std::string& key, std::string value);
  void failStore(const PeerName& vanished);
  size_t maxBodyBytes(const Connection& connection) const {
    return connection.welcome ? options_.maxKeyBytes + options_.maxValueBytes + 64 : kMaxStoreHelloBytes;
  }

  const StoreServerOptions options_;
  FileDescriptor listener_, epoll_, wake_;
  const uint16_t port_;
  const size_t maxStrangers_;
  std::thread thread_;

  // Only the loop's thread touches what follows.
  uint64_t nextId_ = 2;  // 0: listener, 1: wake
  std::unordered_map<uint64_t, Connection> connections_;
  std::list<uint64_t> strangers_;  // no hello yet, oldest first
  std::set<std::pair<TimePoint, uint64_t>> timers_;
  bool accepting_ = true;
  TimePoint acceptAgain_ = TimePoint::max();
  std::unordered_map<std::string, std::string> values_;
  size_t storedBytes_ = 0;
  std::multimap<std::string, uint64_t> waiting_;  // key -> connection with a parked get
  absl::Status failure_;
};

void StoreServerImpl::loop() {
  epoll_event events[64];
  for (;;) {
    TimePoint next = acceptAgain_;
    if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
    const int timeoutMs = next == TimePoint::max() ? -1 : Deadline(next).remainingMs();
    const int count = ::epoll_wait(epoll_.get(), events, 64, timeoutMs);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == 1) return;
      if (id == 0) {
        acceptAll();
        continue;
      }
      auto found = connections_.find(id);  // may have been closed by an earlier event of this round
      if (found == connections_.end()) continue;
      if ((events[i].events & EPOLLOUT) != 0) {
        flush(found->second);
        process(id);
      } else {
        onReadable(found->second);
      }
    }
    expire(Clock::now());
  }
}

// --- connections ---------------------------------------------------------------------------------------

bool StoreServerImpl::admit() {
  if (connections_.size() >= options_.maxConnections) return false;
  if (strangers_.size() >= maxStrangers_) close(strangers_.front());
  return true;
}

void StoreServerImpl::acceptAll() {
  for (int round = 0; round < 64; ++round) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    const int fd = ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // The listener stays readable; without a pause the loop would spin.
        epoll_event none{0, {.u64 = 0}};
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &none);
        accepting_ = false;
        acceptAgain_ = Clock::now() + kAcceptPause;
      }
      return;
    }
    FileDescriptor socket(fd);
    if (!admit()) continue;
    noticeSilence(fd);
    const uint64_t id = nextId_++;
    epoll_event event{EPOLLIN, {.u64 = id}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) continue;
    Connection& connection = connections_[id];
    connection.id = id;
    connection.fd = std::move(socket);
    connection.peer.address = remoteAddress(address, length);
    strangers_.push_back(id);
    setTimer(connection, Clock::now() + options_.helloTimeout);
  }
}

void StoreServerImpl::setTimer(Connection& connection, TimePoint at) {
  if (connection.timer != TimePoint::max()) timers_.erase({connection.timer, connection.id});
  connection.timer = at;
  if (at != TimePoint::max()) timers_.emplace(at, connection.id);
}

void StoreServerImpl::expire(TimePoint now) {
  if (!accepting_ && acceptAgain_ <= now) {
    epoll_event event{EPOLLIN, {.u64 = 0}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
    accepting_ = true;
    acceptAgain_ = TimePoint::max();
  }
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Connection& connection = connections_.at(timers_.begin()->second);
    if (!connection.parked) {
      close(connection.id);  // no hello in time
      continue;
    }
    reply(connection, absl::DeadlineExceededError(
                          absl::StrCat("nobody set the key '", connection.waitingFor, "' in time")));
  }
}

void StoreServerImpl::close(uint64_t id) {
  auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  setTimer(connection, TimePoint::max());
  if (!connection.welcome) strangers_.remove(id);
  if (connection.parked) {
    auto [first, last] = waiting_.equal_range(connection.waitingFor);
    auto entry = std::find_if(first, last, [id](const auto& one) { return one.second == id; });
    if (entry != last) waiting_.erase(entry);
  }
  const bool vanished = connection.welcome && !connection.said;
  const PeerName peer = connection.peer;
  connections_.erase(found);  // closing the descriptor takes it out of epoll
  if (vanished) failStore(peer);
}

void StoreServerImpl::watch(Connection& connection, bool forInput) {
  if (connection.writable == forInput) return;
  connection.writable = forInput;
  epoll_event event{forInput ? EPOLLIN : EPOLLOUT, {.u64 = connection.id}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

void StoreServerImpl::onReadable(Connection& connection) {
  const uint64_t id = connection.id;
  char buffer[16 * 1024];
  const ssize_t count = ::recv(connection.fd.get(), buffer, sizeof(buffer), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return close(id);
  connection.in.append(buffer, static_cast<size_t>(count));
  process(id);
}

// The requests that have arrived whole; the next only once the reply to the last has left.
void StoreServerImpl::process(uint64_t id) {
  for (;;) {
    auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    // Whoever sends more while a get waits does not keep to the protocol.
    if (connection.parked && !connection.in.empty()) return close(id);
    if (!connection.out.empty() || !takeFrame(connection)) return;
  }
}

bool StoreServerImpl::takeFrame(Connection& connection) {
  if (connection.parked || connection.closeWhenSent || connection.in.size() < kStorePrefixBytes) return false;
  const absl::StatusOr<StorePrefix> prefix = parseStorePrefix(std::string_view(connection.in).substr(0, kStorePrefixBytes));
  if (!prefix.ok() || prefix->bodyBytes > maxBodyBytes(connection)) {
    close(connection.id);
    return false;
  }
  const size_t frameBytes = kStorePrefixBytes + prefix->bodyBytes;
  if (connection.in.size() < frameBytes) return false;
  const std::string frame = connection.in.substr(0, frameBytes);
  connection.in.erase(0, frameBytes);
  const std::string_view body = std::string_view(frame).substr(kStorePrefixBytes);
  const uint64_t id = connection.id;
  if (!connection.welcome) {
    onHello(connection, *prefix, body);
  } else {
    onFrame(connection, prefix->operation, body);
  }
  return connections_.count(id) != 0;
}

void StoreServerImpl::flush(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t count = ::send(connection.fd.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return watch(connection, false);
    if (count < 0) {
      // Closed when the next read says so, not here: callers still hold the connection.
      connection.out.clear();
      return watch(connection, true);
    }
    connection.out.erase(0, static_cast<size_t>(count));
  }
  watch(connection, true);
  if (connection.closeWhenSent) ::shutdown(connection.fd.get(), SHUT_RDWR);  // reading then ends, and closes
}

// --- the store -----------------------------------------------------------------------------------------

void StoreServerImpl::reply(Connection& connection, const absl::Status& status, std::string_view value) {
  if (connection.parked) {
    auto [first, last] = waiting_.equal_range(connection.waitingFor);
    auto entry = std::find_if(first, last, [&](const auto& one) { return one.second == connection.id; });
    if (entry != last) waiting_.erase(entry);
    connection.parked = false;
  }
  if (connection.welcome) setTimer(connection, TimePoint::max());
  connection.out += storeFrame(StoreOperation::kReply, encodeStoreReply(status, value));
  flush(connection);
}

void StoreServerImpl::onHello(Connection& connection, const StorePrefix& prefix, std::string_view body) {
  if (prefix.operation != StoreOperation::kHello) return close(connection.id);
  absl::Status refusal;
  if (prefix.version != kStoreVersion) {
    refusal = absl::FailedPreconditionError(absl::StrCat("this process speaks version ", prefix.version,
                                                         " of the rendezvous protocol, the store version ",
                                                         kStoreVersion, "; run the same Farhop everywhere"));
  } else {
    const absl::StatusOr<StoreHello> hello = decodeStoreHello(body);
    if (!hello.ok()) return close(connection.id);
    if (hello->jobId != options_.jobId) {
      refusal = absl::PermissionDeniedError(absl::StrCat("this process belongs to job '", hello->jobId,
                                                         "', the store to job '", options_.jobId, "'"));
    } else if (!equalInConstantTime(hello->token, options_.token)) {
      refusal = absl::PermissionDeniedError(absl::StrCat("this process's token is not that of job '", options_.jobId, "'"));
    } else if (hello->proc != options_.proc) {
      refusal = absl::FailedPreconditionError(absl::StrCat("this process is of group ", hello->proc,
                                                           ", the store of group ", options_.proc,
                                                           "; check the master port"));
    } else {
      connection.peer.machine = hello->machine;
      connection.peer.proc = hello->proc;
      connection.welcome = true;
      strangers_.remove(connection.id);
    }
  }
  connection.closeWhenSent = !refusal.ok();
  std::string limits;
  ByteWriter writer(&limits);
  writer.u64(options_.maxKeyBytes);
  writer.u64(options_.maxValueBytes);
  reply(connection, refusal, limits);
}

void StoreServerImpl::onFrame(Connection& connection, StoreOperation operation, std::string_view body) {
  switch (operation) {
    case StoreOperation::kFarewell:
      connection.said = true;
      return close(connection.id);
    case StoreOperation::kSet:
    case StoreOperation::kGet:
    case StoreOperation::kAdd:
      if (!failure_.ok()) return reply(connection, failure_);
      if (operation == StoreOperation::kSet) return onSet(connection, ByteReader(body));
      if (operation == StoreOperation::kGet) return onGet(connection, ByteReader(body));
      return onAdd(connection, ByteReader(body));
    case StoreOperation::kHello:
    case StoreOperation::kReply: return close(connection.id);
  }
}

absl::Status StoreServerImpl::put(const std::string& key, std::string value) {
  auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = key.size() + value.size();
  if ((found == values_.end() && values_.size() >= options_.maxKeys) ||
      storedBytes_ - before + after > options_.maxTotalBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the rendezvous store is full (", values_.size(), " keys, ",
                                                     storedBytes_, " bytes)"));
  }
  storedBytes_ += after - before;
  values_[key] = std::move(value);
  return absl::OkStatus();
}

void StoreServerImpl::onSet(Connection& connection, ByteReader in) {
  const std::string key(in.string(options_.maxKeyBytes));
  const std::string value(in.string(options_.maxValueBytes));
  if (!in.ok() || in.remaining() > 0) return close(connection.id);
  const absl::Status status = put(key, value);
  reply(connection, status);
  if (!status.ok()) return;
  std::vector<uint64_t> waiters;
  for (auto [entry, last] = waiting_.equal_range(key); entry != last; ++entry) waiters.push_back(entry->second);
  for (uint64_t id : waiters) {
    auto found = connections_.find(id);
    if (found != connections_.end()) reply(found->second, absl::OkStatus(), value);
  }
}

void StoreServerImpl::onGet(Connection& connection, ByteReader in) {
  const std::string key(in.string(options_.maxKeyBytes));
  const uint32_t timeoutMs = in.u32();
  if (!in.ok() || in.remaining() > 0) return close(connection.id);
  auto found = values_.find(key);
  if (found != values_.end()) return reply(connection, absl::OkStatus(), found->second);
  connection.waitingFor = key;
  connection.parked = true;
  waiting_.emplace(key, connection.id);
  setTimer(connection, Clock::now() + std::chrono::milliseconds(timeoutMs));
}

void StoreServerImpl::onAdd(Connection& connection, ByteReader in) {
  const std::string key(in.string(options_.maxKeyBytes));
  const auto delta = static_cast<int64_t>(in.u64());
  if (!in.ok() || in.remaining() > 0) return close(connection.id);
  int64_t sum = 0;
  auto found = values_.find(key);
  if (found != values_.end()) {
    ByteReader old(found->second);
    sum = static_cast<int64_t>(old.u64());
    if (!old.ok() || old.remaining() > 0) {
      return reply(connection, absl::FailedPreconditionError(absl::StrCat("the key '", key, "' is no counter")));
    }
  }
  if (__builtin_add_overflow(sum, delta, &sum)) {
    return reply(connection, absl::OutOfRangeError(absl::StrCat("the counter '", key, "' would overflow")));
  }
  std::string value;
  ByteWriter(&value).u64(static_cast<uint64_t>(sum));
  const absl::Status status = put(key, value);
  reply(connection, status, value);
}

void StoreServerImpl::failStore(const PeerName& vanished) {
  if (!failure_.ok()) return;
  failure_ = withPeer(absl::UnavailableError(absl::StrCat(describePeer(vanished),
                                                          " left the rendezvous without a farewell; it has probably died")),
                      vanished);
  std::vector<uint64_t> waiters;
  for (const auto& [key, id] : waiting_) waiters.push_back(id);
  for (uint64_t id : waiters) {
    auto found = connections_.find(id);
    if (found != connections_.end()) reply(found->second, failure_);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::start(FileDescriptor listener, StoreServerOptions options) {
  FARHOP_ASSIGN_OR_RETURN(const uint16_t port, boundPort(listener.get()));
  FARHOP_RETURN_IF_ERROR(setNonBlocking(listener.get()));
  FARHOP_RETURN_IF_ERROR(setCloseOnExec(listener.get(), true));
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) return errnoStatus("starting the rendezvous store", errno);
  epoll_event onAccept{EPOLLIN, {.u64 = 0}}, onWake{EPOLLIN, {.u64 = 1}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener.get(), &onAccept) != 0 ||
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &onWake) != 0) {
    return errnoStatus("starting the rendezvous store", errno);
  }
  auto server = std::make_unique<StoreServerImpl>(std::move(listener), std::move(epoll), std::move(wake), port,
                                                  std::move(options));
  server->run();
  return server;
}

}  // namespace farhop::rpc
