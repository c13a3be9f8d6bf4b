// How a process is to be bound to cores: FARHOP_BIND. No libtorch and no hwloc here: launchers include this.
#pragma once

#include <string>

#include "base/status.h"

namespace farhop::runtime {

inline constexpr char kEnvBind[] = "FARHOP_BIND";

enum class BindTo {
  kNone,  // where the kernel likes; numbers of threads follow the process's share all the same
  kCore,  // to the process's own share of the machine's physical cores
  kNuma,  // to all cores of the NUMA nodes in which its share lies
};

struct BindingChoice {
  BindTo to = BindTo::kCore;
  // Sampler and communication threads get cores of their own, instead of sharing the process's with the trainer's.
  bool splitThreads = false;
};

// "none", "core" or "numa"; the last two also with ":split". InvalidArgument saying so.
absl::StatusOr<BindingChoice> parseBindingChoice(const std::string& text);
std::string formatBindingChoice(const BindingChoice& choice);

}  // namespace farhop::runtime
