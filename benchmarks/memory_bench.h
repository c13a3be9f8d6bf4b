// `farhop-bench memory`: what very wide features cost in memory, by number of workers.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Adds the subcommand; what became of it is in *status after parsing.
void addMemoryBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
