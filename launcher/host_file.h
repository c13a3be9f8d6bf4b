// The hosts of a job.
//
// One machine per line, in order; `#` begins a comment. Forms:
//
//   HOST [PORT] [slots=N] [addr=IP] [user=NAME]     PORT is ssh's; addr is where its processes are reached
//   IP PORT NAME slots=N                            as dglrun writes it: ssh goes to IP
//   IP [PORT]                                       as DGL's ip_config.txt
//
// HOST is a name that ssh knows, an IPv4 or an IPv6 address (in brackets or not). In dglrun's form, and where it is
// 30050, PORT is the one on which DGL's own servers listen; it is not used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farhop::launcher {

inline constexpr int kMaxHosts = 1'024;
inline constexpr size_t kMaxHostFileBytes = size_t{4} << 20;

struct Host {
  std::string name;              // what ssh connects to
  std::string label;             // what people call it
  std::optional<uint16_t> port;  // of sshd
  std::string user;              // empty: ssh's own choice
  std::string address;           // for the trainers; empty: the one by which ssh came
  int slots = 0;                 // processes that it has room for; 0: not said
  int line = 0;                  // in the file
};

// InvalidArgument with `source` and the line's number for what is unclear: an unknown or repeated word, a number out of
// range, a host that is named twice, no host at all.
absl::StatusOr<std::vector<Host>> parseHosts(absl::string_view text, const std::string& source);
// The same of a file; NotFound when there is none.
absl::StatusOr<std::vector<Host>> readHostFile(const std::string& path);

bool isIpAddress(const std::string& text);

}  // namespace farhop::launcher
