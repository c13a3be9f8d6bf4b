// The file of `farhop run --config`: a YAML mapping of the command's flags, without their hyphens at the front.
//
//   graph: /data/store
//   hosts: hosts.txt
//   nproc_per_node: 4
//   env: {OMP_NUM_THREADS: 1}      # or a list of NAME=VALUE
//   check: true                    # a flag that takes no value
//   trainer: [./trainer, --lr, 0.01]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::launcher {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Gives the file's values to the command's options that were not on the command line (nor in their variables of the
// environment); `trainer` likewise, to a command without one. Call it after the command line is parsed. InvalidArgument
// that names file and line for an unknown key and for a value that its flag refuses.
absl::Status applyConfigFile(const std::string& path, CLI::App& command, std::optional<std::vector<std::string>>& trainer);

}  // namespace farhop::launcher
