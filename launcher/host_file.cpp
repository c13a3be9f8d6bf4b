#include "launcher/host_file.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace farhop::launcher {
namespace {

constexpr int kDglServerPort = 30'050;
constexpr size_t kMaxNameBytes = 255;
constexpr int kMaxSlots = 1'024;

absl::Status wrong(absl::string_view message) {
  return absl::InvalidArgumentError(message);
}

std::string withoutBrackets(const std::string& text) {
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  return bracketed ? text.substr(1, text.size() - 2) : text;
}

bool isNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// A name that may stand on ssh's command line.
bool isHostName(const std::string& text) {
  return !text.empty() && text.size() <= kMaxNameBytes && !isNumber(text) &&
         (absl::ascii_isalnum(static_cast<unsigned char>(text[0])) || text[0] == '_') &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
         });
}

// An IPv6 address may name the interface of a link: fe80::1%eth0.
bool isHost(const std::string& text) {
  return isHostName(text) || isIpAddress(text.substr(0, text.find('%')));
}

absl::StatusOr<int> number(const std::string& what, const std::string& text, int high) {
  int value = 0;
  if (isNumber(text) && absl::SimpleAtoi(text, &value) && value >= 1 && value <= high) return value;
  return wrong(absl::StrCat(what, " '", text, "': it must be a whole number from 1 to ", high));
}

// A word NAME=VALUE.
absl::Status takeSetting(const std::string& word, Host& host) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "slots" && host.slots == 0) {
    FARHOP_ASSIGN_OR_RETURN(host.slots, number("slots", value, kMaxSlots));
    return absl::OkStatus();
  }
  if (name == "addr" && host.address.empty()) {
    host.address = withoutBrackets(value);
    if (isIpAddress(host.address)) return absl::OkStatus();
    return wrong(absl::StrCat("addr '", value, "': it must be an IP address"));
  }
  if (name == "user" && host.user.empty()) {
    host.user = value;
    if (isHostName(value)) return absl::OkStatus();
    return wrong(absl::StrCat("user '", value, "': it must be a user's name"));
  }
  const bool known = name == "slots" || name == "addr" || name == "user";
  return wrong(absl::StrCat("'", word, "': ", known ? "it is given twice" : "only slots=N, addr=IP and user=NAME are known"));
}

absl::StatusOr<Host> parseLine(const std::vector<std::string>& words) {
  Host host;
  host.name = withoutBrackets(words.front());
  if (!isHost(host.name)) {
    return wrong(absl::StrCat("'", words.front(), "' is no host: a line is HOST [PORT] [slots=N] [addr=IP] [user=NAME]"));
  }
  host.label = host.name;
  std::vector<std::string> plain;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].find('=') != std::string::npos) {
      FARHOP_RETURN_IF_ERROR(takeSetting(words[i], host));
    } else if (host.slots > 0 || !host.address.empty() || !host.user.empty()) {
      return wrong(absl::StrCat("'", words[i], "': a port comes before slots=, addr= and user="));
    } else {
      plain.push_back(words[i]);
    }
  }
  if (plain.empty()) return host;
  FARHOP_ASSIGN_OR_RETURN(const int port, number("port", plain[0], 65'535));
  if (plain.size() == 1) {
    if (port != kDglServerPort || !isIpAddress(host.name)) host.port = static_cast<uint16_t>(port);
    return host;
  }
  if (plain.size() > 2 || !isIpAddress(host.name) || host.slots == 0 || !isHostName(plain[1])) {
    return wrong(absl::StrCat("'", plain[1], "' is not understood: a line is HOST [PORT] [slots=N] [addr=IP] [user=NAME], or IP PORT NAME slots=N"));
  }
  host.label = plain[1];
  if (host.address.empty()) host.address = host.name;
  return host;
}

}  // namespace

bool isIpAddress(const std::string& text) {
  in6_addr ignored;
  return ::inet_pton(AF_INET, text.c_str(), &ignored) == 1 || ::inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
}

absl::StatusOr<std::vector<Host>> parseHosts(absl::string_view text, const std::string& source) {
  std::vector<Host> hosts;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const auto at = [&](const absl::Status& status) { return annotate(status, absl::StrCat(source, " line ", number)); };
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    absl::StatusOr<Host> host = parseLine(words);
    if (!host.ok()) return at(host.status());
    host->line = number;
    for (const Host& other : hosts) {
      if (other.name != host->name || other.port != host->port || other.user != host->user) continue;
      return at(wrong(absl::StrCat(host->name, " is in line ", other.line, " already; a machine's processes are --procs")));
    }
    if (hosts.size() == kMaxHosts) return at(wrong(absl::StrCat("at most ", kMaxHosts, " hosts are supported")));
    hosts.push_back(*std::move(host));
  }
  if (hosts.empty()) return wrong(absl::StrCat(source, " names no host"));
  return hosts;
}

absl::StatusOr<std::vector<Host>> readHostFile(const std::string& path) {
  absl::StatusOr<std::string> text = readFile(path);
  if (!text.ok()) return annotate(text.status(), "--hosts");
  if (text->size() > kMaxHostFileBytes) return wrong(absl::StrCat("--hosts ", path, " is too long for a list of hosts"));
  auto hosts = parseHosts(*text, path);
  return hosts.ok() ? std::move(hosts) : annotate(hosts.status(), "--hosts");
}

}  // namespace farhop::launcher
