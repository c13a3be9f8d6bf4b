#include "launcher/ssh_command.h"

#include "absl/strings/match.h"

namespace farhop::launcher {
namespace {

constexpr char kSshProgram[] = "/usr/bin/ssh";
constexpr int kSshFailed = 255, kNotExecutable = 126, kNotFound = 127;

struct Advice {
  const char* said;
  const char* advice;
};

constexpr Advice kAdvice[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED",
     "its key is not the one in known_hosts: if the machine was reinstalled, remove the old key with ssh-keygen -R"},
    {"Host key verification failed",
     "its key is not in known_hosts: connect once by hand and compare it, or give --ssh-option "
     "StrictHostKeyChecking=accept-new"},
    {"Could not resolve hostname", "check the name in the host file, and DNS or /etc/hosts"},
    {"Permission denied", "farhop never asks for a password: put your key into its authorized_keys, or give --ssh-identity "
                          "and --ssh-user"},
    {"Connection refused", "is sshd running there, and is the port in the host file (or --ssh-port) sshd's?"},
    {"timed out", "is the machine up, and the network between?"},
    {"No route to host", "is the machine up, and the network between?"},
};

}  // namespace

std::string shellQuote(const std::string& text) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string shellLine(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) absl::StrAppend(&line, line.empty() ? "" : " ", shellQuote(word));
  return line;
}

std::vector<std::string> sshWords(const SshOptions& options, const Host& host) {
  std::vector<std::string> words{kSshProgram, "-T", "-o", "BatchMode=yes"};
  // ssh takes the first value that it is given for an option.
  for (const std::string& option : options.options) words.insert(words.end(), {"-o", option});
  for (const char* option : {"ConnectTimeout=10", "StrictHostKeyChecking=yes", "ServerAliveInterval=5", "ServerAliveCountMax=2",
                             "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "ControlMaster=no",
                             "ControlPath=none", "RequestTTY=no", "LogLevel=ERROR"}) {
    words.insert(words.end(), {"-o", option});
  }
  if (const auto port = host.port ? host.port : options.port) words.insert(words.end(), {"-p", std::to_string(*port)});
  if (const std::string& user = host.user.empty() ? options.user : host.user; !user.empty()) {
    words.insert(words.end(), {"-l", user});
  }
  if (!options.identity.empty()) words.insert(words.end(), {"-i", options.identity, "-o", "IdentitiesOnly=yes"});
  return words;
}

std::vector<std::string> sshCommand(const SshOptions& options, const Host& host,
                                    const std::vector<std::string>& remoteCommand) {
  std::vector<std::string> words = sshWords(options, host);
  words.insert(words.end(), {"--", host.name, absl::StrCat("exec ", shellLine(remoteCommand))});
  return words;
}

absl::Status explainSshEnd(const std::optional<ProcessEnd>& end, const std::string& said, bool connecting) {
  const std::string detail = said.empty() ? "" : absl::StrCat(": ", said);
  if (!end) return absl::UnavailableError(absl::StrCat("ssh closed its connection", detail));
  if (!end->signaled && connecting && end->code == kNotFound) {
    return absl::NotFoundError(absl::StrCat("farhop cannot be started there", detail,
                                            "; install it in the same place on all machines, or name its path with --farhop"));
  }
  if (!end->signaled && connecting && end->code == kNotExecutable) {
    return absl::PermissionDeniedError(absl::StrCat("farhop cannot be started there", detail));
  }
  if (end->signaled || end->code != kSshFailed) {
    return absl::UnavailableError(absl::StrCat("its agent ended, with ", end->text(), " of ssh", detail));
  }
  std::string text = absl::StrCat(connecting ? "ssh cannot connect" : "the ssh connection broke", detail);
  for (const auto& [part, advice] : kAdvice) {
    if (!connecting || !absl::StrContains(said, part)) continue;
    absl::StrAppend(&text, "; ", advice);
    break;
  }
  return absl::UnavailableError(text);
}

}  // namespace farhop::launcher
