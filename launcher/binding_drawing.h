// `farhop doctor --bindings`: a machine's allowed cores and the processes that would run on them, as a table.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/topology.h"

namespace farhop::launcher {

// One line per core: socket, NUMA node, logical processors, processes; where cores are split, with what runs there.
// Consecutive cores of the same processes are one line. Then each process's plan in a line.
absl::StatusOr<std::string> drawBindings(const runtime::Topology& topology, int procs, const runtime::BindingChoice& choice);

}  // namespace farhop::launcher
