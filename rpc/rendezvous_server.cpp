#include "rpc/rendezvous_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "base/executor.h"

namespace farhop::rpc {
namespace {

using TimePoint = Clock::time_point;
constexpr std::chrono::milliseconds kAcceptPause{100};  // when the process has no descriptors left

std::string remoteAddress(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  return absl::StartsWith(host, "::ffff:") ? absl::StrCat(host + 7, ":", port)
                                           : HostPort{host, static_cast<uint16_t>(std::atoi(port))}.text();
}

}  // namespace

StoreServerImpl::~StoreServerImpl() {
  const uint64_t one = 1;
  // An eventfd write of 1 cannot fail.
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
  if (thread_.joinable()) thread_.join();
}

void StoreServerImpl::run() {
  thread_ = std::thread([this] {
    setThreadName("fh-store");
    loop();
  });
}

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
    StoreConnection& connection = connections_[id];
    connection.id = id;
    connection.fd = std::move(socket);
    connection.peer.address = remoteAddress(address, length);
    strangers_.push_back(id);
    setTimer(connection, Clock::now() + options_.helloTimeout);
  }
}

void StoreServerImpl::setTimer(StoreConnection& connection, TimePoint at) {
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
    StoreConnection& connection = connections_.at(timers_.begin()->second);
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
  StoreConnection& connection = found->second;
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

void StoreServerImpl::watch(StoreConnection& connection, bool forInput) {
  if (connection.writable == forInput) return;
  connection.writable = forInput;
  epoll_event event{forInput ? EPOLLIN : EPOLLOUT, {.u64 = connection.id}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

void StoreServerImpl::onReadable(StoreConnection& connection) {
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
    StoreConnection& connection = found->second;
    // Whoever sends more while a get waits does not keep to the protocol.
    if (connection.parked && !connection.in.empty()) return close(id);
    if (!connection.out.empty() || !takeFrame(connection)) return;
  }
}

bool StoreServerImpl::takeFrame(StoreConnection& connection) {
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

void StoreServerImpl::flush(StoreConnection& connection) {
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
