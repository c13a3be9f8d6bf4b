// The flags by which commands name other machines: --hosts and how ssh reaches them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/ssh_command.h"

namespace CLI {
class App;
}

namespace farhop::launcher {

struct HostFlags {
  std::string hostFile, user, identity, farhop;
  int port = 0;
  std::vector<std::string> options;
};

// --hosts, --ssh-port, --ssh-user, --ssh-identity, --ssh-option, --farhop.
void addHostFlags(CLI::App& command, HostFlags& flags);

// InvalidArgument for an option without '=', or one that would make ssh ask.
absl::StatusOr<SshOptions> sshOptionsOf(const HostFlags& flags);
// Where farhop is on the hosts: as told, or where this one is.
std::string farhopOf(const HostFlags& flags);

// Absolute, without "." and "..", without a slash at the end.
absl::StatusOr<std::string> absolutePath(const std::string& path);

// For CLI11's check(): decimal digits without a leading zero.
std::function<std::string(const std::string&)> wholeNumber(int low, int high);

}  // namespace farhop::launcher
