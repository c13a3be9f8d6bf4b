#include "launcher/farhop_on_hosts.h"

#include <utility>

namespace farhop::launcher {
namespace {

constexpr int kSshFailed = 255;

absl::StatusOr<HostAnswer> explained(absl::StatusOr<HostAnswer> answer) {
  if (!answer.ok() || (!answer->end.signaled && answer->end.code != kSshFailed)) return answer;
  return explainSshEnd(answer->end, answer->errors, true);
}

}  // namespace

absl::StatusOr<std::vector<AnswerOfHost>> runFarhopOnHosts(const HostFlags& flags, const std::vector<std::string>& words,
                                                           std::chrono::milliseconds timeout) {
  FARHOP_ASSIGN_OR_RETURN(const std::vector<Host> hosts, readHostFile(flags.hostFile));
  FARHOP_ASSIGN_OR_RETURN(const SshOptions ssh, sshOptionsOf(flags));
  std::vector<std::string> remote = {farhopOf(flags)};
  remote.insert(remote.end(), words.begin(), words.end());
  std::vector<HostCommand> commands;
  for (const Host& host : hosts) commands.push_back({sshCommand(ssh, host, remote), nullptr});
  HostCommandsOptions options;
  options.timeout = timeout;
  FARHOP_ASSIGN_OR_RETURN(auto answers, runOnHosts(commands, options));
  std::vector<AnswerOfHost> result;
  for (size_t i = 0; i < hosts.size(); ++i) result.push_back({hosts[i].label, explained(std::move(answers[i]))});
  return result;
}

}  // namespace farhop::launcher
