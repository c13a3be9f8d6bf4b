// Command lines of ssh.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/host_file.h"
#include "launcher/process.h"

namespace farhop::launcher {

struct SshOptions {
  std::optional<uint16_t> port;      // for hosts whose line names none
  std::string user;                  // likewise
  std::string identity;              // key file
  std::vector<std::string> options;  // ssh -o; before ours, which they override but for BatchMode
};

// ssh up to and including its options, without a host: also what rsync -e gets. Never asks anything (BatchMode), gives up
// connecting after 10 s, checks host keys, forwards nothing and shares no connection.
std::vector<std::string> sshWords(const SshOptions& options, const Host& host);

// A command that runs on the host. Words reach it untouched by the shells of either side.
std::vector<std::string> sshCommand(const SshOptions& options, const Host& host,
                                    const std::vector<std::string>& remoteCommand);

// Words as one line that a POSIX shell, and csh, read as these words.
std::string shellLine(const std::vector<std::string>& words);
// One word; quoted where that is needed.
std::string shellQuote(const std::string& text);

// What to make of an ssh that ended, with what it said: why, and what to do about it. `connecting`: the command there had
// not answered yet.
absl::Status explainSshEnd(const std::optional<ProcessEnd>& end, const std::string& said, bool connecting);

}  // namespace farhop::launcher
