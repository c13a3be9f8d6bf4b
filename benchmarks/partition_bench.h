// `farhop-bench partition`: how fast, and with how much memory, a data set becomes a store.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Adds the subcommand; what it returns is stored in `status`.
void addPartitionBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
