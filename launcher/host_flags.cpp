#include "launcher/host_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "launcher/local_backend.h"

namespace farhop::launcher {

void addHostFlags(CLI::App& command, HostFlags& flags) {
  command.add_option("--hosts,--hostfile", flags.hostFile,
                     "Host file; a line is HOST [PORT] [slots=N] [addr=IP] [user=NAME] (addr: where the trainers meet, when "
                     "it is not where ssh goes). DGL's and dglrun's lines are understood too")
      ->type_name("FILE");
  command.add_option("--ssh-port", flags.port, "Port of sshd, where the host file names none")
      ->check(wholeNumber(1, 65'535))
      ->type_name("PORT");
  command.add_option("--ssh-user", flags.user, "User on the hosts, where the host file names none")->type_name("NAME");
  command.add_option("--ssh-identity", flags.identity, "Key file for ssh")->type_name("FILE");
  command.add_option("--ssh-option", flags.options,
                     "Option for ssh, as after its -o; may be repeated. Host keys are checked, unless this says "
                     "StrictHostKeyChecking=no or =accept-new; ssh never asks (BatchMode), and gives up after ConnectTimeout=10")
      ->type_name("NAME=VALUE");
  command.add_option("--farhop", flags.farhop, "This program's path on the hosts; without it the path that it has here")
      ->type_name("PATH");
}

absl::StatusOr<SshOptions> sshOptionsOf(const HostFlags& flags) {
  SshOptions options;
  if (flags.port != 0) options.port = static_cast<uint16_t>(flags.port);
  options.user = flags.user;
  if (absl::StartsWith(flags.user, "-")) return absl::InvalidArgumentError("--ssh-user: that is no user's name");
  if (!flags.identity.empty()) {
    FARHOP_ASSIGN_OR_RETURN(options.identity, absolutePath(flags.identity));
  }
  for (const std::string& option : flags.options) {
    const size_t end = option.find_first_of("= ");
    const std::string name = absl::AsciiStrToLower(option.substr(0, end));
    if (end == std::string::npos || name.empty() || name[0] == '-') {
      return absl::InvalidArgumentError(absl::StrCat("--ssh-option '", option.substr(0, 100), "': it must be NAME=VALUE"));
    }
    if (name == "batchmode") {
      return absl::InvalidArgumentError("--ssh-option BatchMode: it is always yes, since nobody can answer on all machines");
    }
    options.options.push_back(option);
  }
  return options;
}

std::string farhopOf(const HostFlags& flags) {
  return flags.farhop.empty() ? ownProgram() : flags.farhop;
}

absl::StatusOr<std::string> absolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return absl::UnavailableError(absl::StrCat("path ", path, ": ", error.message()));
  std::string text = absolute.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::function<std::string(const std::string&)> wholeNumber(int low, int high) {
  return [low, high](const std::string& text) -> std::string {
    const bool digits = !text.empty() && text.size() <= 9 &&
                        text.find_first_not_of("0123456789") == std::string::npos &&
                        (text.size() == 1 || text[0] != '0');
    if (digits && std::stoi(text) >= low && std::stoi(text) <= high) return "";
    return absl::StrCat("'", text, "' is not a whole number from ", low, " to ", high);
  };
}

}  // namespace farhop::launcher
