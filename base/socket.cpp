#include "base/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace farhop {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

absl::StatusOr<AddressList> resolve(const HostPort& address, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int code = ::getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(), port.c_str(), &hints, &list);
  if (code != 0) {
    return absl::NotFoundError(absl::StrCat("cannot resolve host '", address.host, "': ", ::gai_strerror(code)));
  }
  return AddressList(list, &::freeaddrinfo);
}

absl::Status waitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int n = ::poll(&entry, 1, deadline.remainingMs());
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return errnoStatus("poll", errno);
    if (deadline.expired()) return absl::DeadlineExceededError("timed out");
  }
}

// Finishes a non-blocking connect.
absl::Status finishConnect(int fd, const sockaddr* address, socklen_t length, Deadline deadline) {
  if (::connect(fd, address, length) == 0) return absl::OkStatus();
  if (errno == EAGAIN) return errnoStatus("connect", ECONNREFUSED);  // a full Unix backlog
  if (errno != EINPROGRESS) return errnoStatus("connect", errno);
  FARHOP_RETURN_IF_ERROR(waitFor(fd, POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : errnoStatus("connect", error);
}

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

absl::StatusOr<AbstractAddress> abstractAddress(const std::string& name) {
  AbstractAddress result;
  if (name.size() > 100) return absl::InvalidArgumentError(absl::StrCat("socket name too long: ", name));
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

template <typename Attempt>
absl::StatusOr<FileDescriptor> retryUntil(Deadline deadline, bool retry, const std::string& what, Attempt attempt) {
  for (int pauseMs = 5;; pauseMs = std::min(pauseMs * 2, 200)) {
    absl::StatusOr<FileDescriptor> result = attempt();
    if (result.ok()) return result;
    if (absl::IsNotFound(result.status()) && what.rfind("@", 0) != 0) return result;  // a name that does not resolve
    if (!retry || deadline.expired()) {
      return annotate(result.status(), absl::StrCat("connecting to ", what));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(pauseMs, std::max(1, deadline.remainingMs()))));
  }
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string HostPort::text() const {
  if (host.find(':') != std::string::npos) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<FileDescriptor> listenTcp(const HostPort& address, int backlog) {
  FARHOP_ASSIGN_OR_RETURN(AddressList list, resolve(address, true));
  absl::Status last = absl::UnavailableError("no address to listen on");
  // IPv6 first: with IPV6_V6ONLY off, one socket takes both families.
  for (int family : {AF_INET6, AF_INET}) {
    for (addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family != family) continue;
      FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!fd.valid()) {
        last = errnoStatus("socket", errno);
        continue;
      }
      const int on = 1, off = 0;
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
      if (::bind(fd.get(), entry->ai_addr, entry->ai_addrlen) == 0 && ::listen(fd.get(), backlog) == 0) return fd;
      const int error = errno;
      const std::string where = absl::StrCat("listening on ", address.host.empty() ? "*" : address.host, " port ",
                                             address.port);
      if (error == EADDRINUSE) {
        return absl::AlreadyExistsError(absl::StrCat(where, ": the port is in use by another program; choose another"));
      }
      last = errnoStatus(where, error);
    }
  }
  return last;
}

absl::StatusOr<uint16_t> boundPort(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return errnoStatus("getsockname", errno);
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return absl::InvalidArgumentError("not a TCP socket");
}

bool isListening(int fd) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

absl::StatusOr<FileDescriptor> connectTcp(const HostPort& address, Deadline deadline, bool retry) {
  return retryUntil(deadline, retry, address.text(), [&]() -> absl::StatusOr<FileDescriptor> {
    FARHOP_ASSIGN_OR_RETURN(AddressList list, resolve(address, false));
    absl::Status last = absl::UnavailableError("no address");
    for (addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
      FileDescriptor fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!fd.valid()) {
        last = errnoStatus("socket", errno);
        continue;
      }
      last = finishConnect(fd.get(), entry->ai_addr, entry->ai_addrlen, deadline);
      if (last.ok()) {
        const int on = 1;
        ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return fd;
      }
    }
    return last;
  });
}

absl::StatusOr<std::string> localAddressTowards(const HostPort& address) {
  FARHOP_ASSIGN_OR_RETURN(AddressList list, resolve(address, false));
  absl::Status last = absl::UnavailableError("no address");
  for (addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    FileDescriptor fd(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd.valid() || ::connect(fd.get(), entry->ai_addr, entry->ai_addrlen) != 0) {
      last = errnoStatus(absl::StrCat("no route to ", address.text()), errno);
      continue;
    }
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &length);
    char host[NI_MAXHOST];
    if (::getnameinfo(reinterpret_cast<sockaddr*>(&local), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) == 0) {
      return std::string(host);
    }
  }
  return last;
}

absl::StatusOr<FileDescriptor> listenAbstract(const std::string& name, int backlog) {
  FARHOP_ASSIGN_OR_RETURN(AbstractAddress address, abstractAddress(name));
  FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errnoStatus("socket", errno);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address.address), address.length) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      return absl::AlreadyExistsError(absl::StrCat("another process of this machine already listens as '", name, "'"));
    }
    return errnoStatus(absl::StrCat("listening as '", name, "'"), error);
  }
  return fd;
}

absl::StatusOr<FileDescriptor> connectAbstract(const std::string& name, Deadline deadline, bool retry) {
  FARHOP_ASSIGN_OR_RETURN(AbstractAddress address, abstractAddress(name));
  return retryUntil(deadline, retry, absl::StrCat("@", name), [&]() -> absl::StatusOr<FileDescriptor> {
    FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return errnoStatus("socket", errno);
    FARHOP_RETURN_IF_ERROR(
        finishConnect(fd.get(), reinterpret_cast<sockaddr*>(&address.address), address.length, deadline));
    return fd;
  });
}

bool sameUser(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.uid == ::geteuid();
}

absl::Status sendAll(int fd, const void* data, size_t bytes, Deadline deadline) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FARHOP_RETURN_IF_ERROR(waitFor(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return errnoStatus("send", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status receiveAll(int fd, void* data, size_t bytes, Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(fd, at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0) {
      return absl::UnavailableError("connection closed by the other side");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FARHOP_RETURN_IF_ERROR(waitFor(fd, POLLIN, deadline));
    } else if (errno != EINTR) {
      return errnoStatus("receive", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status setNonBlocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return errnoStatus("fcntl", errno);
  return absl::OkStatus();
}

absl::Status setCloseOnExec(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0 || ::fcntl(fd, F_SETFD, on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC) != 0) {
    return errnoStatus("fcntl", errno);
  }
  return absl::OkStatus();
}

}  // namespace farhop
