// farhop itself on the hosts of a host file, over ssh, for commands that look at every machine: ps and clean.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/host_commands.h"
#include "launcher/host_flags.h"

namespace farhop::launcher {

struct AnswerOfHost {
  std::string label;
  absl::StatusOr<HostAnswer> answer;  // an ssh that fails is explained
};

// Runs `farhop WORDS...` on all hosts at once and returns what each said, in order. InvalidArgument or NotFound for the
// host file or the flags.
absl::StatusOr<std::vector<AnswerOfHost>> runFarhopOnHosts(const HostFlags& flags, const std::vector<std::string>& words,
                                                           std::chrono::milliseconds timeout);

}  // namespace farhop::launcher
