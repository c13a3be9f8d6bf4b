#include "rpc/fabric_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/socket.h"

namespace farhop::rpc {
namespace {

// Whether a socket's address is the one that `name` holds.
bool isBoundTo(const sockaddr_storage& bound, std::string_view name) {
  sockaddr_storage wanted{};
  std::memcpy(&wanted, name.data(), std::min(name.size(), sizeof(wanted)));
  if (bound.ss_family != wanted.ss_family) return false;
  if (bound.ss_family == AF_INET && name.size() >= sizeof(sockaddr_in)) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(bound);
    const auto& b = reinterpret_cast<const sockaddr_in&>(wanted);
    return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  if (bound.ss_family == AF_INET6 && name.size() >= sizeof(sockaddr_in6)) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(bound);
    const auto& b = reinterpret_cast<const sockaddr_in6&>(wanted);
    return a.sin6_port == b.sin6_port && std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof(a.sin6_addr)) == 0;
  }
  return false;
}

// The numbers of this process's open descriptors.
std::vector<int> openDescriptors() {
  std::vector<int> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string text = entry.path().filename().string();
    int number = -1;
    std::from_chars(text.data(), text.data() + text.size(), number);
    if (number >= 0) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

absl::StatusOr<int> closeListenersOn(std::string_view name) {
  const FileDescriptor never(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!never.valid()) return errnoStatus("eventfd", errno);
  int closed = 0;
  for (int number : openDescriptors()) {
    if (!isListening(number)) continue;
    sockaddr_storage bound{};
    socklen_t bytes = sizeof(bound);
    if (::getsockname(number, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0 || !isBoundTo(bound, name)) continue;
    if (::dup3(never.get(), number, O_CLOEXEC) < 0) return errnoStatus("dup3", errno);
    ++closed;
  }
  return closed;
}

}  // namespace farhop::rpc
