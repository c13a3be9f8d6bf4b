// `farhop-bench loader`: batches per second with their features, by several processes that sample and pull from each other.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Adds the subcommand; what became of it is in *status after parsing.
void addLoaderBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
