#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/agent.h"

namespace farhop::launcher {
namespace {

struct OwnAddress {
  std::string interface, text;
  bool v6 = false;
};

// Text of an address that other machines can use; empty for loopback, link-local and other families.
std::string usableText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    const uint32_t host = ntohl(v4.s_addr);
    if (host >> 24 == 127 || host >> 16 == 0xA9FE) return "";
    ::inet_ntop(AF_INET, &v4, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_LINKLOCAL(&v6)) return "";
    ::inet_ntop(AF_INET6, &v6, text, sizeof(text));
  }
  return text;
}

absl::StatusOr<std::vector<OwnAddress>> ownAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return errnoStatus("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<OwnAddress> result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string text = usableText(entry->ifa_addr);
    if (text.empty() || (entry->ifa_flags & IFF_UP) == 0) continue;
    result.push_back({entry->ifa_name, text, entry->ifa_addr->sa_family == AF_INET6});
  }
  std::stable_partition(result.begin(), result.end(), [](const OwnAddress& a) { return !a.v6; });
  return result;
}

// The address by which the ssh client reached this machine: SSH_CONNECTION is "client port server port".
std::string addressOfSsh() {
  const char* text = std::getenv("SSH_CONNECTION");
  if (text == nullptr) return "";
  const std::vector<std::string> fields = absl::StrSplit(text, ' ');
  return fields.size() == 4 ? fields[2] : "";
}

}  // namespace

absl::StatusOr<std::string> findOwnAddress(const std::string& interface) {
  FARHOP_ASSIGN_OR_RETURN(const std::vector<OwnAddress> addresses, ownAddresses());
  // An inherited SSH_CONNECTION may be another machine's.
  const std::string ssh = addressOfSsh();
  for (const OwnAddress& address : addresses) {
    if (interface.empty() && address.text == ssh) return ssh;
  }
  std::vector<std::string> names;
  for (const OwnAddress& address : addresses) {
    if (interface.empty() || address.interface == interface) return address.text;
    names.push_back(absl::StrCat(address.interface, " (", address.text, ")"));
  }
  if (interface.empty()) {
    return absl::NotFoundError("this machine has no address that other machines can reach; give --master-addr");
  }
  return absl::NotFoundError(absl::StrCat("--iface ", interface, ": no such network interface with an address here; there ",
                                          names.empty() ? "is none" : absl::StrCat("are ", absl::StrJoin(names, ", "))));
}

}  // namespace farhop::launcher
