// `farhop-bench startup`: how long a job takes until all its processes are ready, and how much memory they take
// meanwhile, with a start gate, with fixed pauses, and all at once.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Adds the subcommand; what it returns is stored in `status`.
void addStartupBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
